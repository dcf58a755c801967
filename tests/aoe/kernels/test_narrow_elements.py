"""Kernels that read and make float16 and 8-bit levels, and compute in float32 in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from onnx import TensorProto
from support.contracts.kernels import (
    SEED,
    CompiledKernel,
    KernelFamilyTests,
    operation,
    plain,
    run_baseline,
)

from aoe.graph.workload_model import random_inputs, special_inputs
from aoe.kernels.registry import classify, get_family
from aoe.workload import Operation, TensorSpec, Workload

HALF, SINGLE = TensorProto.FLOAT16, TensorProto.FLOAT


def half(*shape: int, constant: bool = False) -> TensorSpec:
    return plain(*shape, constant=constant, dtype="float16")


def byte(*shape: int, constant: bool = False) -> TensorSpec:
    return plain(*shape, constant=constant, dtype="uint8")


def signed(*shape: int, constant: bool = False) -> TensorSpec:
    return plain(*shape, constant=constant, dtype="int8")


def make(
    family: str,
    inputs: Sequence[TensorSpec],
    output: TensorSpec,
    *operations: Operation,
    scalars: tuple[float, ...] = (),
) -> Workload:
    return Workload(
        op_type=family,
        inputs=tuple(inputs),
        scalars=scalars,
        operations=operations,
        output=output,
    )


def widened(family: str, given: TensorSpec, made: TensorSpec, op_type: str, **at: int) -> Workload:
    """Return an operator of float16 as ONNX Runtime computes it: between two casts."""
    return make(
        family,
        [given],
        made,
        operation("Cast", "x0", "t0", to=SINGLE),
        operation(op_type, "t0", "t1", **at),
        operation("Cast", "t1", "t2", to=HALF),
    )


def between_levels(op_type: str, levels: TensorSpec, zero: TensorSpec) -> Workload:
    return make(
        "elementwise",
        [levels, zero],
        levels,
        operation("DequantizeLinear", "x0 s0 x1", "t0"),
        operation(op_type, "t0", "t1"),
        operation("QuantizeLinear", "t1 s1 x1", "t2"),
        scalars=(0.037, 0.0113),
    )


SUM = make(
    "elementwise",
    [half(2, 5, 3, 7), half(5, 1, 1)],
    half(2, 5, 3, 7),
    operation("Cast", "x0", "t0", to=SINGLE),
    operation("Cast", "x1", "t1", to=SINGLE),
    operation("Add", "t0 t1", "t2"),
    operation("Cast", "t2", "t3", to=HALF),
)
ROUNDED_INSIDE = make(
    "elementwise",
    [half(3, 37), plain(3, 37)],
    plain(3, 37),
    operation("Cast", "x0", "t0", to=SINGLE),
    operation("Mul", "t0 x1", "t1"),
    operation("Cast", "t1", "t2", to=HALF),
    operation("Cast", "t2", "t3", to=SINGLE),
    operation("Mul", "t3 x1", "t4"),
)
PER_CHANNEL = make(
    "elementwise",
    [plain(2, 6, 5, 5), plain(6, constant=True), byte(6, constant=True)],
    byte(2, 6, 5, 5),
    operation("QuantizeLinear", "x0 x1 x2", "t0", axis=1),
)
PER_COLUMN = make(
    "elementwise",
    [signed(2, 5, 9), plain(9, constant=True), signed(9, constant=True)],
    plain(2, 5, 9),
    operation("DequantizeLinear", "x0 x1 x2", "t0", axis=-1),
)
SIGMOID_GATED = make(
    "elementwise",
    [byte(2, 2100), byte(), plain(), plain(), byte()],
    byte(2, 2100),
    operation("DequantizeLinear", "x0 s0 x1", "t0"),
    operation("Sigmoid", "t0", "t1"),
    operation("QuantizeLinear", "t1 x2 x1", "t2"),
    operation("DequantizeLinear", "t2 x2 x1", "t3"),
    operation("Mul", "t0 t3", "t4"),
    operation("QuantizeLinear", "t4 x3 x4", "t5"),
    scalars=(0.04,),
)
NO_ZERO_POINT = make(
    "elementwise",
    [plain(513)],
    byte(513),
    operation("QuantizeLinear", "x0 s0", "t0"),
    scalars=(0.013,),
)


class TestElementwise(KernelFamilyTests):
    family_name = "elementwise"
    cases: Mapping[str, Workload] = {
        "widened": make("elementwise", [half(3, 37)], plain(3, 37), operation("Cast", "x0", to=1)),
        "narrowed": make("elementwise", [plain(999)], half(999), operation("Cast", "x0", to=HALF)),
        "sigmoid": widened("elementwise", half(4, 33), half(4, 33), "Sigmoid"),
        "sum": SUM,
        "rounded inside": ROUNDED_INSIDE,
        "clipped as float16": make(
            "elementwise", [half(7, 19), half(), half()], half(7, 19), operation("Clip", "x0 x1 x2")
        ),
        "levels, relu": between_levels("Relu", byte(3, 37), byte(constant=True)),
        "levels, hard swish": between_levels(
            "HardSwish", signed(2, 8, 5, 5), signed(constant=True)
        ),
        "levels looked up, hard swish": between_levels(
            "HardSwish", signed(1, 73, 8, 9), signed(constant=True)
        ),
        "levels looked up, gated": SIGMOID_GATED,
        "levels, gate made first": make(
            "elementwise",
            [signed(2, 9, 7, 19), signed(2, 1, 1, 19), signed()],
            signed(2, 9, 7, 19),
            operation("DequantizeLinear", "x1 s0 x2", "t0"),
            operation("HardSigmoid", "t0", "t1"),
            operation("QuantizeLinear", "t1 s1 x2", "t2"),
            operation("DequantizeLinear", "t2 s1 x2", "t3"),
            operation("DequantizeLinear", "x0 s0 x2", "t4"),
            operation("Mul", "t3 t4", "t5"),
            operation("QuantizeLinear", "t5 s0 x2", "t6"),
            scalars=(0.05, 0.01),
        ),
        "scale of each channel": PER_CHANNEL,
        "scale of each column": PER_COLUMN,
        "no zero point": NO_ZERO_POINT,
    }


class TestLayerNormalization(KernelFamilyTests):
    family_name = "layer_normalization"
    cases: Mapping[str, Workload] = {
        "of float16": make(
            "layer_normalization",
            [half(6, 77), half(77, constant=True), half(77, constant=True)],
            half(6, 77),
            operation("LayerNormalization", "x0 x1 x2", "t0", axis=-1),
        ),
        "of float16, then wider": make(
            "layer_normalization",
            [half(6, 77), half(77, constant=True), plain(77)],
            plain(6, 77),
            operation("LayerNormalization", "x0 x1", "t0", axis=-1),
            operation("Cast", "t0", "t1", to=SINGLE),
            operation("Mul", "t1 x2", "t2"),
        ),
    }


class TestSoftmax(KernelFamilyTests):
    family_name = "softmax_rows"
    cases: Mapping[str, Workload] = {
        "between casts": widened("softmax_rows", half(6, 77), half(6, 77), "Softmax", axis=-1)
    }


class TestReductions(KernelFamilyTests):
    family_name = "reductions"
    cases: Mapping[str, Workload] = {
        "mean of pixels": widened(
            "reductions", half(2, 9, 5, 7), half(2, 9, 1, 1), "GlobalAveragePool"
        )
    }


_WINDOW = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}


class TestPooling(KernelFamilyTests):
    family_name = "pooling"
    cases: Mapping[str, Workload] = {
        "largest level": make(
            "pooling", [byte(1, 4, 9, 9)], byte(1, 4, 5, 5), operation("MaxPool", "x0", **_WINDOW)
        ),
        "mean, narrowed": make(
            "pooling",
            [plain(1, 4, 9, 9)],
            half(1, 4, 5, 5),
            operation("AveragePool", "x0", "t0", **_WINDOW),
            operation("Cast", "t0", "t1", to=HALF),
        ),
    }


class TestMovement(KernelFamilyTests):
    family_name = "movement"
    cases: Mapping[str, Workload] = {
        "turned, widened, chain": make(
            "movement",
            [half(24, 40)],
            plain(40, 24),
            operation("Transpose", "x0", "t0", perm=(1, 0)),
            operation("Cast", "t0", "t1", to=SINGLE),
            operation("Relu", "t1", "t2"),
        ),
        "turned levels": make(
            "movement",
            [byte(24, 40), byte(constant=True)],
            plain(40, 24),
            operation("Transpose", "x0", "t0", perm=(1, 0)),
            operation("DequantizeLinear", "t0 s0 x1", "t1"),
            scalars=(0.05,),
        ),
    }


@pytest.mark.parametrize("workload", [SUM, ROUNDED_INSIDE, PER_CHANNEL, PER_COLUMN, NO_ZERO_POINT])
def test_every_bit_is_that_of_onnx_runtime(workload: Workload) -> None:
    kernel = CompiledKernel(workload)
    for feed in (random_inputs(workload, SEED), special_inputs(workload, SEED)):
        run = run_baseline(workload, feed)
        found = kernel.run(run.inputs)
        assert np.array_equal(found, run.result, equal_nan=found.dtype.kind == "f")


def test_every_float16_is_read_as_it_is() -> None:
    """Denormals, infinities and signed zeros among them."""
    everything = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    widen = make("elementwise", [half(1 << 16)], plain(1 << 16), operation("Cast", "x0", to=SINGLE))
    found = CompiledKernel(widen).run({"x0": everything})
    assert np.array_equal(found, everything.astype(np.float32), equal_nan=True)


def test_float16_is_rounded_to_the_nearest_ties_to_even() -> None:
    ties = np.array([65504, 65519.9, 65520, -65520, 2049, 2051, 2.0**-25, 1.5 * 2.0**-24, 1e-30])
    ties = np.concatenate([ties, -ties, [np.inf, -np.inf, np.nan, -0.0]]).astype(np.float32)
    narrow = make("elementwise", [plain(22)], half(22), operation("Cast", "x0", to=HALF))
    with np.errstate(over="ignore"):
        expected = ties.astype(np.float16)
    found = CompiledKernel(narrow).run({"x0": ties})
    assert np.array_equal(found, expected, equal_nan=True)
    assert np.array_equal(np.signbit(found)[:-2], np.signbit(expected)[:-2])


def test_levels_are_saturated_and_rounded_half_to_even() -> None:
    workload = make(
        "elementwise",
        [plain(10), signed(constant=True)],
        signed(10),
        operation("QuantizeLinear", "x0 s0 x1", "t0"),
        scalars=(0.5,),
    )
    x = np.array([0.25, 0.75, -0.25, 1.25, 80, -80, 1e30, -np.inf, np.inf, np.nan], np.float32)
    found = CompiledKernel(workload).run({"x0": x, "x1": np.array(3, np.int8)})
    assert found.tolist() == [3, 5, 3, 5, 127, -128, 127, -128, 127, -128]


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        (
            make("elementwise", [byte(8)], byte(8), operation("Clip", "x0")),
            "elementwise: Clip of uint8, kernels compute in float32",
        ),
        (
            make("elementwise", [plain(8)], byte(8), operation("Cast", "x0", to=TensorProto.UINT8)),
            "elementwise: Cast makes another type",
        ),
        (
            make("elementwise", [half(8), half()], half(8), operation("Clip", "x0 x1")),
            "elementwise: Clip of float16 to all its numbers",
        ),
        (
            make("elementwise", [half(8), plain(8)], half(8), operation("Max", "x0 x1")),
            "elementwise: Max of float16 and float32",
        ),
        (
            make(
                "elementwise",
                [byte(4, 8), plain(4, 2, constant=True)],
                plain(4, 8),
                operation("DequantizeLinear", "x0 x1", "t0", block_size=4),
            ),
            "elementwise: DequantizeLinear with block_size",
        ),
        (
            make(
                "elementwise",
                [byte(4, 8), plain(8, constant=True)],
                plain(4, 8),
                operation("DequantizeLinear", "x0 x1", "t0", axis=0),
            ),
            "elementwise: DequantizeLinear of (4, 8) has (8,) as x1",
        ),
        (
            make("lrn", [half(1, 8, 4, 4)], half(1, 8, 4, 4), operation("LRN", "x0", size=5)),
            "lrn: tensor 0 is float16, kernels compute in float32",
        ),
    ],
)
def test_what_no_kernel_reads_or_makes_says_why(workload: Workload, reason: str) -> None:
    found = classify(workload)
    assert isinstance(found, str)
    assert found.startswith(reason)
    assert not get_family(workload.op_type).supports(workload)
