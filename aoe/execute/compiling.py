"""Compiles kernels in a process of its own, several at once; what is compiled once is kept."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path

from aoe.device.compiler import KernelSource, objects_of
from aoe.device.forks import NO_TIME
from aoe.device.object_cache import ObjectCache
from aoe.errors import RunError
from aoe.execute.messages import CompiledKernels, TaskRunner
from aoe.folders.scratch import ScratchFolder
from aoe.schedule import schedule_to_json
from aoe.workload import workload_to_json

_COMPILE_TIMEOUT_S = 60.0
_PER_KERNEL_TIMEOUT_S = 20.0
_PROCESSES_MAX = 8


class KernelCompilers:
    """A worker that only compiles, in one child for each kernel, and what it has compiled.

    Args:
        runner: The measuring worker of the run; this one is for the same target.
        cache: Where kernels of earlier runs are, None for nowhere.
        processes: Most kernels compiled at once; None for one a core, at most 8.

    Attributes:
        runner: As given.
        processes: Kernels compiled at once.
    """

    def __init__(
        self, runner: TaskRunner, cache: ObjectCache | None = None, *, processes: int | None = None
    ) -> None:
        self.runner = runner
        self.processes = processes or min(runner.target.core_num, _PROCESSES_MAX)
        self._cache = cache
        self._compiler: TaskRunner | None = None
        self._scratch = ScratchFolder("compile")
        self._winners: set[str] = set()
        self._ahead: set[str] = set()
        self._failed: dict[str, str] = {}

    def close(self) -> None:
        """End the worker and remove what it has compiled, but for what the cache keeps."""
        if self._compiler is not None:
            self._compiler.close()
            self._compiler = None
        self._scratch.remove()
        if self._cache is not None:
            self._cache.prune()

    def compiled(self, sources: Sequence[KernelSource]) -> CompiledKernels:
        """Compile candidates; their objects stay until `keep_only` or `close`."""
        directory = self._scratch.path
        errors = dict.fromkeys((source.name for source in sources), "")
        self._ahead -= errors.keys()
        errors |= {name: error for name, error in self._failed.items() if name in errors}
        missing = [source for source in sources if not errors[source.name]]
        missing = [source for source in missing if not self._is_here(source, directory)]
        errors |= self._compile(missing, directory, math.inf)
        return CompiledKernels(directory=directory, errors=errors)

    def prepare(self, sources: Sequence[KernelSource], *, left_s: float = math.inf) -> None:
        """Compile candidates whose turn comes later, so that no process waits for another.

        Args:
            sources: Of any workloads.
            left_s: Seconds after which nothing is compiled any more.
        """
        directory = self._scratch.path
        self._ahead |= {source.name for source in sources}
        missing = [source for source in sources if not self._is_here(source, directory)]
        errors = self._compile(missing, directory, left_s)
        self._failed |= {
            name: error for name, error in errors.items() if error not in ("", NO_TIME)
        }

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
        if _object(source.name, directory).exists():
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
        if left_s <= 0:
            return {source.name: NO_TIME for source in sources}
        if self._compiler is None:
            self._compiler = self.runner.sibling()
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
            return found
        except RunError as error:  # the worker itself: a kernel takes only its own child along
            return {source.name: str(error) for source in sources}


def _object(name: str, directory: Path) -> Path:
    return directory / f"{name}.o"
