"""Candidates: compiled, checked against ONNX Runtime, timed; each failure has its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto
from support.contracts.kernels import operation, plain
from support.engine.families import Substituted, chain_workload, schedules_of
from support.engine.tuning import matrix_product

from aoe.device.compiler import KernelSource
from aoe.device.cpu.device import Cpu
from aoe.device.toolchain import Toolchain
from aoe.errors import BuildError, RunError
from aoe.execute.candidates import CandidateMeasurer
from aoe.execute.idle_gate import QuietPairs
from aoe.execute.messages import CompiledKernels
from aoe.kernels.family import KernelTarget
from aoe.kernels.host_products import HOST_NARROW_INT8
from aoe.kernels.registry import FAMILIES, classify
from aoe.measurement import (
    CpuUse,
    MachineLoad,
    Measurement,
    MeasurePolicy,
    Outcome,
    PairedSamples,
)
from aoe.ort.thread_pools import ThreadPool
from aoe.schedule import Schedule, Split, Vectorize
from aoe.target import Target
from aoe.workload import KERNEL_DOMAIN, Operation, Precision, TensorSpec, Workload

CPU = Cpu()
_QUICK = MeasurePolicy(pairs_min=5, pairs_max=5, warmup=0, sample_min_us=0, least_quiet=0)
_EXP = chain_workload(("Exp",))
_ILLEGAL = Schedule((Vectorize("nowhere", "x", 8),))
_NO_COMPILER = Toolchain(command=("false",))


@dataclass(frozen=True, slots=True)
class _WatchedCpu(Cpu):
    """The CPU; it notes the models it loads, and refuses kernels where it is told to."""

    opened: list[onnx.ModelProto] = field(default_factory=list)
    refuses_kernels: bool = False

    def open_session(
        self, model: bytes | Path, options: ort.SessionOptions
    ) -> ort.InferenceSession:
        data = model.read_bytes() if isinstance(model, Path) else model
        self.opened.append(onnx.load_model_from_string(data))
        if self.refuses_kernels and _has_kernel(self.opened[-1]):
            raise RunError("model", "refused")
        return Cpu.open_session(self, model, options)


def _has_kernel(model: onnx.ModelProto) -> bool:
    return any(node.domain == KERNEL_DOMAIN for node in model.graph.node)


def _measurer(
    directory: Path, target: Target, toolchain: Toolchain, device: Cpu = CPU, **how: Any
) -> CandidateMeasurer:
    """Return a measurer in this process, so that families can be replaced.

    Its sessions have pools of their own: a process with the shared pool refuses such sessions
    ever after.
    """
    return CandidateMeasurer(
        device=device,
        target=target,
        toolchain=toolchain,
        directory=directory,
        pool=ThreadPool.OWN,
        **{"pairs": QuietPairs(usage=device.usage), **how},
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the scratch folder of the measurer that the module shares."""
    return tmp_path_factory.mktemp("measurer")


@pytest.fixture(scope="module")
def measurer(folder: Path, target: Target, toolchain: Toolchain) -> CandidateMeasurer:
    """Return a measurer that the tests of the module share; it compiles the glue once."""
    return _measurer(folder, target, toolchain)


def _measure(
    measurer: CandidateMeasurer,
    workload: Workload,
    schedules: list[Schedule],
    *,
    policy: MeasurePolicy = _QUICK,
    best_ratio: float | None = None,
) -> list[Measurement]:
    return measurer.measure(workload, schedules, policy=policy, seed=0, best_ratio=best_ratio)


@pytest.fixture(scope="module")
def several(measurer: CandidateMeasurer, target: Target) -> list[Measurement]:
    """Return measurements of three schedules, of the first again, and of an empty schedule."""
    schedules = schedules_of(_EXP, target, 3)
    return _measure(measurer, _EXP, [*schedules, schedules[0], Schedule()])


