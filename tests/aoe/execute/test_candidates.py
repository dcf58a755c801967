"""Candidates: compiled, checked against ONNX Runtime, timed; each failure has its outcome."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from support.engine.families import Substituted, chain_workload, schedules_of
from support.engine.tuning import matrix_product

from aoe.device.compiler import KernelSource
from aoe.device.cpu.device import Cpu
from aoe.device.toolchain import Toolchain
from aoe.errors import BuildError, RunError
from aoe.execute import candidates
from aoe.execute.candidates import CandidateMeasurer
from aoe.execute.quiet import QuietPairs
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import FAMILIES
from aoe.measurement import Measurement, MeasurePolicy, Outcome
from aoe.ort.guarded import GuardedRuns
from aoe.ort.sessions import session_options
from aoe.schedule import Schedule, Split, Vectorize
from aoe.target import Target
from aoe.testing.kernels import operation, plain
from aoe.workload import Operation, TensorSpec, Workload

_QUICK = MeasurePolicy(pairs_min=5, pairs_max=5, warmup=0, sample_min_us=0)
_EXP = chain_workload(("Exp",))


@pytest.fixture
def measurer(
    target: Target, toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> CandidateMeasurer:
    """Return a measurer in this process, so that families can be replaced.

    Its sessions have pools of their own: a process with the shared pool refuses such sessions
    ever after.
    """

    def own_pool(*, shared_pool: bool, **others: Any) -> ort.SessionOptions:
        assert shared_pool
        return session_options(shared_pool=False, **others)

    monkeypatch.setattr(candidates, "session_options", own_pool)
    return CandidateMeasurer(
        device=Cpu(),
        target=target,
        toolchain=toolchain,
        directory=tmp_path,
        pairs=QuietPairs(usage=Cpu().usage),
    )


def _measure(
    measurer: CandidateMeasurer,
    workload: Workload,
    schedules: list[Schedule],
    *,
    policy: MeasurePolicy = _QUICK,
    best_ratio: float | None = None,
) -> list[Measurement]:
    return measurer.measure(workload, schedules, policy=policy, seed=0, best_ratio=best_ratio)


def test_correct_candidates_are_timed_in_pairs(measurer: CandidateMeasurer, target: Target) -> None:
    found = _measure(measurer, _EXP, schedules_of(_EXP, target, 3))
    assert [m.outcome for m in found] == [Outcome.CORRECT] * 3
    # 3 pairs where a candidate lost the race against a better one, else all 5
    assert all(3 <= len(m.baseline_us) == len(m.tuned_us) <= 5 for m in found)
    assert len({m.tuned_us for m in found}) == 3


def test_layout_is_measured_by_the_default_without_what_changes_it(
    measurer: CandidateMeasurer,
) -> None:
    workload = Workload(
        op_type="elementwise",
        inputs=(plain(1, 6, 4, 5),),
        operations=(
            operation("Transpose", "x0", "t0", perm=(0, 2, 3, 1)),
            operation("Exp", "t0", "t1"),
        ),
        output=plain(1, 4, 5, 6),
    )
    found = measurer.measure_format(workload, policy=_QUICK, seed=0, bytes_around=1 << 16)
    assert found.is_correct
    assert len(found.baseline_us) == len(found.tuned_us) == 5


def _with_indices() -> dict[str, Workload]:
    data, index = plain(4, 60, 33), plain(4, 20, 33, dtype="int64")
    narrow, some = plain(4, 20, 33, dtype="int32"), plain(4, 20, 33)
    chosen = operation("ArgMax", "x0", version=13, axis=1, keepdims=0)
    gathered = operation("GatherElements", "x0 x1", axis=1)
    scattered = operation("ScatterElements", "x0 x1 x2", axis=1)
    return {
        name: Workload(op_type=name, inputs=inputs, operations=(item,), output=output)
        for name, inputs, item, output in (
            ("arg_extremes", (data,), chosen, plain(4, 33, dtype="int64")),
            ("gather_elements", (data, narrow), gathered, some),
            ("scatter_elements", (data, index, some), scattered, data),
        )
    }


@pytest.mark.parametrize("family", _with_indices())
def test_indices_are_made_and_read(
    family: str, measurer: CandidateMeasurer, target: Target
) -> None:
    workload, facts = _with_indices()[family], KernelTarget.of(target)
    guess = FAMILIES[family].space(workload, facts).first_guesses[0]
    found = _measure(measurer, workload, [FAMILIES[family].schedule(workload, guess, facts)])
    assert {m.outcome for m in found} == {Outcome.CORRECT}, [m.detail for m in found]


def test_no_candidates_are_no_measurements(measurer: CandidateMeasurer) -> None:
    assert _measure(measurer, _EXP, []) == []


def test_unscheduled_kernel_is_a_candidate_too(measurer: CandidateMeasurer) -> None:
    assert _measure(measurer, _EXP, [Schedule()])[0].outcome is Outcome.CORRECT


def test_equal_schedules_are_measured_once(measurer: CandidateMeasurer, target: Target) -> None:
    (schedule,) = schedules_of(_EXP, target, 1)
    found = _measure(measurer, _EXP, [schedule, schedule])
    assert found[0] == found[1]
    assert found[0].is_correct


def test_illegal_schedule_is_a_compile_failure_and_spoils_no_other(
    measurer: CandidateMeasurer, target: Target
) -> None:
    (good,) = schedules_of(_EXP, target, 1)
    bad = [
        Schedule((Vectorize("nowhere", "x", 8),)),
        Schedule((Split("y", "nothing", "a", "b", 8),)),
    ]
    found = _measure(measurer, _EXP, [bad[0], good, bad[1]])
    assert [m.outcome for m in found] == [Outcome.COMPILE, Outcome.CORRECT, Outcome.COMPILE]
    assert "nowhere" in found[0].detail
    assert "nothing" in found[2].detail


def test_only_illegal_schedules_need_no_linker(
    measurer: CandidateMeasurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unwanted(*_: object, **__: object) -> None:
        raise AssertionError("nothing to link")

    monkeypatch.setattr(Cpu, "build_library", unwanted)
    found = _measure(measurer, _EXP, [Schedule((Vectorize("nowhere", "x", 8),))])
    assert found[0].outcome is Outcome.COMPILE


def _operations(*op_types: str, **attributes: float) -> tuple[Operation, ...]:
    return tuple(
        Operation(
            op_type=op_type,
            version=6,
            inputs=(f"t{i - 1}" if i else "x0",),
            output=f"t{i}",
            attributes=attributes if op_type == op_types[-1] else {},
        )
        for i, op_type in enumerate(op_types)
    )


@pytest.mark.parametrize(
    "instead",
    [
        _operations("Sqrt"),
        _operations("Exp", "Clip", max=1e6),  # wrong for large inputs only
        _operations("Exp", "Clip", min=1e-20),  # wrong for very negative inputs only
    ],
)
def test_wrong_result_is_found_on_random_or_on_special_values(
    measurer: CandidateMeasurer,
    target: Target,
    monkeypatch: pytest.MonkeyPatch,
    instead: tuple[Operation, ...],
) -> None:
    monkeypatch.setitem(FAMILIES, "elementwise", Substituted(instead))
    found = _measure(measurer, _EXP, [Schedule()])
    assert found[0].outcome is Outcome.CORRECTNESS
    assert " instead of " in found[0].detail
    assert not found[0].tuned_us


def test_nan_in_a_small_operand_hides_nothing(
    measurer: CandidateMeasurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Special values of a broadcast operand hold NaN; the rest of the result is still checked."""
    big, small = TensorSpec(shape=(1, 8, 16, 16)), TensorSpec(shape=(8, 1, 1))

    def operations(*, wrong: bool) -> tuple[Operation, ...]:
        added = (Operation(op_type="Add", version=7, inputs=("x0", "x1"), output="t0"),)
        clip = Operation(
            op_type="Clip", version=6, inputs=("t0",), output="t1", attributes={"max": 1e10}
        )
        return (*added, clip) if wrong else added

    workload = Workload(
        op_type="elementwise", inputs=(big, small), operations=operations(wrong=False), output=big
    )
    monkeypatch.setitem(FAMILIES, "elementwise", Substituted(operations(wrong=True)))
    assert _measure(measurer, workload, [Schedule()])[0].outcome is Outcome.CORRECTNESS


