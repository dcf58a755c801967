"""Matrix products by weights of 4 bits: errors, blocks of any magnitude, what is emitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import halide as hl
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
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
from support.engine.cpu import open_session
from support.engine.fakes import make_target

from aoe.device.compiler import KernelSource, build_library, compile_kernel
from aoe.device.toolchain import Toolchain
from aoe.graph.workload_model import candidate_model, random_inputs, workload_model
from aoe.kernels.halide.apply import apply_schedule, set_extents
from aoe.kernels.matmul.family import MatMul
from aoe.ort.sessions import run_session, session_options
from aoe.target import InstructionSet, Target
from aoe.workload import Operation, Precision, TensorSpec, Workload


def product(
    rows: tuple[int, ...],
    depth: int,
    columns: int,
    *chain: Operation,
    more: tuple[TensorSpec, ...] = (),
    **attributes: int,
) -> Workload:
    """Return rows x0 times the weights x1 by 4 bits, x2 added if there is one, and a chain."""
    op_type, names = ("Gemm", "x0 x1 x2") if attributes else ("MatMul", "x0 x1")
    right = (columns, depth) if attributes.get("transB") else (depth, columns)
    left = (depth, *rows) if attributes.get("transA") else (*rows, depth)
    return Workload(
        op_type="matmul",
        inputs=(plain(*left), plain(*right, constant=True), *more),
        operations=(operation(op_type, names, "t0", **attributes), *chain),
        output=plain(*rows, columns),
        precision=Precision.INT4,
    )


CASES: Mapping[str, Workload] = {
    "one row, transposed, bias and activation": product(
        *((1,), 70, 200),
        operation("Relu", "t0", "t1"),
        more=(plain(200, constant=True),),
        transB=1,
    ),
    "three rows, prime everything": product((3,), 97, 17),
    "depth of one": product((2,), 1, 48),
    "depth of a block and one more, one column": product((1,), 33, 1),
    "steps of a decoder: bias, GELU and residual": product(
        *((2, 1), 64, 96),
        operation("Add", "t0 x2", "t1"),
        operation("Gelu", "t1", "t2"),
        operation("Add", "x3 t2", "t3"),
        more=(plain(96, constant=True), plain(2, 1, 96)),
    ),
    "left matrix transposed": product((4,), 40, 34, more=(plain(34, constant=True),), transA=1),
}


class TestMatMulInInt4(KernelFamilyTests):
    family_name = "matmul"
    cases = CASES
    refused = (
        (product((5,), 64, 16), "more than 4 rows in int4"),
        (
            replace(product((2,), 5, 6), inputs=(plain(2, 5), plain(5, 6))),
            "product of two computed tensors in int4",
        ),
    )


def _error(found: Array, exact: Array) -> float:
    """Return the norm of the error, relative to that of the result."""
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 4])
def test_errors_are_those_of_onnx_runtime_in_4_bits(rows: int) -> None:
    """MatMulNBits has the same blocks of 32 weights, with rows of 8 bits too (accuracy level 4)."""
    workload = product((rows,), 1024, 130)
    run = run_baseline(workload, random_inputs(workload, SEED))
    left, right = (np.asarray(run.inputs[name], np.float64) for name in ("x0", "x1"))
    theirs = _error(_by_onnx_runtime(run.inputs["x0"], run.inputs["x1"]), left @ right)
    assert 0.07 < theirs < 0.11
    kernel = CompiledKernel(workload, guessed_schedules(workload)[0])
    assert _error(kernel.run(run.inputs), left @ right) < 1.05 * theirs


def _by_onnx_runtime(left: Array, right: Array) -> Array:
    """Return their product by MatMulNBits: levels 0 to 15, of which 8 is zero."""
    depth, columns = right.shape
    blocks = right.T.reshape(columns, depth // 32, 32)
    at = np.abs(blocks).argmax(axis=2)[..., None]
    scales = (np.take_along_axis(blocks, at, axis=2) / -8).astype(np.float32)
    levels = (np.clip(np.round(blocks / scales), -8, 7) + 8).astype(np.uint8)
    packed = levels[..., 0::2] | (levels[..., 1::2] << 4)
    node = helper.make_node(
        "MatMulNBits",
        ["a", "levels", "scales"],
        ["y"],
        domain="com.microsoft",
        K=depth,
        N=columns,
        bits=4,
        block_size=32,
        accuracy_level=4,
    )
    graph = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("a", TensorProto.FLOAT, left.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(packed, "levels"),
            numpy_helper.from_array(scales[..., 0], "scales"),
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = open_session(model.SerializeToString(), session_options(threads=1, optimize=False))
    result: Array = session.run(None, {"a": left})[0]
    return result


@pytest.mark.slow
def test_each_block_of_32_has_a_scale_of_its_own() -> None:
    """A large weight costs its block, none of the others: those here are exact levels."""
    workload = product((1,), 96, 20)
    rng = np.random.default_rng(SEED)
    right = rng.integers(-8, 8, (96, 20)).astype(np.float32)
    right[::32] = -8.0
    right[32:64] *= np.float32(1e-4)
    right[64:] *= np.float32(4096)
    left = np.zeros((1, 96), np.float32)
    kernel = CompiledKernel(workload, guessed_schedules(workload)[0])
    for k in (3, 40, 70):
        left[:] = 0.0
        left[0, k] = 255.0
        found = kernel.run({"x0": left, "x1": right})[0]
        np.testing.assert_allclose(found, 255.0 * right[k], rtol=4e-3)


def test_rows_with_a_special_value_are_nan_and_zeros_stay_zeros() -> None:
    workload = product((4,), 70, 36)
    rng = np.random.default_rng(SEED)
    left = rng.standard_normal((4, 70)).astype(np.float32)
    left[0], left[1, 5], left[2, 69] = 0.0, np.nan, -np.inf
    right = rng.standard_normal((70, 36)).astype(np.float32)
    found = CompiledKernel(workload, guessed_schedules(workload)[0]).run({"x0": left, "x1": right})
    assert not found[0].any()
    assert np.isnan(found[1:3]).all()
    assert _error(found[3], left[3].astype(np.float64) @ right) < 0.2


def test_column_with_a_special_value_is_nan_and_the_others_are_not() -> None:
    workload = product((3,), 70, 40)
    rng = np.random.default_rng(SEED)
    left = rng.standard_normal((3, 70)).astype(np.float32)
    right = rng.standard_normal((70, 40)).astype(np.float32)
    right[3, 5], right[40, 20], right[69, 30] = np.nan, np.inf, -np.inf
    right[:, 7], right[:, 8] = 0.0, 1e-39
    found = CompiledKernel(workload, guessed_schedules(workload)[0]).run({"x0": left, "x1": right})
    assert np.isnan(found[:, [5, 20, 30]]).all()
    assert np.isfinite(np.delete(found, [5, 20, 30], axis=1)).all()
    assert not found[:, [7, 8]].any()


def test_four_products_are_summed_by_one_instruction_and_weights_are_half_bytes(
    tmp_path: Path,
) -> None:
    workload = product((1,), 64, 128)
    target = make_target(
        features=("avx2", "avx512", "avx512_skylake"),
        int8_dot=InstructionSet(features=("avx512_zen4",), cpu_features=()),
    )
    schedule = guessed_schedules(workload)[0]
    pipeline = MatMul().pipeline(workload, schedule.algorithm)
    assert np.prod(pipeline.argument_extents[1]) == 64 * 128 // 2
    apply_schedule(pipeline, schedule)
    set_extents(pipeline)
    name = target.for_kernel(Precision.INT4, schedule.algorithm).halide_name
    file = tmp_path / "kernel.s"
    built = hl.Target(f"{name}-no_runtime-no_asserts-no_bounds_query")
    pipeline.output.compile_to_assembly(str(file), list(pipeline.arguments), "kernel", built)
    assert file.read_text().count("vpdpbusd") >= 8 * 4


def test_library_packs_levels_scales_and_sums(
    target: Target, toolchain: Toolchain, tmp_path: Path
) -> None:
    if target.int8_dot is None:
        pytest.skip("this CPU has no int8")
    workload = CASES["steps of a decoder: bias, GELU and residual"]
    schedule = guessed_schedules(workload)[0]
    source = KernelSource.of(workload, schedule)
    library = build_library(
        [source],
        [compile_kernel(source, target, tmp_path)],
        target=target,
        toolchain=toolchain,
        file=tmp_path / "kernels.so",
    )
    model: onnx.ModelProto = candidate_model(
        workload_model(workload, seed=SEED), source.name, workload
    )
    run = run_baseline(workload, random_inputs(workload, SEED))
    feed = dict(random_inputs(workload, SEED))
    options = session_options(threads=2, optimize=False, library=library)
    session = open_session(model.SerializeToString(), options)
    expected = CompiledKernel(workload, schedule).run(run.inputs)
    np.testing.assert_allclose(run_session(session, feed)[0], expected, rtol=1e-5, atol=1e-5)
