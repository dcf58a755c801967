"""The parent's side of the measuring process: start, ask, time out, replace."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from aoe.child_python import python_command
from aoe.device.protocol import Device
from aoe.device.toolchain import Toolchain
from aoe.errors import RunError, RunTimeoutError, WorkerDiedError
from aoe.execute.idle_gate import EitherClock
from aoe.execute.messages import Reply, Request, TaskRunner, Word, WorkerSetup
from aoe.folders.scratch import ScratchFolder
from aoe.folders.turns import SLICE_S, Turns
from aoe.measurement import Measurement, MeasurePolicy
from aoe.ort.thread_pools import ThreadPool
from aoe.target import Target

_LOG_BYTES = 2000
_LOADING_TIMEOUT_S = 60.0
MEASURING_TASKS = frozenset(
    {
        "measure_candidates",
        "measure_format",
        "compare_models",
        "compare_unusual",
        "profile_models",
        "machine_rates",
        "compare_itself",
    }
)
_IN_PAIRS = frozenset({"measure_candidates", "measure_format", "compare_models"})
"""Tasks that hold something against the default; they take a `policy`."""
_CRASHES = frozenset(
    -number
    for number in (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV)
)
"""Exit codes of a process that its own code has ended; the system kills by SIGKILL."""
COMPILING_TASKS = frozenset({"compile_kernels"})
_BOOT = "from aoe.execute.worker import main; main(*map(int, sys.argv[1:]))"
"""A plain child is not forked: ONNX Runtime and Halide hold threads that a fork would lose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeparateCompiler:
    """Compiler beside the measuring worker, on cores that share nothing with the measured ones."""

    runner: TaskRunner  # Its worker
    cores: int  # How many cores it has
    # A turn of the run: what it measures meanwhile is part of it. Given what ends waiting.
    turn: Callable[[Callable[[], bool]], AbstractContextManager[None]]
    interrupt: Callable[[], None]  # Kills the worker; a call that another thread waits for fails


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worker:
    """A worker process."""

    process: subprocess.Popen[bytes]  # As the system has it
    connection: Connection  # Our end of the pipe
    lifeline: int  # A pipe nothing is written to; it breaks when we die
    log: Path  # What the process puts out

    def load(self) -> bool:
        """Wait until it could be asked; False if it does not answer."""
        with contextlib.suppress(OSError):  # one that has died is said when it is asked
            self.connection.send(Request(task="load", arguments={}))
        if not self.connection.poll(_LOADING_TIMEOUT_S):
            return False
        with contextlib.suppress(EOFError, OSError):
            self.connection.recv()
        return True

    def stop(self, *, kill: bool) -> None:
        """End it, at once or once it is done."""
        with contextlib.suppress(OSError):
            self.connection.close()
        try:
            if not kill:
                self.wait(timeout_s=2)
        finally:  # Ctrl-C once more: at once
            if self.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signal.SIGKILL)  # with the compilers it runs
            self.process.wait()
            os.close(self.lifeline)

    def wait(self, *, timeout_s: float) -> int | None:
        """Return its exit code, None if it does not end in time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(timeout=timeout_s)
        return None


@dataclass(slots=True)
class _Deadline:
    """Time by which an answer has to be there."""

    limit_s: float
    _end_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._end_s = time.monotonic() + self.limit_s

    def left_s(self) -> float:
        return max(0.0, self._end_s - time.monotonic())

    def put_off(self, waited_s: float, left_s: float) -> None:
        """Give back what the turns of others took, within what the run has left."""
        later_s = min(self._end_s + waited_s, time.monotonic() + left_s)
        self._end_s = max(self._end_s, later_s)


class Runner:
    """Runs tasks in a worker process; one that dies or hangs is replaced at the next call.

    Args:
        device: What to measure on.
        target: What to compile and measure for.
        toolchain: C compiler for the worker.
        turns: Taken for tasks that measure or compile; None takes none. Pairs give way to other
            runs that wait, see `Turns.should_give_way`.
        cores: What the worker keeps to; none for whatever the system gives it.
        root: Where scratch files go; None for `TMPDIR`.
        look_s: How often the memory of the worker is looked at.
        boot: Program of the worker, as `python -c` takes it.
        pool: Threads that sessions compute with; of `SHARED` ones there are others that sleep, in
            a second worker, for what a busy machine makes of several threads.
    """

    def __init__(
        self,
        device: Device,
        target: Target,
        toolchain: Toolchain,
        turns: Turns | None = None,
        *,
        cores: frozenset[int] = frozenset(),
        root: Path | None = None,
        look_s: float = 0.5,
        boot: str = _BOOT,
        pool: ThreadPool = ThreadPool.SHARED,
    ) -> None:
        self.device = device
        self.target = target
        self.toolchain = toolchain
        self.turns = turns if turns is not None else Turns(None, ())
        self._cores = cores
        self._look_s = look_s
        self._boot = boot
        self._scratch = ScratchFolder("worker", root)
        self._pool = pool
        self._clock = EitherClock()
        self._asleep: Runner | None = None
        self._worker: _Worker | None = None
        self._ahead: list[_Worker] = []
        self._following = 0
        self._generation = 0

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def process(self) -> int | None:
        """Number of the worker process; None before there is one, and after its end."""
        return self._worker.process.pid if self._worker is not None else None

    @property
    def waiting(self) -> tuple[int, ...]:
        """Numbers of the processes that have been started ahead, in the order they are used."""
        return tuple(worker.process.pid for worker in self._ahead)

    def call(self, task: str, *, timeout_s: float, **arguments: Any) -> Any:
        """Run one task in the worker and return its result.

        What waiting for the cores takes of `all_s`, the seconds a task may go on compiling, is
        not there any more when it begins.

        Raises:
            RunTimeoutError: no answer in time; the worker was killed.
            RunError: the worker died, or the task failed.
        """
        began_s = time.monotonic()
        with self._turn(task):
            if task in COMPILING_TASKS and "all_s" in arguments:
                waited_s = time.monotonic() - began_s
                arguments["all_s"] = max(0.0, arguments["all_s"] - waited_s)
            policy = arguments.get("policy") if task in _IN_PAIRS else None
            deadline = _Deadline(timeout_s)
            if policy is None or not self._has_two_clocks(arguments):
                return self._call(task, deadline, arguments)
            take = partial(self._measure, task, deadline, arguments)
            return self._clock.measured(take, policy, _measurements_of, _with_measurements)

    def _has_two_clocks(self, arguments: Mapping[str, Any]) -> bool:
        """True unless one pool serves both clocks, or CPU time is not that of a call."""
        several = self.target.core_num > 1 and self._pool is ThreadPool.SHARED
        return several and getattr(arguments.get("terms"), "streams", 1) == 1

    def _measure(
        self,
        task: str,
        deadline: _Deadline,
        arguments: Mapping[str, Any],
        pool: ThreadPool,
        policy: MeasurePolicy,
    ) -> Any:
        runner = self._twin if pool is ThreadPool.SLEEPING else self
        return runner._call(task, deadline, {**arguments, "policy": policy})

    @property
    def _twin(self) -> Runner:
        """Its worker computes with threads that sleep."""
        if self._asleep is None:
            self._asleep = self._like(
                cores=self._cores,
                root=self._scratch.path,
                look_s=self._look_s,
                pool=ThreadPool.SLEEPING,
            )
        return self._asleep

    def _like(self, **how: Any) -> Runner:
        """Return another runner for the same target, in the same turns."""
        return Runner(self.device, self.target, self.toolchain, self.turns, boot=self._boot, **how)

    def _turn(self, task: str) -> AbstractContextManager[None]:
        if task in MEASURING_TASKS:
            return self.turns.measuring()
        if task in COMPILING_TASKS:
            return self.turns.compiling()
        return contextlib.nullcontext()

    def _call(self, task: str, deadline: _Deadline, arguments: Mapping[str, Any]) -> Any:
        try:
            connection = self._ready()
            connection.send(Request(task=task, arguments=arguments))
            reply = self._answer(connection, task, deadline)
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            raise self._obituary(task) from error
        except BaseException:  # Ctrl-C: the answer would come later, and pass for the next one's
            self._stop(kill=True)
            self._end_ahead()
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

    def _answer(self, connection: Connection, task: str, deadline: _Deadline) -> Reply:
        """Return the answer of the worker; other runs measure meanwhile, between its pairs.

        Raises:
            RunTimeoutError: there is none in time.
            RunError: the worker takes all memory.
        """
        looked_s = time.monotonic()
        is_asked = False
        while True:
            if connection.poll(min(self._look_s, SLICE_S, deadline.left_s())):
                said = _received(connection)
                if isinstance(said, Reply):
                    return said
                deadline.put_off(self.turns.give_way(), self.turns.left_s)
                connection.send(Word.GO_ON)
                is_asked = False
            elif deadline.left_s() <= 0:
                limit = f"over {deadline.limit_s} s"
                raise RunTimeoutError(task, "no answer from the worker", got=limit)
            elif not is_asked and self.turns.should_give_way:
                connection.send(Word.GIVE_WAY)
                is_asked = True
            if time.monotonic() - looked_s >= self._look_s:
                looked_s = time.monotonic()
                if self._is_hoarding():
                    raise RunError(task, "the worker took nearly all memory and was ended")

    def _is_hoarding(self) -> bool:
        worker = self._worker
        return worker is not None and self.device.is_hoarding(worker.process.pid)

    def sibling(self) -> Runner:
        """Return another runner for the same target, to compile in parallel."""
        return self._like()

    def apart(self) -> SeparateCompiler | None:
        """Keep to cores for what is measured; return a compiler on others, None if there are none.

        A worker that keeps to other cores is ended; one on these is started for the next call.
        """
        split = self.device.apart(self.target.core_num)
        if not split.spare:
            return None
        if self._cores != split.measured:
            self.restart()
            self._end_ahead()
            self._end_twin()
            self.start(is_apart=True)  # it loads beside what comes before the first measurement
        compiler = self._like(cores=split.spare)
        return SeparateCompiler(
            runner=compiler,
            cores=len(split.spare),
            turn=self.turns.measuring,
            interrupt=compiler.interrupt,
        )

    def interrupt(self) -> None:
        """Kill the worker; a call that another thread waits for fails."""
        worker = self._worker
        if worker is not None:
            worker.process.kill()
        if self._asleep is not None:
            self._asleep.interrupt()

    def restart(self, following: int = 0) -> None:
        """End the worker; the next call is answered by a fresh one.

        Args:
            following: Restarts that are sure to come: the workers for these start with the next
                one, beside each other, and wait. Nothing is measured before they have loaded.
        """
        self._stop(kill=False)
        if self._asleep is not None:
            self._asleep.restart(following if self._clock.pool is ThreadPool.SLEEPING else 0)
            following = following if self._clock.pool is ThreadPool.SHARED else 0
        self._following = following

    def start(self, *, is_apart: bool = False) -> None:
        """Start the worker, which loads what it needs beside whatever this process does.

        Args:
            is_apart: True to keep to the cores that `apart` measures on.
        """
        if self._worker is not None or self._ahead:
            return
        split = self.device.apart(self.target.core_num) if is_apart else None
        if split is not None and split.spare:
            self._cores = split.measured
        self._ahead.append(self._started())

    def await_start(self) -> None:
        """Wait until what was started has loaded, so that it disturbs nothing that is measured."""
        self._load_ahead()

    def close(self) -> None:
        """End the worker and remove its files, even where that is interrupted."""
        try:
            self._end_twin()
            self._stop(kill=False)
        finally:
            self._end_ahead()
            self._scratch.remove()

    def _ready(self) -> Connection:
        if self._worker is not None:
            if self._worker.process.poll() is None:
                return self._worker.connection
            self._stop(kill=True)
        if not self._ahead and self._following:
            while len(self._ahead) <= self._following:
                self._ahead.append(self._started())
            self._load_ahead()
        self._following = 0
        while self._ahead and self._ahead[0].process.poll() is not None:
            self._ahead.pop(0).stop(kill=True)  # it has died while it waited
        self._worker = self._ahead.pop(0) if self._ahead else self._started()
        return self._worker.connection

    def _load_ahead(self) -> None:
        """Wait for the workers that wait; one that does not answer is ended."""
        for worker in self._ahead[:]:
            if not worker.load():
                self._ahead.remove(worker)
                worker.stop(kill=True)

    def _started(self) -> _Worker:
        """Start a worker.

        Raises:
            RunError: there are no files, processes or room on the disk for it.
        """
        self._generation += 1
        directory = self._scratch.path / str(self._generation)
        log = self._scratch.path / f"log_{self._generation}.txt"
        with ExitStack() as ours_alone:
            try:
                directory.mkdir()
                connection, theirs = multiprocessing.Pipe()
                ours_alone.callback(connection.close)
                with theirs:
                    # never written to; it breaks when we die
                    its_lifeline, lifeline = os.pipe()
                    ours_alone.callback(os.close, lifeline)
                    process = self._process(log, theirs.fileno(), its_lifeline)
            except OSError as error:
                why = f"it cannot be started: {error.strerror or error}"
                raise RunError("worker", why) from error
            ours_alone.pop_all()
        worker = _Worker(process=process, connection=connection, lifeline=lifeline, log=log)
        setup = WorkerSetup(
            device=self.device,
            target=self.target,
            compiler=self.toolchain.command,
            kept=self.toolchain.kept,
            directory=directory,
            cores=self._cores,
            pool=self._pool,
        )
        with contextlib.suppress(OSError):  # one that has died is said when it is asked
            connection.send(setup)
        return worker

    def _process(self, log_file: Path, pipe: int, lifeline: int) -> subprocess.Popen[bytes]:
        """Start the process of a worker, which inherits a pipe and its end of the lifeline."""
        try:
            with log_file.open("wb") as log:
                return subprocess.Popen(
                    python_command(self._boot, str(pipe), str(lifeline)),
                    pass_fds=(pipe, lifeline),
                    stdin=subprocess.DEVNULL,
                    stdout=log,  # whatever native code prints must not get into the answer
                    stderr=log,
                    process_group=0,
                )
        finally:
            os.close(lifeline)

    def _end_twin(self) -> None:
        twin, self._asleep = self._asleep, None
        if twin is not None:
            twin.close()

    def _end_ahead(self) -> None:
        while self._ahead:
            self._ahead.pop().stop(kill=True)

    def _stop(self, *, kill: bool) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop(kill=kill)

    def _obituary(self, task: str) -> RunError:
        """Make the error of a dead worker: a crash of its own code, or any other end."""
        worker = self._worker
        code = worker.wait(timeout_s=5) if worker is not None else None
        self._stop(kill=True)
        log = worker.log.read_bytes() if worker is not None else b""
        tail = log[-_LOG_BYTES:].decode("utf-8", "replace").strip()
        cause = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        said = f"the worker ended with {cause}" + (f"\n{tail}" if tail else "")
        return WorkerDiedError(task, said) if code in _CRASHES else RunError(task, said)


def _received(connection: Connection) -> Reply | Word:
    """Return the next message of a worker.

    Raises:
        EOFError: it has died, be it in the middle of its answer.
    """
    try:
        said: Reply | Word = connection.recv()
    except OSError as error:
        raise EOFError from error
    return said


def _measurements_of(found: Any) -> Sequence[Measurement]:
    """Return the measurements in the result of a task that is measured in pairs."""
    if isinstance(found, list):
        return found
    return [found] if isinstance(found, Measurement) else found.points


def _with_measurements(found: Any, measurements: Sequence[Measurement]) -> Any:
    """Return the same result with other measurements, as many as it has."""
    if isinstance(found, list):
        return list(measurements)
    return measurements[0] if isinstance(found, Measurement) else found.with_points(measurements)
