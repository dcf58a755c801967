"""Compiles kernels in a process of its own, several at once; what is compiled once is kept."""

from __future__ import annotations

import math
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path

from aoe.device.compiler import KernelSource, objects_of
from aoe.device.forks import NO_TIME, TOO_LONG
from aoe.device.object_cache import ObjectCache
from aoe.errors import RunError
from aoe.execute.messages import CompiledKernels, TaskRunner
from aoe.execute.runner import SeparateCompiler
from aoe.folders.scratch import ScratchFolder
from aoe.schedule import schedule_to_json
from aoe.workload import workload_to_json

_COMPILE_TIMEOUT_S = 60.0
_PER_KERNEL_TIMEOUT_S = 20.0
_PROCESSES_MAX = 8
_INTERRUPT_S = 0.1
"""Between two attempts to end what compiles while the run ends."""


class KernelCompilers:
    """A worker that only compiles, in one child for each kernel, and what it has compiled.

    Args:
        runner: The measuring worker of the run; this one is for the same target.
        cache: Where kernels of earlier runs are, None for nowhere.
        processes: Most kernels compiled at once; None for one a core, at most 8.
        apart: Compiles beside measuring, None where there are no cores for that.
        clock: Monotonic seconds.

    Attributes:
        runner: As given.
        processes: Kernels compiled at once.
    """

    def __init__(
        self,
        runner: TaskRunner,
        cache: ObjectCache | None = None,
        *,
        processes: int | None = None,
        apart: SeparateCompiler | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.runner = runner
        self._clock = clock
        cores = apart.cores if apart is not None else runner.target.core_num
        self.processes = processes or min(cores, _PROCESSES_MAX)
        self._apart = apart
        self._cache = cache
        self._compiler: TaskRunner | None = None
        self._scratch = ScratchFolder("compile")
        self._winners: set[str] = set()
        self._ahead: set[str] = set()
        self._failed: dict[str, str] = {}
        self._late: set[str] = set()
        self._one_at_a_time = threading.Lock()
        self._is_closing = False
        self._beside: ThreadPoolExecutor | None = None
        self._waiting: dict[str, Future[None]] = {}

    @property
    def is_beside(self) -> bool:
        """True if kernels are compiled while others are measured, on cores of their own."""
        return self._apart is not None

    def close(self) -> None:
        """End the worker and remove what it has compiled, but for what the cache keeps."""
        self._is_closing = True
        try:
            self._end_worker()
        finally:  # Ctrl-C once more
            self._scratch.remove()
        if self._cache is not None:
            self._cache.prune()

    def _end_worker(self) -> None:
        while running := [one for one in self._waiting.values() if not one.done()]:
            if self._apart is not None:
                self._apart.interrupt()
            wait(running, timeout=_INTERRUPT_S)
        if self._beside is not None:
            self._beside.shutdown()
        compiler = self._apart.runner if self._apart is not None else self._compiler
        if compiler is not None:
            compiler.close()
            self._compiler = None

    def compiled(self, sources: Sequence[KernelSource]) -> CompiledKernels:
        """Compile candidates; their objects stay until `keep_only` or `close`."""
        directory = self._scratch.path
        errors = dict.fromkeys((source.name for source in sources), "")
        for name in errors:
            if name in self._waiting:
                self._waiting.pop(name).result()
        self._ahead -= errors.keys()
        errors |= {name: error for name, error in self._failed.items() if name in errors}
        missing = [source for source in sources if not errors[source.name]]
        missing = [source for source in missing if not self._is_here(source, directory)]
        errors |= self._compile(missing, directory, math.inf)
        late = frozenset(name for name, error in errors.items() if error and name in self._late)
        return CompiledKernels(directory=directory, errors=errors, late=late)

    def prepare(self, sources: Sequence[KernelSource], *, left_s: float = math.inf) -> None:
        """Compile candidates whose turn comes later, so that no process waits for another.

        Where there are cores for it, this returns at once, and what is measured next is measured
        meanwhile.

        Args:
            sources: Of any workloads.
            left_s: Seconds after which nothing is compiled any more.
        """
        directory = self._scratch.path
        self._ahead |= {source.name for source in sources}
        missing = [source for source in sources if source.name not in self._waiting]
        missing = [source for source in missing if not self._is_here(source, directory)]
        if not missing:
            return
        if self._apart is None:
            with self._one_at_a_time:
                self._compile_ahead(missing, left_s)
            return
        if self._beside is None:
            self._beside = ThreadPoolExecutor(1, thread_name_prefix="compiling")
        future = self._beside.submit(self._compile_beside, self._apart, missing, left_s)
        self._waiting |= {source.name: future for source in missing}

    def compiles_in(self, sources: Sequence[KernelSource], left_s: float) -> bool:
        """Have kernels compiled in so many seconds; return whether all of them are."""
        self.prepare(sources, left_s=left_s)
        for source in sources:
            if source.name in self._waiting:
                self._waiting.pop(source.name).result()
        return all(self._is_here(source, self._scratch.path) for source in sources)

    def _compile_beside(
        self, apart: SeparateCompiler, sources: Sequence[KernelSource], left_s: float
    ) -> None:
        """Compile in a turn of this run: what it measures meanwhile is part of the same turn."""
        began_s = self._clock()
        # in this order: who waits for a turn must not be waited for by who has it
        with (
            self._one_at_a_time,
            suppress(RunError),
            apart.turn(lambda: self._is_closing),
        ):
            self._compile_ahead(sources, left_s - (self._clock() - began_s))

    def _compile_ahead(self, sources: Sequence[KernelSource], left_s: float) -> None:
        errors = self._compile_now(sources, self._scratch.path, left_s)
        self._failed |= {
            name: error for name, error in errors.items() if error not in ("", NO_TIME)
        }

    def is_known(self, source: KernelSource) -> bool:
        """True if an earlier run has compiled a kernel: nothing is wrong with its schedule."""
        return self._cache is not None and self._cache.has(source)

    def keep_only(self, winner: str | None) -> None:
        """Remove candidates that have had their turn but for one; None for all of them."""
        if winner is not None:
            self._winners.add(winner)
        kept = self._winners | self._ahead
        for file in self._scratch.path.glob("*.o"):
            if file.name.partition(".")[0] not in kept:
                file.unlink()

    def compile(
        self, sources: Sequence[KernelSource], directory: Path, *, left_s: float = math.inf
    ) -> dict[str, str]:
        """Put `<name>.o` and what packs its inputs into a folder: as kept, or compiled now.

        Args:
            sources: In the order they are compiled.
            directory: Where objects go; those which are there stay.
            left_s: Seconds after which no kernel is compiled any more.

        Returns:
            By name what is wrong with a kernel; an empty text if it is there.
        """
        errors = dict.fromkeys((source.name for source in sources), "")
        missing = [source for source in sources if not self._found(source, directory)]
        if missing:
            errors |= self._compile(missing, directory, left_s)
        for source in missing:
            if not errors[source.name]:
                self._remember(source, _object(source.name, directory))
        return errors

    def _is_here(self, source: KernelSource, directory: Path) -> bool:
        if source.is_hosted or _object(source.name, directory).exists():
            return True
        return self._cache is not None and self._cache.take(source, directory)

    def _found(self, source: KernelSource, directory: Path) -> bool:
        """Look for a kernel in the folder, in the cache, and among what this run has compiled."""
        if self._is_here(source, directory):
            return True
        kept = _object(source.name, self._scratch.path)
        if not kept.exists():
            return False
        for file in objects_of(kept):
            shutil.copyfile(file, directory / file.name)
        self._remember(source, kept)
        return True

    def _remember(self, source: KernelSource, file: Path) -> None:
        if self._cache is not None:
            self._cache.put(source, objects_of(file))

    def _compile(
        self, sources: Sequence[KernelSource], directory: Path, left_s: float
    ) -> dict[str, str]:
        if not sources:
            return {}
        began_s = self._clock()
        with self._one_at_a_time:
            return self._compile_now(sources, directory, left_s - (self._clock() - began_s))

    def _compile_now(
        self, sources: Sequence[KernelSource], directory: Path, left_s: float
    ) -> dict[str, str]:
        if left_s <= 0 or self._is_closing:
            self._late |= {source.name for source in sources}
            return {source.name: NO_TIME for source in sources}
        if self._compiler is None:
            self._compiler = self._apart.runner if self._apart else self.runner.sibling()
        try:
            found: dict[str, str] = self._compiler.call(
                "compile_kernels",
                timeout_s=_COMPILE_TIMEOUT_S + _PER_KERNEL_TIMEOUT_S * len(sources),
                kernels=[
                    (s.name, workload_to_json(s.workload), schedule_to_json(s.schedule))
                    for s in sources
                ],
                directory=directory,
                at_once=self.processes,
                all_s=left_s,
            )
            # what had no time before may have been compiled now, or have an error of its own
            late = {name for name, error in found.items() if error in (NO_TIME, TOO_LONG)}
            self._late = (self._late - found.keys()) | late
            return found
        except RunError as error:  # the worker itself: a kernel takes only its own child along
            self._late |= {source.name for source in sources}
            return {source.name: str(error) for source in sources}


def _object(name: str, directory: Path) -> Path:
    return directory / f"{name}.o"
