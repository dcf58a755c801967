"""The parent's side of the measuring process: start, ask, time out, replace."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from aoe.device.protocol import Device
from aoe.device.toolchain import Toolchain
from aoe.errors import RunError, RunTimeoutError
from aoe.execute.messages import Reply, Request, TaskRunner, WorkerSetup
from aoe.folders.scratch import ScratchFolder
from aoe.folders.turns import Turns
from aoe.target import Target

_LOG_BYTES = 2000
_LOOK_S = 0.5
"""How often the memory of a worker is looked at."""
MEASURING_TASKS = frozenset(
    {"measure_candidates", "measure_format", "compare_models", "machine_rates", "compare_itself"}
)
COMPILING_TASKS = frozenset({"compile_kernels"})
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from aoe.execute.worker import main; main(int(sys.argv[1]), int(sys.argv[3]))"
)
"""A plain child: not forked, since ONNX Runtime and Halide hold threads a fork would lose, and not
`multiprocessing.Process`, which would run the user's own script again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerApart:
    """What compiles beside measuring, on cores that share nothing with those measured on.

    Attributes:
        runner: Its worker.
        cores: How many cores it has.
        turn: A turn of the run: what it measures meanwhile is part of it. Given what ends waiting.
        interrupt: Kills the worker; a call that another thread waits for fails.
    """

    runner: TaskRunner
    cores: int
    turn: Callable[[Callable[[], bool]], AbstractContextManager[None]]
    interrupt: Callable[[], None]


class Runner:
    """Runs tasks in a worker process; one that dies or hangs is replaced at the next call.

    Args:
        device: What to measure on.
        target: What to compile and measure for.
        toolchain: C compiler for the worker.
        turns: Taken for tasks that measure or compile; None takes none.
        cores: What the worker keeps to; none for whatever the system gives it.
    """

    def __init__(
        self,
        device: Device,
        target: Target,
        toolchain: Toolchain,
        turns: Turns | None = None,
        *,
        cores: frozenset[int] = frozenset(),
    ) -> None:
        self.device = device
        self.target = target
        self.toolchain = toolchain
        self.turns = turns if turns is not None else Turns(None, ())
        self._cores = cores
        self._scratch = ScratchFolder("worker")
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._lifeline = -1
        self._generation = 0

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, task: str, *, timeout_s: float, **arguments: Any) -> Any:
        """Run one task in the worker and return its result.

        Raises:
            RunTimeoutError: no answer in time; the worker was killed.
            RunError: the worker died, or the task failed.
        """
        with self._turn(task):
            return self._call(task, timeout_s, arguments)

    def _turn(self, task: str) -> AbstractContextManager[None]:
        if task in MEASURING_TASKS:
            return self.turns.measuring()
        if task in COMPILING_TASKS:
            return self.turns.compiling()
        return contextlib.nullcontext()

    def _call(self, task: str, timeout_s: float, arguments: Mapping[str, Any]) -> Any:
        try:
            connection = self._ready()
            connection.send(Request(task=task, arguments=arguments))
            self._wait_for_answer(connection, task, timeout_s)
            reply: Reply = connection.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            raise RunError(task, self._obituary()) from error
        except BaseException:  # Ctrl-C: the answer would come later, and pass for the next one's
            self._stop(kill=True)
            raise
        if self._is_hoarding():  # what a kernel never gave back, the next one would miss
            self._stop(kill=False)
        if reply.error is not None:
            found = reply.error
            raise RunError(
                found.where, found.problem, got=found.got, expected=found.expected, hint=found.hint
            ) from found
        if reply.crash:
            raise RunError(task, f"failed in the worker\n{reply.crash}")
        return reply.value

    def _wait_for_answer(self, connection: Connection, task: str, timeout_s: float) -> None:
        """Return once there is something to read.

        Raises:
            RunTimeoutError: there is nothing in time.
            RunError: the worker takes all memory.
        """
        end_s = time.monotonic() + timeout_s
        while not connection.poll(min(_LOOK_S, max(0.0, end_s - time.monotonic()))):
            if time.monotonic() >= end_s:
                raise RunTimeoutError(task, "no answer from the worker", got=f"over {timeout_s} s")
            if self._is_hoarding():
                raise RunError(task, "the worker took nearly all memory and was ended")

    def _is_hoarding(self) -> bool:
        return self._process is not None and self.device.is_hoarding(self._process.pid)

    def sibling(self) -> Runner:
        """Return another runner for the same target, to compile in parallel."""
        return Runner(self.device, self.target, self.toolchain, self.turns)

    def apart(self) -> CompilerApart | None:
        """Keep to cores for what is measured; return a compiler on others, None if there are none.

        A worker that runs is ended: the next call starts one on these cores.
        """
        split = self.device.apart(self.target.core_num)
        if not split.spare:
            return None
        self.restart()
        self._cores = split.measured
        compiler = Runner(self.device, self.target, self.toolchain, self.turns, cores=split.spare)
        return CompilerApart(
            runner=compiler,
            cores=len(split.spare),
            turn=self.turns.measuring,
            interrupt=compiler.interrupt,
        )

    def interrupt(self) -> None:
        """Kill the worker; a call that another thread waits for fails."""
        process = self._process
        if process is not None:
            process.kill()

    def restart(self) -> None:
        """End the worker; the next call starts a fresh one."""
        self._stop(kill=False)

    def close(self) -> None:
        """End the worker and remove its files, even where that is interrupted."""
        try:
            self._stop(kill=False)
        finally:
            self._scratch.remove()

    def _ready(self) -> Connection:
        if self._process is not None and self._connection is not None:
            if self._process.poll() is None:
                return self._connection
            self._stop(kill=True)
        self._generation += 1
        directory = self._scratch.path / str(self._generation)
        directory.mkdir()
        ours, theirs = multiprocessing.Pipe()
        its_lifeline, self._lifeline = os.pipe()  # never written to; it breaks when we die
        inherited = [theirs.fileno(), its_lifeline]
        try:
            with theirs, self._log().open("wb") as log:
                self._process = subprocess.Popen(
                    [
                        *(sys.executable, "-c", _BOOT),
                        *(str(inherited[0]), json.dumps(sys.path), str(inherited[1])),
                    ],
                    pass_fds=inherited,
                    stdin=subprocess.DEVNULL,
                    stdout=log,  # whatever native code prints must not get into the answer
                    stderr=log,
                )
        finally:
            os.close(its_lifeline)
        self._connection = ours
        ours.send(
            WorkerSetup(
                device=self.device,
                target=self.target,
                compiler=self.toolchain.command,
                directory=directory,
                cores=self._cores,
            )
        )
        return ours

    def _stop(self, *, kill: bool) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.close()
            self._connection = None
        if self._process is not None:
            try:
                if not kill:
                    self._wait(timeout_s=2)
            finally:  # Ctrl-C once more: at once
                if self._process.poll() is None:
                    self._process.kill()
                self._process.wait()
                self._process = None
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def _wait(self, *, timeout_s: float) -> int | None:
        """Return the exit code of the worker, None if it does not end in time."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._process.wait(timeout=timeout_s)
        return None

    def _log(self) -> Path:
        return self._scratch.path / f"log_{self._generation}.txt"

    def _obituary(self) -> str:
        code = self._wait(timeout_s=5)
        self._stop(kill=True)
        tail = self._log().read_bytes()[-_LOG_BYTES:].decode("utf-8", "replace").strip()
        cause = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return f"the worker ended with {cause}" + (f"\n{tail}" if tail else "")