def test_correct_candidates_are_timed_in_pairs(several: list[Measurement]) -> None:
    found = several[:3]
    assert [m.outcome for m in found] == [Outcome.CORRECT] * 3
    # 3 pairs where a candidate lost the race against a better one, else all 5
    assert all(3 <= len(m.baseline_us) == len(m.tuned_us) <= 5 for m in found)
    assert len({m.tuned_us for m in found}) == 3
    assert all(np.all(np.array(m.tuned_us) > 0) for m in found)


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


def test_unscheduled_kernel_is_a_candidate_too(several: list[Measurement]) -> None:
    assert several[4].outcome is Outcome.CORRECT


def test_equal_schedules_are_measured_once(several: list[Measurement]) -> None:
    assert several[3] == several[0]
    assert several[0].is_correct


@pytest.mark.usefixtures("several")
def test_objects_of_measured_candidates_are_removed(folder: Path) -> None:
    assert all(file.name.startswith("aoe_") for file in folder.glob("*.o"))  # the glue
    assert not list(folder.glob("*.c"))


def test_illegal_schedule_is_a_compile_failure_and_spoils_no_other(
    measurer: CandidateMeasurer, target: Target
) -> None:
    (good,) = schedules_of(_EXP, target, 1)
    bad = [
        _ILLEGAL,
        Schedule((Split("y", "nothing", "a", "b", 8),)),
    ]
    found = _measure(measurer, _EXP, [bad[0], good, bad[1]])
    assert [m.outcome for m in found] == [Outcome.COMPILE, Outcome.CORRECT, Outcome.COMPILE]
    assert "nowhere" in found[0].detail
    assert "nothing" in found[2].detail


def test_only_illegal_schedules_need_no_linker(tmp_path: Path, target: Target) -> None:
    measurer = _measurer(tmp_path, target, _NO_COMPILER)
    assert _measure(measurer, _EXP, [_ILLEGAL])[0].outcome is Outcome.COMPILE


def test_kernel_that_was_not_compiled_in_time_is_a_time_out(
    tmp_path: Path, target: Target, toolchain: Toolchain
) -> None:
    name = KernelSource.of(_EXP, Schedule()).name
    late = CompiledKernels(
        directory=tmp_path, errors={name: "it took too long"}, late=frozenset({name})
    )
    (found,) = _measurer(tmp_path, target, toolchain).measure(
        _EXP, [Schedule()], policy=_QUICK, seed=0, best_ratio=None, compiled=late
    )
    assert (found.outcome, found.detail) == (Outcome.TIMEOUT, "it took too long")


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


