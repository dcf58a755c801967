"""Kernels are compiled by several workers; one that dies of a kernel costs only that kernel."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.engine.families import chain_workload, schedules_of

from aoe.device.compiler import KernelSource
from aoe.errors import RunError
from aoe.execute.compiling import KernelCompilers
from aoe.execute.runner import Runner
from aoe.target import Target
from aoe.testing.fakes import make_target

_EXP = chain_workload(("Exp",))
_SCHEDULES = schedules_of(_EXP, make_target(), 4)


def _sources(*names: str) -> list[KernelSource]:
    return [KernelSource(name=name, workload=_EXP, schedule=_SCHEDULES[0]) for name in names]


@dataclass
class Workers:
    """Workers that note who compiled what; kernels whose name has an ! in it kill them."""

    target: Target
    batches: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    abandoned: list[int] = field(default_factory=list)
    started: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> Worker:
        self.started += 1
        return Worker(self, self.started, self.target)


@dataclass
class Worker:
    """What `KernelCompilers` uses of a `Runner`."""

    workers: Workers
    number: int
    target: Target

    def call(
        self,
        task: str,
        *,
        timeout_s: float,
        kernels: Sequence[tuple[str, Mapping[str, Any], Any]],
        directory: Path,
    ) -> dict[str, str]:
        assert task == "compile_kernels" and timeout_s > 0
        names = tuple(name for name, _, _ in kernels)
        with self.workers.lock:
            self.workers.batches.append((self.number, names))
        if any("stop" in name for name in names):
            raise KeyboardInterrupt
        if any("!" in name for name in names):
            raise RunError(task, "the worker ended with signal 11")
        for name in names:
            (directory / f"{name}.o").write_bytes(name.encode())
        return dict.fromkeys(names, "")

    def sibling(self) -> Worker:
        return self.workers.start()

    def abandon(self) -> None:
        self.workers.abandoned.append(self.number)

    def close(self) -> None:
        self.workers.closed.append(self.number)


@contextmanager
def _compilers(
    cores: int, processes: int | None = None
) -> Iterator[tuple[KernelCompilers, Workers]]:
    workers = Workers(make_target(core_num=cores))
    first = workers.start()
    made = KernelCompilers(first, processes=processes)  # type: ignore[arg-type]
    with closing(made) as compilers:
        yield compilers, workers


def test_kernels_are_shared_out_and_the_second_worker_stays() -> None:
    with _compilers(cores=2) as (compilers, workers):
        for _ in range(2):
            with compilers.compiled(_sources("a", "b", "c", "d")) as compiled:
                assert compiled.errors == dict.fromkeys("abcd", "")
                found = sorted(file.name for file in compiled.directory.iterdir())
                assert found == ["a.o", "b.o", "c.o", "d.o"]
            assert not compiled.directory.exists()
        assert sorted(workers.batches) == [(1, ("a", "c"))] * 2 + [(2, ("b", "d"))] * 2
        assert workers.started == 2
    assert workers.closed == [2]  # the first belongs to the caller


@pytest.mark.parametrize(
    ("cores", "kernels", "workers_used"), [(1, 4, 1), (8, 1, 1), (4, 8, 4), (8, 4, 3)]
)
def test_as_many_workers_as_cores_and_kernels_are_worth(
    cores: int, kernels: int, workers_used: int
) -> None:
    names = [f"k{number}" for number in range(kernels)]
    with _compilers(cores) as (compilers, workers), compilers.compiled(_sources(*names)):
        assert len({number for number, _ in workers.batches}) == workers_used == workers.started


@pytest.mark.parametrize(("processes", "workers_used"), [(1, 1), (2, 2), (32, 5)])
def test_as_many_processes_as_asked_for(processes: int, workers_used: int) -> None:
    names = [f"k{number}" for number in range(8)]
    with _compilers(2, processes) as (compilers, workers), compilers.compiled(_sources(*names)):
        assert len({number for number, _ in workers.batches}) == workers_used == workers.started


def test_kernel_that_kills_a_worker_is_an_error_and_the_others_are_compiled() -> None:
    with (
        _compilers(cores=2) as (compilers, _),
        compilers.compiled(_sources("a", "b", "c!", "d")) as compiled,
    ):
        assert "signal 11" in compiled.errors.pop("c!")
        assert compiled.errors == dict.fromkeys("abd", "")
        assert (compiled.directory / "a.o").exists()


def test_interrupt_ends_all_workers_and_leaves_nothing_behind() -> None:
    with _compilers(cores=2) as (compilers, workers):
        folder = compilers._scratch.path
        with pytest.raises(KeyboardInterrupt), compilers.compiled(_sources("a", "stop")):
            raise AssertionError("nothing was compiled")
        assert sorted(workers.abandoned) == [1, 2]
        assert not list(folder.glob("[0-9]*"))
    assert not folder.exists()


def test_real_workers_write_object_files(runner: Runner) -> None:
    sources = [
        KernelSource(name=f"exp_{number}", workload=_EXP, schedule=schedule)
        for number, schedule in enumerate(_SCHEDULES)
    ]
    with closing(KernelCompilers(runner)) as compilers, compilers.compiled(sources) as compiled:
        assert not any(compiled.errors.values())
        sizes = [(compiled.directory / f"{s.name}.o").stat().st_size for s in sources]
        assert len(sizes) >= 2 and all(sizes)
