"""Times no kernel is expected to beat."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.contracts.kernels import block_size, operation, plain
from support.engine.convolutions import BLOCK, convolution
from support.engine.fakes import make_target
from support.engine.families import chain_workload

from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import classify, get_family
from aoe.kernels.roofline import (
    MachineRates,
    kept_bytes,
    least_us,
    multiply_adds,
    touched_elements,
)
from aoe.workload import Operation, Precision, TensorSpec, Workload

_RATES = MachineRates(multiply_adds_per_us=1000.0, bytes_per_us=10_000.0)
_TARGET = replace(KernelTarget.of(make_target()), vector_lanes=16, bf16_dot=True)


def _convolution(
    kernel: int, *, group: int = 1, precision: Precision = Precision.FLOAT32
) -> Workload:
    weights = TensorSpec(shape=(32, 32 // group, kernel, kernel), constant=True)
    attributes = {
        "kernel_shape": (kernel, kernel),
        "pads": (kernel // 2,) * 4,
        "strides": (1, 1),
        "dilations": (1, 1),
        "group": group,
    }
    convolution = Operation(
        op_type="Conv", version=11, inputs=("x0", "x1"), output="t0", attributes=attributes
    )
    found = classify(
        Workload(
            op_type="",
            inputs=(plain(1, 32, 24, 24), weights),
            operations=(convolution,),
            output=plain(1, 32, 24, 24),
            precision=precision,
        )
    )
    assert isinstance(found, Workload)
    return found


def _least(workload: Workload, target: KernelTarget = _TARGET) -> float:
    return least_us(workload, get_family(workload.op_type), target, _RATES)


@pytest.mark.parametrize(("kernel", "group"), [(1, 1), (3, 1), (5, 2), (3, 16)])
def test_convolutions_multiply_each_result_by_its_filter(kernel: int, group: int) -> None:
    expected = 32 * 24 * 24 * (32 // group) * kernel**2
    assert multiply_adds(_convolution(kernel, group=group)) == expected


@pytest.mark.parametrize(
    ("left", "right", "count"),
    [((7, 5), (5, 3), 105), ((2, 7, 5), (2, 5, 3), 210), ((1, 5), (5, 3), 15)],
)
def test_matrix_products_multiply_rows_by_columns(
    left: tuple[int, ...], right: tuple[int, ...], count: int
) -> None:
    product = Workload(
        op_type="matmul",
        inputs=(plain(*left), plain(*right)),
        operations=(operation("MatMul", "x0 x1"),),
        output=plain(*left[:-1], right[-1]),
    )
    assert multiply_adds(product) == count


def test_chains_multiply_nothing_and_move_their_tensors() -> None:
    chain = chain_workload(("Exp",), shape=(1, 16, 64, 64))
    assert multiply_adds(chain) == 0
    assert touched_elements(chain) == 2 * 16 * 64 * 64
    assert _least(chain) == pytest.approx(4 * 2 * 65536 / 10_000)


def test_products_last_as_long_as_their_multiply_adds_at_least() -> None:
    pointwise = _convolution(1)
    assert _least(pointwise) == pytest.approx(multiply_adds(pointwise) / 1000)


def test_algorithms_that_save_products_lower_the_roof() -> None:
    square, pointwise = _convolution(3), _convolution(1)
    assert _least(square) < 0.7 * multiply_adds(square) / 1000
    strict = replace(square, precision=Precision.STRICT_FLOAT32)
    assert _least(strict) == pytest.approx(multiply_adds(square) / 1000)
    rounded = replace(pointwise, precision=Precision.BFLOAT16)
    assert _least(rounded) == pytest.approx(multiply_adds(pointwise) / 2000)


def test_a_row_times_a_matrix_lasts_as_long_as_reading_the_matrix() -> None:
    row = Workload(
        op_type="matmul",
        inputs=(plain(1, 512), plain(512, 1024, constant=True)),
        operations=(operation("MatMul", "x0 x1"),),
        output=plain(1, 1024),
    )
    slow = replace(_RATES, bytes_per_us=100.0)
    least = least_us(row, get_family(row.op_type), _TARGET, slow)
    assert least == pytest.approx(4 * (512 + 512 * 1024 + 1024) / 100)


@pytest.mark.skipif(not block_size(), reason="this CPU has no blocked layout")
@pytest.mark.parametrize(("channels", "extent", "is_less"), [(64, 56, True), (512, 7, False)])
def test_transformed_weights_of_many_channels_are_read_longer_than_products_last(
    channels: int, extent: int, is_less: bool
) -> None:
    """As many products both; the roof of bfloat16 is the lower one where images are small."""
    rates = MachineRates(multiply_adds_per_us=118e3, bytes_per_us=90e3)
    known = convolution((extent, extent), blocks=(channels // BLOCK,) * 2)
    transformed, rounded = (
        least_us(replace(known, precision=one), get_family(known.op_type), _TARGET, rates)
        for one in (Precision.FLOAT32, Precision.BFLOAT16)
    )
    assert (transformed < rounded) is is_less


def test_integers_take_a_quarter_of_the_bytes_and_less_than_a_third_of_the_time() -> None:
    rates = MachineRates(multiply_adds_per_us=80_000.0, bytes_per_us=90_000.0)
    target = replace(_TARGET, threads=1, int8_dot=True)
    anchor = operation("DynamicQuantizeMatMul", "x0 x1 x2", domain="com.microsoft")
    weights = plain(768, 768, constant=True, dtype="int8")
    workload = Workload(
        op_type="quantised_matmul",
        inputs=(plain(128, 768), weights, plain(constant=True)),
        operations=(anchor,),
        output=plain(128, 768),
    )
    assert kept_bytes(workload, "panels_vnni") == weights.size
    family = get_family("quantised_matmul")
    assert least_us(workload, family, target, rates) < 128 * weights.size / 80_000.0 / 3