@pytest.mark.parametrize("place", [0, 1])
def test_kernel_that_loses_a_nan_onnx_runtime_keeps_is_wrong(
    measurer: CandidateMeasurer, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    spec = plain(16, 33)
    largest = operation("Max", "x0 x1", "t0")
    workload = Workload(
        op_type="elementwise", inputs=(spec, spec), operations=(largest,), output=spec
    )
    assert _measure(measurer, workload, [Schedule()])[0].outcome is Outcome.CORRECT
    lost = (
        largest,
        operation("IsNaN", f"x{place}", "t1"),
        operation("Where", f"t1 x{1 - place} t0", "t2"),
    )
    monkeypatch.setitem(FAMILIES, "elementwise", Substituted(lost))
    found = _measure(measurer, workload, [Schedule()])[0]
    assert found.outcome is Outcome.CORRECTNESS
    assert "instead of nan" in found.detail


@pytest.mark.parametrize(
    ("inputs", "operations", "output"),
    [
        (
            [plain(24, 40, dtype="uint8")],
            [
                operation("Transpose", "x0", "t0", perm=(1, 0)),
                operation("Cast", "t0", "t1", to=TensorProto.FLOAT),
                operation("Sub", "t1 s0", "t2"),
            ],
            plain(40, 24),
        ),
        (
            [plain(6, 9, dtype="uint16")],
            [operation("Transpose", "x0", "t0", perm=(1, 0))],
            plain(9, 6, dtype="uint16"),
        ),
        ([plain(), plain(7)], [operation("Add", "x0 x1", "t0")], plain(7)),
        ([plain()], [operation("Exp", "x0", "t0")], plain()),
    ],
    ids=["image of bytes", "moved uint16", "rank 0 beside rank 1", "rank 0 alone"],
)
def test_every_type_and_rank_a_family_takes_is_measured(
    measurer: CandidateMeasurer,
    inputs: list[TensorSpec],
    operations: list[Operation],
    output: TensorSpec,
) -> None:
    found = classify(
        Workload(
            op_type="any",
            inputs=tuple(inputs),
            scalars=(127.5,),
            operations=tuple(operations),
            output=output,
        )
    )
    assert isinstance(found, Workload)
    (measured,) = _measure(measurer, found, [Schedule()])
    assert measured.outcome is Outcome.CORRECT, measured.detail


def test_kernel_onnxruntime_cannot_run_is_a_runtime_failure(
    tmp_path: Path, target: Target, toolchain: Toolchain
) -> None:
    measurer = _measurer(tmp_path, target, toolchain, _WatchedCpu(refuses_kernels=True))
    found = _measure(measurer, _EXP, [Schedule()])
    assert found[0].outcome is Outcome.RUNTIME
    assert "refused" in found[0].detail


def test_failing_linker_is_an_error_of_the_call(tmp_path: Path, target: Target) -> None:
    with pytest.raises(BuildError, match="false failed with code 1"):
        _measure(_measurer(tmp_path, target, _NO_COMPILER), _EXP, [Schedule()])


def test_baseline_is_built_once_for_a_workload(tmp_path: Path, target: Target) -> None:
    device = _WatchedCpu()
    measurer = _measurer(tmp_path, target, _NO_COMPILER, device)
    for workload in (_EXP, _EXP, chain_workload(("Tanh",)), chain_workload(("Tanh",))):
        _measure(measurer, workload, [_ILLEGAL])
    op_types = [node.op_type for model in device.opened for node in model.graph.node]
    assert [op_type for op_type in op_types if op_type in ("Exp", "Tanh")] == ["Exp", "Tanh"]


def test_large_constants_lie_in_a_file_as_long_as_they_are_measured_with(
    tmp_path: Path, target: Target, toolchain: Toolchain
) -> None:
    product = matrix_product(columns=64)
    constant_bytes = 4 * product.inputs[1].size
    assert product.inputs[1].constant
    device = _WatchedCpu()
    measurer = _measurer(tmp_path, target, toolchain, device, outside_bytes=constant_bytes)
    found = _measure(measurer, product, [Schedule()])
    assert found[0].outcome is Outcome.CORRECT, found[0].detail
    assert _has_kernel(device.opened[-1])
    assert all(model.ByteSize() < constant_bytes for model in device.opened)
    assert [file.stat().st_size for file in tmp_path.glob("*.bin")] == [constant_bytes]
    _measure(measurer, _EXP, [_ILLEGAL])
    assert not list(tmp_path.glob("*.bin"))


def test_clear_loser_is_dropped_after_the_race(measurer: CandidateMeasurer) -> None:
    policy = MeasurePolicy(pairs_min=20, pairs_max=20, warmup=0, race_pairs=3, sample_min_us=0)
    found = _measure(measurer, _EXP, [Schedule()], policy=policy, best_ratio=1e6)
    assert found[0].is_correct
    assert len(found[0].tuned_us) == 3


@dataclass(slots=True, kw_only=True)
class _ScriptedPairs(QuietPairs):
    """Pairs of which all candidates are twice as fast, on a machine that gives so much."""

    given_share: float
    rivals: list[float | None] = field(default_factory=list)

    def take(
        self, baseline: Any, tuned: Any, policy: Any, best_ratio: float | None = None, **_: Any
    ) -> tuple[PairedSamples, MachineLoad]:
        self.rivals.append(best_ratio)
        use = CpuUse(wall_s=1.0, cpu_s=self.given_share, waited_s=1 - self.given_share)
        return PairedSamples((2.0,) * 5, (1.0,) * 5), MachineLoad(use=use)


@pytest.mark.parametrize(("given_share", "rival"), [(1.0, 2.0), (0.5, None)])
def test_candidates_race_against_those_that_count(
    tmp_path: Path, target: Target, toolchain: Toolchain, given_share: float, rival: float | None
) -> None:
    pairs = _ScriptedPairs(usage=CPU.usage, given_share=given_share)
    measurer = _measurer(tmp_path, target, toolchain, pairs=pairs)
    _measure(measurer, _EXP, schedules_of(_EXP, target, 2))
    assert pairs.rivals == [None, rival]


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


@pytest.mark.parametrize("outside_bytes", [1 << 30, 64])
def test_operators_of_onnx_runtime_need_no_compiler(
    target: Target, tmp_path: Path, outside_bytes: int
) -> None:
    """Their weights lie in a file where those of the default do."""
    workload = matrix_product(columns=48, precision=Precision.INT8)
    measurer = _measurer(tmp_path, target, _NO_COMPILER, outside_bytes=outside_bytes)
    (found,) = _measure(measurer, workload, [Schedule((), algorithm=HOST_NARROW_INT8)])
    assert found.outcome is Outcome.CORRECT
    assert bool([*tmp_path.glob("constant_*.bin")]) is (outside_bytes == 64)


# ---- integers that are rounded to the other neighbour ----

_LEVELS = plain(64, 64, dtype="uint8")
_SIGMOID = operation("Sigmoid", "x0", "t0")


def _rounded(*operations: Operation) -> Workload:
    """Return levels of a tensor behind some operators."""
    return Workload(
        op_type="elementwise",
        inputs=(plain(64, 64),),
        scalars=(0.05, 1e-4, 0.02, 0.08),
        operations=operations,
        output=_LEVELS,
    )


def _beside(scalar: str) -> tuple[Operation, ...]:
    added = operation("Add", f"t0 {scalar}", "t1")
    return _SIGMOID, added, operation("QuantizeLinear", "t1 s0", "t2")


@pytest.mark.parametrize(
    ("instead", "outcome", "said"),
    [
        # of a step of 0.05: as it is, by 0.002 of it, by nearly half of it, and by more than one
        (None, Outcome.CORRECT, "0 of "),
        ("s1", Outcome.CORRECT, " values one step off"),
        ("s2", Outcome.CORRECTNESS, " values one step off; of ONNX Runtime's own forms "),
        ("s3", Outcome.CORRECTNESS, " instead of "),
    ],
)
def test_integers_one_step_off_are_counted_and_are_few(
    measurer: CandidateMeasurer,
    monkeypatch: pytest.MonkeyPatch,
    instead: str | None,
    outcome: Outcome,
    said: str,
) -> None:
    workload = _rounded(_SIGMOID, operation("QuantizeLinear", "t0 s0", "t1"))
    if instead is not None:
        monkeypatch.setitem(FAMILIES, "elementwise", Substituted(_beside(instead)))
    found = _measure(measurer, workload, [Schedule()])[0]
    assert found.outcome is outcome
    assert said in (str(found.rounding) if found.is_correct else found.detail)
    if instead == "s1":
        assert found.rounding is not None and 0 < found.rounding.off < 40


def test_more_integers_may_be_off_where_as_many_are_in_onnx_runtimes_own_forms(
    measurer: CandidateMeasurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of these sums lie in the middle of two steps: the fused Add rounds a part otherwise."""
    read = [operation("DequantizeLinear", f"x{at} s0", f"t{at}") for at in (0, 1)]
    added = operation("Add", "t0 t1", "t2")
    workload = Workload(
        op_type="elementwise",
        inputs=(_LEVELS, _LEVELS),
        scalars=(0.05, 0.1),
        operations=(*read, added, operation("QuantizeLinear", "t2 s1", "t3")),
        output=_LEVELS,
    )
    fused = operation("QLinearAdd", "x0 s0 - x1 s0 - s1", "t3", domain="com.microsoft")
    monkeypatch.setitem(FAMILIES, "elementwise", Substituted((fused,)))
    found = _measure(measurer, workload, [Schedule()])[0]
    assert found.outcome is Outcome.CORRECT, found.detail
    assert found.rounding is not None and found.rounding.off > 0.01 * found.rounding.of
