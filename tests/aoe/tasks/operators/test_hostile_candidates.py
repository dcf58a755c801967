"""Candidates that crash, hang, leak, or read and write what is not theirs cost themselves only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.engine.cpu import ConfinedCpu
from support.engine.families import chain_workload, schedules_of
from support.engine.hostile_kernels import HostileKernels

from aoe.device.toolchain import Toolchain
from aoe.execute.runner import Runner
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import get_family
from aoe.measurement import Measurement, MeasurePolicy, Outcome
from aoe.schedule import Schedule
from aoe.target import Target
from aoe.tasks.operators.operator_task import OperatorTask, measure_schedules
from aoe.tuner.task_search import SearchSettings

_QUICK = MeasurePolicy(pairs_min=1, pairs_max=1, warmup=0, sample_min_us=0)
_EXP = chain_workload(("Exp",), shape=(1, 8, 33, 31))
"""Leaves some bytes of its last page over."""
_BYTES_LEAKED = 768 << 20

Measure = Callable[..., list[Measurement]]


@pytest.fixture
def kernels(tmp_path: Path, toolchain: Toolchain) -> HostileKernels:
    """Return what compiles candidates that do harm."""
    return HostileKernels(tmp_path, toolchain, _EXP)


def _measuring(
    runner: Runner, kernels: HostileKernels, **settings: Any
) -> Callable[..., list[Measurement]]:
    """Return a function that measures candidates doing such harm, in one call if that works."""
    task = OperatorTask(
        runner=runner,
        family=get_family("elementwise"),
        workload=_EXP,
        kernel_target=KernelTarget.of(runner.target),
        settings=SearchSettings(method="random", budget=4, seed=0, screen=_QUICK, **settings),
        compilers=kernels,  # type: ignore[arg-type]
    )

    def measured(*harms: str) -> list[Measurement]:
        schedules: list[Schedule] = schedules_of(_EXP, runner.target, len(harms))
        assert len(schedules) == len(harms)
        for schedule, harm in zip(schedules, harms, strict=True):
            kernels.add(schedule, harm)
        return measure_schedules(task, schedules, _QUICK)

    return measured


@pytest.fixture
def measure(runner: Runner, kernels: HostileKernels) -> Measure:
    """Return a function that measures such candidates in the worker all tests share."""
    return _measuring(runner, kernels)


@pytest.mark.slow
def test_one_candidate_of_a_batch_that_writes_behind_its_result_fails_alone(
    measure: Measure,
) -> None:
    found = measure("", "y[count] = 1;", "")
    assert [one.outcome for one in found] == [Outcome.CORRECT, Outcome.RUNTIME, Outcome.CORRECT]
    assert "the worker ended with signal 11" in found[1].detail


@pytest.mark.parametrize(
    "harm",
    [
        "volatile float far = x[count]; (void)far;",
        pytest.param("x[0] = 7;", marks=pytest.mark.slow),  # the next candidate reads it too
    ],
)
def test_candidate_that_touches_what_is_not_its_own_is_ended(measure: Measure, harm: str) -> None:
    (found,) = measure(harm)
    assert found.outcome is Outcome.RUNTIME and not found.is_of_machine
    assert "the worker ended with signal" in found.detail


@pytest.mark.slow
def test_candidate_that_writes_just_in_front_of_its_result_is_told(measure: Measure) -> None:
    found = measure("y[-1] = 1;", "")
    assert [one.outcome for one in found] == [Outcome.RUNTIME, Outcome.CORRECT]
    assert "it writes in front of its result" in found[0].detail


def test_result_of_the_candidate_before_it_is_not_taken_for_its_own(measure: Measure) -> None:
    found = measure("", "first = 1;", "")
    assert [one.outcome for one in found] == [Outcome.CORRECT, Outcome.CORRECTNESS, Outcome.CORRECT]
    assert "nan instead of" in found[1].detail


@pytest.mark.slow
def test_candidate_that_hangs_is_timed_out(runner: Runner, kernels: HostileKernels) -> None:
    measure = _measuring(runner, kernels, call_timeout_s=8.0, candidate_timeout_s=0.0)
    (found,) = measure("for (;;) pause();")
    assert found.outcome is Outcome.TIMEOUT


def test_candidate_that_takes_all_memory_is_ended_before_the_machine_is(
    target: Target, toolchain: Toolchain, kernels: HostileKernels, tmp_path: Path
) -> None:
    device = ConfinedCpu(group=tmp_path)
    device.fill(_BYTES_LEAKED)
    with Runner(device, target, toolchain) as runner:
        measure = _measuring(runner, kernels)
        (found,) = measure(f"memset(malloc({_BYTES_LEAKED}), 1, {_BYTES_LEAKED}); sleep(20);")
        assert found.outcome is Outcome.RUNTIME
        assert "the worker took nearly all memory" in found.detail
        (found,) = measure("")
        assert found.outcome is Outcome.CORRECT


@pytest.mark.slow
def test_what_a_candidate_never_gives_back_ends_with_its_worker(
    target: Target, toolchain: Toolchain, kernels: HostileKernels, tmp_path: Path
) -> None:
    device = ConfinedCpu(group=tmp_path)
    with Runner(device, target, toolchain, look_s=60.0) as runner:  # when an answer has come
        measure = _measuring(runner, kernels)
        (first,) = measure("free(malloc(1 << 20));")
        assert first.outcome is Outcome.CORRECT
        worker = runner.process
        assert worker is not None
        device.fill(total_bytes=1)
        (second,) = measure("memset(malloc(1 << 20), 1, 1 << 20);")
        assert second.outcome is Outcome.CORRECT
        assert runner.process is None
        assert not Path(f"/proc/{worker}").exists()
