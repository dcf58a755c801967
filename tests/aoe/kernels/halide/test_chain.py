"""What a chain may hold."""

from __future__ import annotations

import pytest

from aoe.kernels.halide.chain import check_chain, estimate_cycles
from aoe.workload import NCHWC_DOMAIN, Operation


def make(op_type: str, inputs: str, output: str = "t0", **fields: object) -> Operation:
    return Operation(
        op_type=op_type,
        domain=str(fields.pop("domain", "")),
        version=int(str(fields.pop("version", 16))),
        inputs=tuple("" if ref == "-" else ref for ref in inputs.split()),
        output=output,
        attributes=fields,  # type: ignore[arg-type]
    )


CONV = {
    "domain": NCHWC_DOMAIN,
    "kernel_shape": (1, 1),
    "strides": (1, 1),
    "pads": (0, 0, 0, 0),
    "dilations": (1, 1),
    "group": 16,
}


@pytest.mark.parametrize(
    ("operations", "reason"),
    [
        ([make("MatMul", "x0 x1")], "MatMul is not element-wise"),
        ([make("Add", "x0 x1", version=6)], "Add version 6 broadcasts by other rules"),
        ([make("Add", "x0")], "Add with 1 input"),
        ([make("Add", "x0 -")], "Add with 2 inputs"),
        ([make("Less", "x0 x1")], "Less makes booleans, kernels return float32"),
        ([make("Not", "x0")], "Not reads a number as input 0"),
        ([make("Where", "x0 x1 x2")], "Where reads a number as input 0"),
        (
            [make("Less", "x0 x1"), make("Exp", "t0", "t1")],
            "Exp reads a boolean as input 0",
        ),
        (
            [make("BatchNormalization", "x0 x1 x2 x3 x4", training_mode=1)],
            "BatchNormalization in training mode",
        ),
        (
            [make("BatchNormalization", "x0 x1 x2 x3 x4", version=7, spatial=0)],
            "BatchNormalization per activation (spatial = 0)",
        ),
        ([make("Dropout", "x0 s0 s1")], "Dropout with a training mode"),
        ([make("Dropout", "x0 x1")], "Dropout with a ratio or a mode that is computed"),
        ([make("Conv", "x0 x1", **{**CONV, "strides": (2, 1)})], "Conv with strides (2, 1)"),
        ([make("Conv", "x0 x1", **{**CONV, "pads": (0, 1, 0, 0)})], "Conv with pads (0, 1, 0, 0)"),
        ([make("Conv", "x0 x1", **{**CONV, "group": 1})], "Conv that sums over channels"),
        ([make("Conv", "x0 x1 x2 x3 x4", **CONV)], "Conv with 5 inputs"),
        ([make("Conv", "x0 x1", activation="Swishy", **CONV)], "Conv with activation Swishy"),
        (
            [make("Conv", "x0 x1", activation="Clip", activation_params=(0.0,), **CONV)],
            "Conv with activation Clip without its parameters",
        ),
        ([make("Conv", "x0 x1")], "Conv is not element-wise"),
        ([make("Conv", "x0 x1", auto_pad="SAME_UPPER", **CONV)], "Conv with automatic padding"),
    ],
)
def test_refusal_says_why(operations: list[Operation], reason: str) -> None:
    support = check_chain(operations)
    assert not support
    assert support.reason == reason


def test_booleans_may_stay_inside() -> None:
    chain = [make("Less", "x0 x1"), make("Not", "t0", "t1"), make("Where", "t1 x0 x1", "t2")]
    assert check_chain(chain)


def test_cheap_power_costs_less_than_a_general_one() -> None:
    assert estimate_cycles([make("Pow", "x0 s0")]) < estimate_cycles([make("Pow", "x0 x1")])


def test_reorders_cost_nothing() -> None:
    assert estimate_cycles([make("ReorderInput", "x0", domain=NCHWC_DOMAIN)]) == 0
