"""Each operator alone, against ONNX Runtime and the ONNX reference."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from support.contracts.kernels import (
    SEED,
    CompiledKernel,
    assert_close,
    operation,
    plain,
    run_baseline,
)
from support.tiers import few_every_day

from aoe.graph.workload_model import random_inputs, special_inputs
from aoe.kernels.elementwise_ops import ELEMENTWISE_OPS
from aoe.kernels.registry import get_family
from aoe.operators import MICROSOFT_DOMAIN, OPERATORS, OperatorKind, Signature, op_key
from aoe.operators.quantised import CONCAT_OF_LEVELS
from aoe.workload import NCHWC_DOMAIN, Operation, TensorSpec, Workload

IMAGE = plain(2, 5, 3, 17)
CHANNEL = plain(5, constant=True)


def make(
    *operations: Operation,
    inputs: tuple[TensorSpec, ...] = (IMAGE,),
    scalars: tuple[float, ...] = (),
) -> Workload:
    return Workload(
        op_type="elementwise",
        inputs=inputs,
        scalars=scalars,
        operations=operations,
        output=IMAGE,
    )


def select_by(*conditions: Operation) -> Workload:
    """Return a workload that selects one of two inputs by the last of some conditions."""
    where = operation("Where", f"{conditions[-1].output} x0 x1", "t9")
    return make(*conditions, where, inputs=(IMAGE, IMAGE))


UNARY = [
    "Abs",
    "Ceil",
    "Cos",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "LeakyRelu",
    "Log",
    "Mish",
    "Neg",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Sigmoid",
    "Sign",
    "Sin",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Tanh",
    "ThresholdedRelu",
    "Shrink",
    "Dropout",
    "Gelu",
]
BINARY = ["Add", "Sub", "Mul", "Div", "Pow", "PRelu"]
VARIADIC = ["Min", "Max", "Sum", "Mean"]
COMPARISONS = ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"]
MICROSOFT = ["Gelu", "FastGelu", "QuickGelu"]

CASES: Mapping[str, Workload] = {
    **{name: make(operation(name, "x0")) for name in UNARY},
    **{name: make(operation(name, "x0 x1"), inputs=(IMAGE, IMAGE)) for name in BINARY},
    **{
        f"{name} of 3": make(operation(name, "x0 x1 x2"), inputs=(IMAGE, IMAGE, plain(5, 1, 1)))
        for name in VARIADIC
    },
    **{f"{name} of 1": make(operation(name, "x0")) for name in VARIADIC},
    **{name: select_by(operation(name, "x0 x1", "t0")) for name in COMPARISONS},
    **{
        f"Pow {exponent}": make(operation("Pow", "x0 s0"), scalars=(exponent,))
        for exponent in (0.0, 1.0, 2.0, 3.0, 4.0, 0.5, -0.5, -1.0, 0.75, 2.2)
    },
    **{
        f"Microsoft {name}": make(operation(name, "x0", domain=MICROSOFT_DOMAIN))
        for name in MICROSOFT
    },
    "BiasGelu": make(
        operation("BiasGelu", "x0 x1", domain=MICROSOFT_DOMAIN), inputs=(IMAGE, plain(17))
    ),
    "FastGelu with bias": make(
        operation("FastGelu", "x0 x1", domain=MICROSOFT_DOMAIN), inputs=(IMAGE, plain(17))
    ),
    "QuickGelu of alpha 1": make(operation("QuickGelu", "x0", domain=MICROSOFT_DOMAIN, alpha=1.0)),
    "IsNaN": select_by(operation("IsNaN", "x0", "t0")),
    "And": select_by(
        operation("Less", "x0 x1", "t0"),
        operation("Not", "t0", "t1"),
        operation("Greater", "x1 x0", "t2"),
        operation("And", "t1 t2", "t3"),
    ),
    "Or": select_by(
        operation("Less", "x0 x1", "t0"),
        operation("IsNaN", "x1", "t1"),
        operation("Or", "t0 t1", "t2"),
    ),
    "Xor": select_by(
        operation("Less", "x0 x1", "t0"),
        operation("IsNaN", "x0", "t1"),
        operation("Xor", "t0 t1", "t2"),
    ),
    "Celu": make(operation("Celu", "x0", version=12, alpha=1.5)),
    "Elu with alpha": make(operation("Elu", "x0", alpha=0.3)),
    "Gelu tanh": make(operation("Gelu", "x0", approximate="tanh")),
    "HardSigmoid with attributes": make(operation("HardSigmoid", "x0", alpha=0.5, beta=0.1)),
    "LeakyRelu with alpha": make(operation("LeakyRelu", "x0", alpha=-0.2)),
    "Selu with attributes": make(operation("Selu", "x0", alpha=0.7, gamma=2.0)),
    "Shrink with attributes": make(operation("Shrink", "x0", bias=0.2, lambd=0.7)),
    "ThresholdedRelu with alpha": make(operation("ThresholdedRelu", "x0", alpha=0.3)),
    "Clip without limits": make(operation("Clip", "x0")),
    "Clip both": make(operation("Clip", "x0 s0 s1"), scalars=(-0.5, 0.7)),
    "Clip above": make(operation("Clip", "x0 - s0"), scalars=(0.7,)),
    "Clip below": make(operation("Clip", "x0 s0"), scalars=(-0.5,)),
    "Clip crossed": make(operation("Clip", "x0 s0 s1"), scalars=(0.7, -0.5)),
    "Clip by attributes": make(operation("Clip", "x0", version=6, min=-0.5, max=0.7)),
    "Clip above by attribute": make(operation("Clip", "x0", version=6, max=0.7)),
    "Dropout with ratio": make(operation("Dropout", "x0 s0"), scalars=(0.5,)),
    "BatchNormalization": make(
        operation("BatchNormalization", "x0 x1 x2 x3 x4", epsilon=1e-3),
        inputs=(IMAGE, *(CHANNEL,) * 4),
    ),
    "BatchNormalization version 9": make(
        operation("BatchNormalization", "x0 x1 x2 x3 x4", version=9),
        inputs=(IMAGE, *(CHANNEL,) * 4),
    ),
}
NO_REFERENCE = {
    "Dropout",  # the reference makes a second result
    "Dropout with ratio",
    "BatchNormalization version 9",  # the reference trains if there is a momentum, a default
}


@pytest.mark.parametrize("name", CASES)
def test_operator_computes_what_onnx_runtime_does(name: str) -> None:
    workload = CASES[name]
    assert get_family("elementwise").supports(workload).reason == ""
    kernel = CompiledKernel(workload)
    for feed in (random_inputs(workload, SEED), special_inputs(workload, SEED)):
        run = run_baseline(workload, feed)
        assert_close(workload, kernel.run(run.inputs), run.result, name)


@pytest.mark.parametrize(
    "name",
    few_every_day(
        [n for n, w in CASES.items() if n not in NO_REFERENCE and not w.operations[0].domain], 8
    ),
)
def test_operator_computes_what_the_onnx_reference_does(name: str) -> None:
    workload = CASES[name]
    feed = random_inputs(workload, SEED)
    run = run_baseline(workload, feed)
    expected = ReferenceEvaluator(run.model).run(None, dict(feed))
    assert isinstance(expected, list)
    actual = CompiledKernel(workload).run(run.inputs)
    reference = np.asarray(expected[0], dtype=np.float32)
    assert_close(workload, actual, reference, name)


def test_swish_is_x_times_sigmoid() -> None:
    workload = make(operation("Swish", "x0", version=24, alpha=0.7))
    x = random_inputs(workload, SEED)["x0"]
    expected = x / (1 + np.exp(-0.7 * x.astype(np.float64)))
    assert_close(workload, CompiledKernel(workload).run({"x0": x}), expected, "Swish")


def test_every_operator_of_the_table_is_tested_here() -> None:
    """Those that change the element type are in `test_narrow_elements.py`, those of levels in
    `test_quantised_elementwise.py`."""
    tested = {op_key(op) for workload in CASES.values() for op in workload.operations}
    elsewhere = {
        key
        for key in ELEMENTWISE_OPS
        if (signature := OPERATORS[key].signature).converts or signature is Signature.LEVELS
    }
    assert set(ELEMENTWISE_OPS) - tested - elsewhere == {("", "Swish"), (NCHWC_DOMAIN, "Conv")}


def test_every_elementwise_operator_has_a_builder_and_a_row() -> None:
    rows = {key for key, facts in OPERATORS.items() if facts.kind is OperatorKind.ELEMENTWISE}
    assert rows - {CONCAT_OF_LEVELS} == set(ELEMENTWISE_OPS)  # that one has a family of its own


@pytest.mark.parametrize("key", ELEMENTWISE_OPS)
def test_every_operator_costs_something(key: tuple[str, str]) -> None:
    assert ELEMENTWISE_OPS[key].cycles > 0
