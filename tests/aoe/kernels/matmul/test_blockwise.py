"""Products by weights in blocks: an exact NumPy reference, and ONNX Runtime's MatMulNBits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import halide as hl
import numpy as np
import pytest
from support.contracts.kernels import (
    SEED,
    Array,
    CompiledKernel,
    KernelFamilyTests,
    guessed_schedules,
    operation,
    plain,
    run_baseline,
)
from support.engine.fakes import make_target
from support.engine.quantised import blockwise

from aoe.graph.workload_model import random_inputs
from aoe.kernels.family import KernelTarget
from aoe.kernels.halide.apply import apply_schedule, set_extents
from aoe.kernels.matmul.integer_family import IntegerMatMul
from aoe.schedule import Schedule
from aoe.target import InstructionSet
from aoe.workload import Precision, Workload

IN_INTEGERS = 4


GATED = blockwise(
    *((2, 7), 70, 40),
    operation("Sigmoid", "t0", "t1"),
    operation("Mul", "t0 t1", "t2"),
    operation("Add", "x4 t2", "t3"),
    level=IN_INTEGERS,
    more=(plain(2, 7, 40),),
)
CASES: Mapping[str, Workload] = {
    "4 bits, one row": blockwise((1,), 70, 40, bias=True),
    "4 bits, many rows": blockwise((13,), 96, 37, block=16, zeros=False),
    "8 bits, some rows": blockwise((3,), 300, 33, bits=8, block=64),
    "8 bits, a batch of rows": blockwise((2, 9), 140, 20, bits=8, bias=True),
    "4 bits in integers, one row": blockwise((1, 1), 257, 50, block=128, level=IN_INTEGERS),
    "8 bits in integers": blockwise((13,), 100, 17, bits=8, level=IN_INTEGERS, bias=True),
    "4 bits in integers, SiLU and residual": GATED,
}


def changed(workload: Workload, **attributes: int) -> Workload:
    """Return a workload whose product has other attributes."""
    anchor, *others = workload.operations
    anchor = replace(anchor, attributes={**anchor.attributes, **attributes})
    return replace(workload, operations=(anchor, *others))


class TestBlockwiseMatMul(KernelFamilyTests):
    family_name = "quantised_matmul"
    cases = CASES
    refused = (
        (blockwise((3,), 64, 16, bits=2), "of 2 bits in blocks of 32"),
        (changed(GATED, weight_prepacked=1), "packed for another device"),
        (blockwise((2,), 64, 2, operation("Mul", "t0 x2", "t1")), "are read again behind it"),
        (
            replace(GATED, inputs=(GATED.inputs[0], plain(1), *GATED.inputs[2:])),
            "x1 other than 1920 constants uint8",
        ),
        (
            replace(
                GATED,
                operations=(
                    replace(GATED.operations[0], inputs=("x0", "x1", "x2", "x3", "x4")),
                    *GATED.operations[1:],
                ),
            ),
            "its depth in another order",
        ),
    )


def levels_of(packed: Array, bits: int) -> Array:
    """Return weights or zero points of rows of bytes, the first in the lower bits of a byte."""
    if bits == 4:
        packed = np.stack([packed & 15, packed >> 4], -1).reshape(len(packed), -1)
    return packed.astype(np.float64)


def exact(workload: Workload, inputs: Mapping[str, Array]) -> Array:
    """Return the product by its definition: in float64, of rows in 8 bits where those are."""
    anchor = workload.operations[0]
    sizes = [int(str(anchor.attributes[name])) for name in ("K", "N", "bits", "block_size")]
    depth, columns, bits, size = sizes
    blocks = -(-depth // size)
    weights = levels_of(inputs["x1"].reshape(columns, -1), bits).reshape(columns, blocks, size)
    scales = inputs["x2"].astype(np.float64)
    middle = np.full((columns, blocks), 1 << (bits - 1))
    has_zeros = len(anchor.inputs) > 3 and anchor.inputs[3]
    zeros = levels_of(inputs["x3"], bits)[:, :blocks] if has_zeros else middle
    rows = inputs["x0"].reshape(-1, depth)
    rows = np.pad(rows, ((0, 0), (0, blocks * size - depth))).reshape(-1, blocks, size)
    distances = np.ones((len(rows), blocks))
    if anchor.attributes["accuracy_level"] == IN_INTEGERS:
        largest = np.abs(rows).max(-1)
        factors = np.float32(127) / np.where(largest > 0, largest, np.float32(np.inf))
        rows = np.rint(rows * factors[..., None])
        distances = largest.astype(np.float64) / 127
    parts = np.einsum("mbk,nbk->mnb", rows.astype(np.float64), weights - zeros[..., None])
    found = (parts * distances[:, None] * scales[None]).sum(-1)
    bias = inputs[anchor.inputs[5]] if len(anchor.inputs) > 5 else 0.0
    return np.asarray((found + bias).reshape(workload.output.shape))


def schedules(workload: Workload) -> list[Schedule]:
    """Return the first guesses with VNNI and without, where those differ."""
    targets = (KernelTarget(vector_lanes=16, threads=2, int8_dot=dot) for dot in (True, False))
    found = [guessed_schedules(workload, target)[0] for target in targets]
    return found[: len({one.algorithm for one in found})]


@pytest.mark.parametrize("rows", [1, 9])
@pytest.mark.parametrize("level", [0, 1, IN_INTEGERS])
@pytest.mark.parametrize(("bits", "block"), [(4, 16), (4, 32), (4, 128), (8, 16), (8, 256)])
def test_products_are_those_of_exact_weights(rows: int, level: int, bits: int, block: int) -> None:
    """One level of a row off would be a hundred times what is tolerated."""
    workload = blockwise((rows,), 3 * block + 5, 19, bits=bits, block=block, level=level)
    run = run_baseline(workload, random_inputs(workload, SEED))
    expected = exact(workload, run.inputs)
    tolerated = 2e-6 * np.abs(expected).max()
    np.testing.assert_allclose(run.result, expected, rtol=0, atol=tolerated)
    for schedule in schedules(workload):
        found = CompiledKernel(workload, schedule).run(run.inputs)
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerated)


@pytest.mark.parametrize("zero", [0, 255])
@pytest.mark.parametrize("value", [0, 255])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_extremes_of_weights_and_zero_points_are_summed_exactly(
    zero: int, value: int, sign: float
) -> None:
    """Blocks of the largest sums: the products of two would saturate in 16 bits."""
    workload = blockwise((2,), 1024, 18, bits=8, block=256, level=IN_INTEGERS)
    drawn = run_baseline(workload, random_inputs(workload, SEED)).inputs
    inputs = {name: np.array(array) for name, array in drawn.items()}
    inputs["x0"][:] = sign * 127
    inputs["x0"][1, ::3] = -inputs["x0"][1, ::3]
    inputs["x1"][:], inputs["x2"][:], inputs["x3"][:] = value, 0.5, zero
    for schedule in schedules(workload):
        found = CompiledKernel(workload, schedule).run(inputs)
        np.testing.assert_array_equal(found, exact(workload, inputs))


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_block_that_is_not_finite_makes_its_row_nan_and_no_other(special: float) -> None:
    workload = blockwise((3,), 70, 20, level=IN_INTEGERS)
    drawn = run_baseline(workload, random_inputs(workload, SEED)).inputs
    inputs = {name: np.array(array) for name, array in drawn.items()}
    inputs["x0"][1, 40], inputs["x0"][2, :] = special, 0.0
    found = CompiledKernel(workload, schedules(workload)[0]).run(inputs)
    assert np.isnan(found[1]).all()
    assert np.isfinite(found[0]).all()
    assert (found[2] == 0).all()


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("bits", [4, 8])
def test_one_instruction_sums_products_by_weights_of_4_bits_too(
    rows: int, bits: int, tmp_path: Path
) -> None:
    workload = blockwise((rows,), 256, 80, bits=bits, level=IN_INTEGERS)
    target = make_target(
        features=("avx2", "avx512", "avx512_skylake"),
        vector_lanes=16,
        int8_dot=InstructionSet(features=("avx512_zen4",), cpu_features=()),
    )
    schedule = guessed_schedules(workload, KernelTarget.of(target))[0]
    pipeline = IntegerMatMul().pipeline(workload, schedule.algorithm)
    apply_schedule(pipeline, schedule)
    set_extents(pipeline)
    name = target.for_kernel(Precision.FLOAT32, schedule.algorithm).halide_name
    file = tmp_path / "kernel.s"
    built = hl.Target(f"{name}-no_runtime-no_asserts-no_bounds_query")
    pipeline.output.compile_to_assembly(str(file), list(pipeline.arguments), "kernel", built)
    code = file.read_text()
    assert code.count("vpdpbusd") >= 8
    assert "vpmadd" not in code
