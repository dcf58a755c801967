"""Products as ONNX Runtime's own operators of lower precision, compared with float32."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.contracts.kernels import SEED, THREADS, Array, operation, plain, run_baseline

from aoe.device.registry import default_device
from aoe.graph.hosted import (
    BLOCK,
    host_operators,
    hosted_model,
    import_microsoft,
    levels_in_blocks,
    levels_in_columns,
)
from aoe.graph.workload_model import random_inputs, workload_model
from aoe.kernels.host_products import HOST_INT4, HOST_NARROW_INT8
from aoe.ort.sessions import run_session, session_options
from aoe.target import HOST_INT8
from aoe.workload import Operation, Precision, Workload

_NARROW_ERROR = 0.02
"""Of weights of 7 bits and rows of 8: the norm of the error over that of the result."""
_ERRORS = {HOST_INT8: 0.015, HOST_NARROW_INT8: _NARROW_ERROR, HOST_INT4: 0.1}


def _gemm(rows: int, depth: int, columns: int) -> Workload:
    return Workload(
        op_type="matmul",
        inputs=(plain(rows, depth), plain(columns, depth, constant=True), plain(columns)),
        operations=(
            operation(
                *("FusedGemm", "x0 x1 x2", "t0"),
                domain="com.microsoft",
                transB=1,
                alpha=0.5,
                beta=-2.0,
                activation="Relu",
            ),
        ),
        output=plain(rows, columns),
    )


def _product(
    shape: tuple[int, ...], columns: int, *chain: Operation, more: tuple[Any, ...] = ()
) -> Workload:
    return Workload(
        op_type="matmul",
        inputs=(plain(*shape), plain(shape[-1], columns, constant=True), *more),
        operations=(operation("MatMul", "x0 x1", "t0"), *chain),
        output=plain(*shape[:-1], columns),
    )


CASES: Mapping[str, tuple[Workload, list[str]]] = {
    "prime everything": (_product((3, 29), 17), []),
    "depth of one": (_product((4, 1), 48), []),
    "more than a block, not filled": (_product((2, 2, 71), 33), []),
    "bias of the operator, GELU and residual": (
        _product(
            *((2, 2, 24), 24),
            operation("Add", "t0 x2", "t1"),
            operation("Gelu", "t1", "t2"),
            operation("Add", "x0 t2", "t3"),
            more=(plain(24, constant=True),),
        ),
        ["Gelu", "Add"],
    ),
    "summand that is no bias": (
        _product(
            *((4, 24), 40),
            operation("Add", "x2 t0", "t1"),
            operation("Mul", "t0 t1", "t2"),
            more=(plain(40, constant=True),),
        ),
        ["Add", "Mul"],
    ),
    "Gemm taken apart": (_gemm(3, 70, 40), ["Mul", "Mul", "Add", "Relu"]),
}


def _hosted(workload: Workload, algorithm: str) -> onnx.ModelProto:
    baseline = run_baseline(workload, random_inputs(workload, SEED)).model
    return hosted_model(baseline, workload, algorithm, SEED)


def _run(model: onnx.ModelProto, feed: Mapping[str, Array]) -> Array:
    options = session_options(threads=THREADS, optimize=False)
    session = default_device().open_session(model.SerializeToString(), options)
    found: Array = run_session(session, dict(feed))[0]
    return found


@pytest.mark.parametrize("algorithm", _ERRORS)
@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_float32_within_the_rounding(case: str, algorithm: str) -> None:
    if algorithm == HOST_INT8 and default_device().describe(THREADS).int8_sums is None:
        pytest.skip("without VNNI its sums saturate: weights have 7 bits there")
    workload, behind = CASES[case]
    precision = Precision.INT4 if algorithm == HOST_INT4 else Precision.INT8
    workload = replace(workload, precision=precision)
    run = run_baseline(workload, random_inputs(workload, SEED))
    model = _hosted(workload, algorithm)
    operator = "MatMulNBits" if algorithm == HOST_INT4 else "DynamicQuantizeMatMul"
    assert [node.op_type for node in model.graph.node if node.op_type != operator] == behind
    assert len({node.name for node in model.graph.node}) == len(behind) + 1
    found = _run(model, random_inputs(workload, SEED))
    error = np.linalg.norm(found - run.result) / np.linalg.norm(run.result)
    assert error < _ERRORS[algorithm]


def test_weights_of_7_bits_leave_room_for_two_products_in_16() -> None:
    workload = replace(_product((8, 64), 40), precision=Precision.INT8)
    levels = {}
    for algorithm in (HOST_INT8, HOST_NARROW_INT8):
        tensors = map(numpy_helper.to_array, _hosted(workload, algorithm).graph.initializer)
        (levels[algorithm],) = (one for one in tensors if one.shape == (64, 40))
    assert np.abs(levels[HOST_INT8]).max(axis=0).tolist() == [127] * 40
    assert np.abs(levels[HOST_NARROW_INT8]).max() == 63
    assert 2 * 255 * 63 < 1 << 15


@pytest.mark.parametrize("algorithm", [HOST_NARROW_INT8, HOST_INT4])
def test_column_of_weights_with_a_special_value_is_nan_and_no_other(algorithm: str) -> None:
    precision = Precision.INT4 if algorithm == HOST_INT4 else Precision.INT8
    workload = replace(_product((3, 70), 40), precision=precision)
    weights = np.array(run_baseline(workload, random_inputs(workload, SEED)).inputs["x1"])
    weights[3, 5], weights[64, 20] = np.nan, np.inf
    made = host_operators(workload, algorithm, weights, inputs=("x0", "x1"), output="y", name="n")
    model = workload_model(workload, seed=SEED)
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend(made.nodes)
    model.graph.initializer.extend(made.initializers)
    import_microsoft(model)
    found = _run(model, random_inputs(workload, SEED))
    assert np.isnan(found[:, [5, 20]]).all()
    assert np.isfinite(np.delete(found, [5, 20], axis=1)).all()


# ---- Weights as levels: the nearest ones, of any magnitude, and of special values ----


def test_columns_have_levels_of_their_own_magnitude() -> None:
    matrix = np.array([[1.0, -4e-3], [-0.5, 2e-3], [0.25, 0.0]], np.float32)
    levels, distances = levels_in_columns(matrix, 127)
    assert levels.tolist() == [[127, -127], [-64, 64], [32, 0]]
    np.testing.assert_allclose(distances, [1 / 127, 4e-3 / 127], rtol=1e-6)


def test_column_of_zeros_or_of_too_small_numbers_has_level_zero() -> None:
    matrix = np.array([[0.0, 1e-39, 1.0], [0.0, -1e-40, 1.0]], np.float32)
    levels, distances = levels_in_columns(matrix, 127)
    assert not levels[:, :2].any() and not distances[:2].any()
    assert distances[2] > 0


def test_column_with_a_special_value_is_nan_and_no_other() -> None:
    matrix = np.ones((40, 4), np.float32)
    matrix[3, 1], matrix[35, 2] = np.nan, -np.inf
    _, distances = levels_in_columns(matrix, 63)
    assert np.isnan(distances).tolist() == [False, True, True, False]
    _, scales = levels_in_blocks(matrix)
    in_blocks = [[False, False], [True, False], [False, True], [False, False]]
    assert np.isnan(scales).reshape(4, 2).tolist() == in_blocks


def test_blocks_keep_their_largest_value_and_what_fills_them_up_is_zero() -> None:
    depth = BLOCK + 3
    matrix = np.random.default_rng(0).standard_normal((depth, 5)).astype(np.float32)
    levels, scales = levels_in_blocks(matrix)
    assert levels.shape == (5, 2, BLOCK // 2) and levels.dtype == np.uint8
    halves = np.stack([levels & 15, levels >> 4], axis=-1).reshape(5, 2, BLOCK)
    assert (halves[:, 1, 3:] == 8).all()
    numbers = (halves.astype(np.float32) - 8) * scales.reshape(5, 2, 1)
    found = numbers.reshape(5, -1)[:, :depth].T
    assert np.abs(found - matrix).max() <= np.abs(scales).max() * 1.001
    largest = np.abs(matrix[:BLOCK]).argmax(axis=0)
    np.testing.assert_allclose(found[largest, range(5)], matrix[largest, range(5)], rtol=1e-6)
