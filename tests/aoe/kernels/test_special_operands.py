"""Every pair and triple of special values at the operands of an operator, in both float types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from onnx import TensorProto
from support.contracts.kernels import (
    CompiledKernel,
    assert_close,
    guessed_schedules,
    operation,
    plain,
    run_baseline,
)
from support.tiers import few_every_day

from aoe.kernels.registry import classify
from aoe.workload import Operation, Workload

_SPECIALS = (
    *(np.nan, np.inf, -np.inf, 0.0, -0.0, 6e-8, 0.5, 1.0, -1.0, 2.5, -2.5, 3.0, 100.0, -100.0),
)
_OPERANDS: Mapping[str, int] = {
    **dict.fromkeys(("Max", "Min", "Pow", "Add", "Sub", "Mul", "Div", "PRelu"), 2),
    **{f"{name} of 3": 3 for name in ("Max", "Min", "Mean", "Sum")},
    **dict.fromkeys(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"), 2),
    **dict.fromkeys(("IsNaN", "Log", "Sqrt", "Exp", "Relu", "Sign", "Sin", "Reciprocal"), 1),
}
_AS_FLOAT16 = ("Max", "Min", "Max of 3", "Min of 3", "Relu")
"""Computed by ONNX Runtime on float16 itself; others stand between casts there."""
_TESTS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "IsNaN")


def _workload(label: str, dtype: str, size: int, *, cast: bool) -> Workload:
    """Return an operator of inputs of a type, and `Abs` behind it, which keeps every NaN."""
    op_type, count = label.partition(" ")[0], _OPERANDS[label]
    operands = [f"x{at}" for at in range(count)]
    operations: list[Operation] = []

    def add(name: str, inputs: str, **attributes: int) -> str:
        made = f"t{len(operations)}"
        operations.append(operation(name, inputs, made, **attributes))
        return made

    if cast:
        operands = [add("Cast", one, to=TensorProto.FLOAT) for one in operands]
    made = add(op_type, " ".join(operands))
    if op_type in _TESTS:
        made = add("Where", f"{made} s0 s1")
    made = add("Abs", made)
    if cast:
        add("Cast", made, to=TensorProto.FLOAT16)
    found = classify(
        Workload(
            op_type="any",
            inputs=(plain(size, dtype=dtype),) * count,
            scalars=(1.0, 0.0),
            operations=tuple(operations),
            output=plain(size, dtype=dtype),
        )
    )
    assert isinstance(found, Workload), found
    return found


def _grid(count: int, dtype: str) -> Mapping[str, np.ndarray]:
    every = np.meshgrid(*[np.array(_SPECIALS).astype(dtype)] * count, indexing="ij")
    return {f"x{at}": one.reshape(-1).copy() for at, one in enumerate(every)}


_CASES: Sequence[tuple[str, str, bool]] = [
    *((label, "float16", False) for label in _AS_FLOAT16),
    *((label, "float16", True) for label in _OPERANDS),
    *((label, "float32", False) for label in _OPERANDS),
]


@pytest.mark.parametrize(("label", "dtype", "cast"), few_every_day(_CASES, 13))
def test_special_values_meet_at_every_operand_as_in_onnx_runtime(
    label: str, dtype: str, cast: bool
) -> None:
    feed = _grid(_OPERANDS[label], dtype)
    workload = _workload(label, dtype, feed["x0"].size, cast=cast)
    run = run_baseline(workload, feed)
    kernel = CompiledKernel(workload, guessed_schedules(workload)[0])
    assert_close(workload, kernel.run(run.inputs), run.result, label)


def test_nan_that_arithmetic_has_made_is_kept_by_what_follows() -> None:
    """ONNX Runtime makes NaN of Gelu(-inf)."""
    feed = _grid(2, "float32")
    spec = plain(feed["x0"].size)
    found = classify(
        Workload(
            op_type="any",
            inputs=(spec, spec),
            operations=(operation("Gelu", "x0", "t0"), operation("Max", "x1 t0", "t1")),
            output=spec,
        )
    )
    assert isinstance(found, Workload)
    run = run_baseline(found, feed)
    assert np.isnan(run.result[np.isneginf(feed["x0"])]).all()
    assert_close(found, CompiledKernel(found).run(run.inputs), run.result, "Max of Gelu")


_LOWERED = np.linspace(-104.5, -80, 333).astype(np.float32)
_DENORMAL_CASES: Mapping[str, tuple[Operation, tuple[int, ...]]] = {
    "Exp": (operation("Exp", "x0"), (333,)),
    "Pow": (operation("Pow", "s0 x0"), (333,)),
    "Softplus": (operation("Softplus", "x0"), (333,)),
    "Softmax of rows": (operation("Softmax", "x0", axis=-1), (333, 2)),
    "Softmax of columns": (operation("Softmax", "x0", axis=0), (2, 333)),
}


@pytest.mark.parametrize("label", _DENORMAL_CASES)
def test_result_below_the_normal_numbers_is_no_zero(label: str) -> None:
    """A Log in another kernel makes -inf of a zero, where ONNX Runtime has -95."""
    one, shape = _DENORMAL_CASES[label]
    given = plain(*shape)
    workload = classify(
        Workload(
            op_type="any",
            inputs=(given,),
            scalars=(float(np.float32(np.e)),) if label == "Pow" else (),
            operations=(one,),
            output=given,
        )
    )
    assert isinstance(workload, Workload), workload
    lowered = np.zeros(shape, np.float32)
    others = 1 if shape[0] == 2 else (slice(None), 1)
    lowered[others if len(shape) > 1 else ...] = _LOWERED
    kernel = CompiledKernel(workload, guessed_schedules(workload)[0])
    found = kernel.run({"x0": lowered}).astype(np.float64)
    base = np.float64(np.float32(np.e)) if label == "Pow" else np.e
    wanted = base ** lowered.astype(np.float64)
    allowed = 2e-6 * wanted + 2.0**-149
    assert np.all(np.abs(found - wanted)[wanted < 0.5] <= allowed[wanted < 0.5])
