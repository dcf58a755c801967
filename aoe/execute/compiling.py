"""Compiles kernels in several processes at once; Halide itself uses one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from aoe.device.compiler import KernelSource
from aoe.errors import RunError
from aoe.execute.messages import CompiledKernels
from aoe.execute.runner import Runner
from aoe.folders.scratch import ScratchFolder
from aoe.schedule import schedule_to_json
from aoe.workload import workload_to_json

_COMPILE_TIMEOUT_S = 60.0
_PER_KERNEL_TIMEOUT_S = 20.0
FEW_AT_ONCE = 2
"""Kernels each further process is worth where it stays for the next ones."""
MANY_AT_ONCE = 6
"""Where it is started for one batch only: it takes about 1.5 s to start, a kernel 0.3 s."""
_PROCESSES_MAX = 8


class KernelCompilers:
    """A worker and, as soon as there is enough to do, siblings of it that only compile.

    Args:
        runner: The measuring worker, which compiles too: it has nothing else to do meanwhile.
        worth: Kernels in a batch for each sibling that takes part.
        processes: Most of them, the worker included; None for one a core, at most 8.
    """

    def __init__(
        self, runner: Runner, *, worth: int = FEW_AT_ONCE, processes: int | None = None
    ) -> None:
        self._runner = runner
        self._worth = worth
        self._processes = processes or min(runner.target.core_num, _PROCESSES_MAX)
        self._siblings: list[Runner] = []
        self._scratch = ScratchFolder("compile")
        self._batches = 0

    def close(self) -> None:
        """End the siblings and remove what they have compiled."""
        for sibling in self._siblings:
            sibling.close()
        self._siblings.clear()
        self._scratch.remove()

    @contextmanager
    def compiled(self, sources: Sequence[KernelSource]) -> Iterator[CompiledKernels]:
        """Compile kernels into a directory that is there for the time of the `with` block."""
        self._batches += 1
        directory = self._scratch.path / str(self._batches)
        directory.mkdir()
        try:
            yield CompiledKernels(directory=directory, errors=self.compile(sources, directory))
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def compile(self, sources: Sequence[KernelSource], directory: Path) -> dict[str, str]:
        """Write `<name>.o` and what packs its inputs for each kernel.

        Returns:
            By name what is wrong with a kernel; an empty text if it is compiled.
        """
        runners = [self._runner, *self._helpers(len(sources))]
        shares = [sources[i :: len(runners)] for i in range(len(runners))]
        folders = [directory] * len(runners)
        with ThreadPoolExecutor(len(runners)) as pool, _abandoned_on_interrupt(runners):
            results = pool.map(_compile_in, runners, shares, folders)
            return {name: error for found in results for name, error in found.items()}

    def _helpers(self, kernels: int) -> list[Runner]:
        wanted = min(kernels // self._worth, self._processes - 1)
        while len(self._siblings) < wanted:
            self._siblings.append(self._runner.sibling())
        return self._siblings[: max(0, wanted)]


@contextmanager
def _abandoned_on_interrupt(runners: Sequence[Runner]) -> Iterator[None]:
    """End workers that compile when the run is interrupted, instead of waiting for them."""
    try:
        yield
    except BaseException:
        for runner in runners:
            runner.abandon()
        raise


def _compile_in(runner: Runner, sources: Sequence[KernelSource], directory: Path) -> dict[str, str]:
    """Compile in one process; where it dies of a kernel, the others are compiled again."""
    if not sources:
        return {}
    try:
        found: dict[str, str] = runner.call(
            "compile_kernels",
            timeout_s=_COMPILE_TIMEOUT_S + _PER_KERNEL_TIMEOUT_S * len(sources),
            kernels=[
                (s.name, workload_to_json(s.workload), schedule_to_json(s.schedule))
                for s in sources
            ],
            directory=directory,
        )
        return found
    except RunError as error:
        if len(sources) == 1:
            return {sources[0].name: str(error)}
        return {
            name: text
            for source in sources
            for name, text in _compile_in(runner, [source], directory).items()
        }