def test_kernel_onnxruntime_cannot_run_is_a_runtime_failure(
    measurer: CandidateMeasurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    _measure(measurer, _EXP, [Schedule()])  # the baseline runs

    def refuse(*_: object) -> None:
        raise RunError("model", "refused")

    monkeypatch.setattr(GuardedRuns, "run", refuse)
    found = _measure(measurer, _EXP, [Schedule()])
    assert found[0].outcome is Outcome.RUNTIME
    assert "refused" in found[0].detail


def test_failing_linker_is_an_error_of_the_call(
    measurer: CandidateMeasurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise BuildError("linking kernels", "cc failed")

    monkeypatch.setattr(Toolchain, "run", fail)
    with pytest.raises(BuildError, match="cc failed"):
        _measure(measurer, _EXP, [Schedule()])


def test_baseline_is_built_once_for_a_workload(
    measurer: CandidateMeasurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []
    original = candidates.workload_model

    def counted(workload: Workload, **how: Any) -> object:
        built.append(workload)
        return original(workload, **how)

    monkeypatch.setattr(candidates, "workload_model", counted)
    other = chain_workload(("Tanh",))
    for workload in (_EXP, _EXP, other, other):
        _measure(measurer, workload, [Schedule()])
    assert built == [_EXP, other]


def test_large_constants_lie_in_a_file_as_long_as_they_are_measured_with(
    measurer: CandidateMeasurer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    product = matrix_product(columns=64)
    seen: list[int] = []
    constant_bytes = 4 * product.inputs[1].size
    assert product.inputs[1].constant
    monkeypatch.setattr(candidates, "_OUTSIDE_BYTES", constant_bytes)
    original = candidates.candidate_model

    def watched(model: onnx.ModelProto, source: KernelSource) -> onnx.ModelProto:
        seen.append(model.ByteSize())
        return original(model, source)

    monkeypatch.setattr(candidates, "candidate_model", watched)
    found = _measure(measurer, product, [Schedule()])
    assert found[0].outcome is Outcome.CORRECT, found[0].detail
    assert seen[0] < constant_bytes
    assert [file.stat().st_size for file in tmp_path.glob("*.bin")] == [constant_bytes]
    _measure(measurer, _EXP, [Schedule()])
    assert not list(tmp_path.glob("*.bin"))


def test_clear_loser_is_dropped_after_the_race(measurer: CandidateMeasurer) -> None:
    policy = MeasurePolicy(pairs_min=20, pairs_max=20, warmup=0, race_pairs=3, sample_min_us=0)
    found = _measure(measurer, _EXP, [Schedule()], policy=policy, best_ratio=1e6)
    assert found[0].is_correct
    assert len(found[0].tuned_us) == 3


def test_objects_of_measured_candidates_are_removed(
    measurer: CandidateMeasurer, tmp_path: Path, target: Target
) -> None:
    _measure(measurer, _EXP, schedules_of(_EXP, target, 2))
    assert all(file.name.startswith("aoe_") for file in tmp_path.glob("*.o"))  # the glue
    assert not list(tmp_path.glob("*.c"))


def test_constant_operands_are_part_of_the_candidate_model(measurer: CandidateMeasurer) -> None:
    big = TensorSpec(shape=(1, 8, 16, 16))
    slope = TensorSpec(shape=(8, 1, 1), constant=True)
    workload = Workload(
        op_type="elementwise",
        inputs=(big, slope),
        scalars=(0.5,),
        operations=(
            Operation(op_type="PRelu", version=16, inputs=("x0", "x1"), output="t0"),
            Operation(op_type="Mul", version=14, inputs=("t0", "s0"), output="t1"),
        ),
        output=big,
    )
    assert _measure(measurer, workload, [Schedule()])[0].outcome is Outcome.CORRECT


def test_samples_are_positive_times(measurer: CandidateMeasurer) -> None:
    (found,) = _measure(measurer, _EXP, [Schedule()])
    assert np.all(np.array(found.tuned_us) > 0)
