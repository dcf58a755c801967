"""Kernels are compiled by a worker of their own; what was compiled before is taken from there."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.engine.cpu import CPU
from support.engine.fakes import ScriptedRunner, make_target
from support.engine.families import chain_workload, schedules_of

from aoe.device.compiler import KernelSource, objects_of
from aoe.device.forks import TOO_LONG
from aoe.device.object_cache import ObjectCache
from aoe.device.toolchain import Toolchain
from aoe.errors import RunError, RunTimeoutError
from aoe.execute.compiling import KernelCompilers
from aoe.execute.runner import Runner, SeparateCompiler

_EXP = chain_workload(("Exp",))
_SCHEDULES = schedules_of(_EXP, make_target(), 4)


def _sources(*names: str) -> list[KernelSource]:
    return [KernelSource(name=name, workload=_EXP, schedule=_SCHEDULES[0]) for name in names]


def _real_sources() -> list[KernelSource]:
    return [KernelSource.of(_EXP, schedule) for schedule in _SCHEDULES]


@contextmanager
def _compilers(
    runner: ScriptedRunner, cache: ObjectCache | None = None, **how: Any
) -> Iterator[KernelCompilers]:
    made = KernelCompilers(runner, cache, **how)
    with closing(made) as compilers:
        yield compilers


def _asked(runner: ScriptedRunner) -> list[list[str]]:
    return [
        [name for name, _, _ in call.arguments["kernels"]]
        for call in runner.asked("compile_kernels")
    ]


@pytest.mark.parametrize(
    ("cores", "processes", "at_once"), [(3, None, 3), (64, None, 8), (2, 32, 32), (4, 1, 1)]
)
def test_one_worker_compiles_on_all_cores_or_as_many_as_asked_for(
    cores: int, processes: int | None, at_once: int
) -> None:
    runner = ScriptedRunner(target=make_target(core_num=cores))
    with _compilers(runner, processes=processes) as compilers:
        compiled = compilers.compiled(_sources("a", "b"))
        assert compiled.errors == {"a": "", "b": ""}
        assert sorted(file.name for file in compiled.directory.glob("*.o")) == ["a.o", "b.o"]
    assert [call.arguments["at_once"] for call in runner.asked("compile_kernels")] == [at_once]
    assert not compiled.directory.exists()


def test_candidates_are_compiled_once_and_the_winner_stays(tmp_path: Path) -> None:
    runner = ScriptedRunner()
    with _compilers(runner) as compilers:
        compilers.compiled(_sources("a", "b", "c"))
        compilers.compiled(_sources("b"))
        compilers.keep_only("b")
        compilers.compiled(_sources("d"))
        compilers.keep_only(None)
        assert compilers.compile(_sources("a", "b"), tmp_path) == {"a": "", "b": ""}
        assert sorted(file.name for file in tmp_path.glob("*.o")) == ["a.o", "b.o"]
    assert _asked(runner) == [["a", "b", "c"], ["d"], ["a"]]


def test_what_is_compiled_ahead_waits_for_its_turn() -> None:
    runner = ScriptedRunner(compile_error=lambda name: "too large" if name == "b" else "")
    with _compilers(runner) as compilers:
        compilers.prepare(_sources("a", "b", "c"))
        compilers.compiled(_sources("d"))
        compilers.keep_only(None)
        assert compilers.compiled(_sources("a", "b")).errors == {"a": "", "b": "too large"}
        compilers.keep_only(None)
        directory = compilers.compiled([]).directory
        assert [file.name for file in directory.glob("*.o")] == ["c.o"]
        compilers.compiled(_sources("a"))
    assert _asked(runner) == [["a", "b", "c"], ["d"], ["a"]]


def test_kernels_the_clock_or_a_dead_compiler_keeps_back_are_told_from_broken_ones() -> None:
    said = {"a": "", "b": TOO_LONG, "c": "illegal split"}
    with _compilers(ScriptedRunner(compile_error=said.__getitem__)) as compilers:
        assert compilers.compiled(_sources("a", "b", "c")).late == {"b"}
    late = RunTimeoutError("compile_kernels", "no answer from the worker", got="over 80.0 s")
    with _compilers(ScriptedRunner(compile_error=_raised(late))) as compilers:
        assert compilers.compiled(_sources("a")).late == {"a"}


def _raised(error: Exception) -> Callable[[str], str]:
    def raising(_: str) -> str:
        raise error

    return raising


def test_what_there_was_no_time_to_compile_ahead_is_compiled_when_its_turn_comes() -> None:
    runner = ScriptedRunner()
    with _compilers(runner) as compilers:
        compilers.prepare(_sources("a"), left_s=0.0)
        assert compilers.compiled(_sources("a")).errors == {"a": ""}
    assert _asked(runner) == [["a"]]
    with _compilers(ScriptedRunner(compile_error=lambda name: "illegal split")) as compilers:
        compilers.prepare(_sources("a"), left_s=0.0)
        found = compilers.compiled(_sources("a"))
    assert (found.errors, found.late) == ({"a": "illegal split"}, frozenset())


@dataclass(slots=True, kw_only=True)
class _HeldRunner(ScriptedRunner):
    """A compiler that waits until it is let go or killed."""

    go: threading.Event = field(default_factory=threading.Event)
    killed: threading.Event = field(default_factory=threading.Event)

    def call(self, task: str, *, timeout_s: float, **arguments: Any) -> Any:
        assert self.go.wait(_PATIENCE_S)
        if self.killed.is_set():
            raise RunError(task, "the worker ended with signal 9")
        return ScriptedRunner.call(self, task, timeout_s=timeout_s, **arguments)

    def interrupt(self) -> None:
        self.killed.set()
        self.go.set()


_PATIENCE_S = 30.0


def _apart(runner: _HeldRunner) -> SeparateCompiler:
    return SeparateCompiler(
        runner=runner,  # type: ignore[arg-type]
        cores=1,
        turn=runner.turns.measuring,
        interrupt=runner.interrupt,
    )


def test_where_cores_are_left_over_compiling_goes_on_beside_what_is_done_meanwhile() -> None:
    held = _HeldRunner(compile_error=lambda name: "too large" if name == "b" else "")
    with _compilers(ScriptedRunner(), apart=_apart(held)) as compilers:
        assert compilers.is_beside and compilers.processes == 1
        compilers.prepare(_sources("a", "b"))  # returns though nothing can be compiled yet
        compilers.prepare(_sources("b", "c"))
        held.go.set()
        assert compilers.compiled(_sources("a", "b")).errors == {"a": "", "b": "too large"}
        assert compilers.compiled(_sources("c")).errors == {"c": ""}
    assert _asked(held) == [["a", "b"], ["c"]]


def test_run_that_ends_kills_what_compiles_beside_it() -> None:
    held = _HeldRunner()
    with _compilers(ScriptedRunner(), apart=_apart(held)) as compilers:
        compilers.prepare(_sources("a"))
        compilers.prepare(_sources("b"))
    assert _asked(held) == []


@pytest.mark.slow
def test_real_compilers_keep_off_the_cores_that_are_measured_on(toolchain: Toolchain) -> None:
    usable = frozenset(os.sched_getaffinity(0))
    split = CPU.apart(1)
    with Runner(CPU, CPU.describe(1), toolchain) as measuring:
        apart = measuring.apart()
        with closing(KernelCompilers(measuring, apart=apart)) as compilers:
            assert compilers.is_beside is bool(split.spare)
            compilers.prepare(_real_sources()[:2])
            measuring.call("machine_rates", timeout_s=_PATIENCE_S)
            assert measuring.process is not None
            kept = frozenset(os.sched_getaffinity(measuring.process))
            assert kept == (split.measured if split.spare else usable)
            assert not any(compilers.compiled(_real_sources()[:2]).errors.values())
            if apart is not None:
                assert isinstance(apart.runner, Runner) and apart.runner.process is not None
                assert frozenset(os.sched_getaffinity(apart.runner.process)) == split.spare


def test_only_what_goes_into_a_model_is_remembered_for_other_runs(tmp_path: Path) -> None:
    runner = ScriptedRunner(object_code=b"code")
    cache = ObjectCache(tmp_path / "cache", runner.target, limit_bytes=1 << 20)
    with _compilers(runner, cache) as compilers:
        compilers.compiled(_sources("a", "b"))
        compilers.compile(_sources("b", "c"), tmp_path)
    assert [cache.take(source, tmp_path) for source in _sources("a", "b", "c")] == [
        False,
        True,
        True,
    ]


@pytest.mark.slow
def test_kernel_has_the_same_bytes_whatever_was_compiled_before(
    runner: Runner, tmp_path: Path
) -> None:
    sources = _real_sources()
    found = []
    for number, order in enumerate((sources[:2], sources[1:3][::-1])):
        directory = tmp_path / str(number)
        directory.mkdir()
        with closing(KernelCompilers(runner)) as compilers:
            if number:
                compilers.compiled(sources[-1:])
            assert not any(compilers.compile(order, directory).values())
        files = objects_of(directory / f"{sources[1].name}.o")
        found.append([file.read_bytes() for file in files])
    assert found[0] == found[1]
    assert len(found[0][0]) > 1000


def test_kernel_that_cannot_be_compiled_costs_itself(runner: Runner, tmp_path: Path) -> None:
    good = _real_sources()[0]
    other = chain_workload(("Exp", "Neg"), shape=(7,))
    bad = KernelSource(name="bad", workload=other, schedule=schedules_of(_EXP, make_target(), 4)[3])
    with closing(KernelCompilers(runner)) as compilers:
        errors = compilers.compile([bad, good], tmp_path)
    assert errors[good.name] == ""
    assert (tmp_path / f"{good.name}.o").exists()
