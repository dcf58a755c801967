"""Matrix products in 8 and 4 bits: numbers of any magnitude, errors, packed weights, code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import halide as hl
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.contracts.kernels import (
    SEED,
    THREADS,
    Array,
    CompiledKernel,
    KernelFamilyTests,
    guessed_schedules,
    kernel_target,
    operation,
    plain,
    run_baseline,
)
from support.engine.built_kernels import linked
from support.engine.cpu import open_session
from support.engine.fakes import make_target

from aoe.device.compiler import KernelSource
from aoe.device.registry import default_device
from aoe.device.toolchain import Toolchain
from aoe.graph.workload_model import candidate_model, random_inputs, workload_model
from aoe.kernels.family import KernelTarget
from aoe.kernels.halide.apply import apply_schedule, set_extents
from aoe.kernels.matmul.family import MatMul
from aoe.ort.sessions import run_session, session_options
from aoe.schedule import Schedule
from aoe.target import InstructionSet, Target
from aoe.workload import AttributeValue, Operation, Precision, TensorSpec, Workload


def product(
    left: tuple[int, ...],
    right: tuple[int, int],
    result: tuple[int, ...],
    *chain: Operation,
    more: Sequence[TensorSpec] = (),
    op_type: str = "MatMul",
    names: str = "x0 x1",
    **attributes: AttributeValue,
) -> Workload:
    """Return x0 (left) times the weights x1 (right) in int8, and a chain behind it."""
    domain = "com.microsoft" if op_type.startswith("Fused") else ""
    anchor = operation(op_type, names, "t0", domain=domain, **attributes)
    return Workload(
        op_type="matmul",
        inputs=(plain(*left), plain(*right, constant=True), *more),
        operations=(anchor, *chain),
        output=plain(*result),
        precision=Precision.INT8,
    )


CASES: Mapping[str, Workload] = {
    "one row, transposed, bias and activation": product(
        *((1, 70), (200, 70), (1, 200)),
        more=(plain(200, constant=True),),
        op_type="FusedGemm",
        names="x0 x1 x2",
        transB=1,
        activation="Relu",
    ),
    "prime everything": product((13, 29), (29, 17), (13, 17)),
    "depth of one": product((5, 1), (1, 48), (5, 48)),
    "bias, GELU and residual": product(
        *((2, 19, 24), (24, 96), (2, 19, 96)),
        operation("Add", "t0 x2", "t1"),
        operation("Gelu", "t1", "t2"),
        operation("Add", "x3 t2", "t3"),
        more=(plain(96, constant=True), plain(2, 19, 96)),
    ),
    "left matrix transposed": product(
        *((8, 11), (8, 34), (11, 34)),
        more=(plain(34, constant=True),),
        op_type="Gemm",
        names="x0 x1 x2",
        transA=1,
        alpha=0.5,
        beta=-2.0,
    ),
    "batches, deep": product((3, 49, 230), (230, 83), (3, 49, 83)),
}


class TestMatMulInInt8(KernelFamilyTests):
    family_name = "matmul"
    cases = CASES
    refused = (
        (
            replace(product((8, 5), (5, 6), (8, 6)), inputs=(plain(8, 5), plain(5, 6))),
            "product of two computed tensors in int8",
        ),
        (product((8, 65537), (65537, 2), (8, 2)), "sums of 65537 products in int8"),
    )


IN_TILES: Mapping[str, Workload] = {
    "a tail of the depth, transposed": product(
        *((37, 130), (50, 130), (37, 50)),
        more=(plain(50, constant=True),),
        op_type="Gemm",
        names="x0 x1 x2",
        transB=1,
    ),
    "batches, GELU": product(
        *((3, 21, 192), (192, 33), (3, 21, 33)), operation("Gelu", "t0", "t1")
    ),
    "left matrix transposed": product(
        *((65, 11), (65, 34), (11, 34)), op_type="Gemm", names="x0 x1", transA=1
    ),
}


@pytest.mark.skipif(not kernel_target().int8_tiles, reason="this CPU has no AMX")
class TestMatMulInInt8InTiles(KernelFamilyTests):
    family_name = "matmul"
    cases = IN_TILES


@pytest.mark.parametrize("name", IN_TILES)
def test_tiles_and_vectors_make_the_same_numbers(name: str) -> None:
    workload = IN_TILES[name]
    in_tiles, in_vectors = (
        guessed_schedules(
            workload, KernelTarget(vector_lanes=16, threads=2, int8_dot=True, int8_tiles=tiles)
        )[0]
        for tiles in (True, False)
    )
    assert (in_tiles.algorithm, in_vectors.algorithm) == ("panels_int8_amx", "panels_int8")
    if not kernel_target().int8_tiles:
        pytest.skip("this CPU has no AMX")
    exact = replace(workload, precision=Precision.FLOAT32)
    inputs = run_baseline(exact, random_inputs(workload, SEED)).inputs
    first, second = (CompiledKernel(workload, one).run(inputs) for one in (in_tiles, in_vectors))
    np.testing.assert_allclose(first, second, rtol=1e-6, atol=1e-6)


def int4_product(
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


INT4_CASES: Mapping[str, Workload] = {
    "one row, transposed, bias and activation": int4_product(
        *((1,), 70, 200),
        operation("Relu", "t0", "t1"),
        more=(plain(200, constant=True),),
        transB=1,
    ),
    "three rows, prime everything": int4_product((3,), 97, 17),
    "depth of one": int4_product((2,), 1, 48),
    "depth of a block and one more, one column": int4_product((1,), 33, 1),
    "steps of a decoder: bias, GELU and residual": int4_product(
        *((2, 1), 64, 96),
        operation("Add", "t0 x2", "t1"),
        operation("Gelu", "t1", "t2"),
        operation("Add", "x3 t2", "t3"),
        more=(plain(96, constant=True), plain(2, 1, 96)),
    ),
    "left matrix transposed": int4_product(
        (4,), 40, 34, more=(plain(34, constant=True),), transA=1
    ),
}


class TestMatMulInInt4(KernelFamilyTests):
    family_name = "matmul"
    cases = INT4_CASES
    refused = (
        (int4_product((5,), 64, 16), "more than 4 rows in int4"),
        (
            replace(int4_product((2,), 5, 6), inputs=(plain(2, 5), plain(5, 6))),
            "product of two computed tensors in int4",
        ),
    )


needs_int8 = pytest.mark.skipif(
    default_device().describe(THREADS).int8_dot is None,
    reason="without its instructions ONNX Runtime's sums of 8-bit products saturate",
)


@needs_int8
@pytest.mark.parametrize("rows", [1, 40])
def test_errors_are_those_of_onnx_runtime_in_8_bits(rows: int) -> None:
    """Both quantise in the same way, its rows all in one."""
    workload = product((rows, 1024), (1024, 130), (rows, 130))
    run = run_baseline(workload, random_inputs(workload, SEED))
    left, right = (np.asarray(run.inputs[name], np.float64) for name in ("x0", "x1"))
    exact = left @ right
    theirs = _error(_quantised_by_onnx_runtime(run.inputs["x0"], run.inputs["x1"]), exact)
    assert 0.005 < theirs < 0.02
    kernel = CompiledKernel(workload, guessed_schedules(workload)[0])
    assert _error(kernel.run(run.inputs), exact) < 1.1 * theirs


@needs_int8
@pytest.mark.parametrize("shape", [(768, 256), (1021, 130)], ids=str)
def test_one_row_is_summed_up_as_by_onnx_runtime(shape: tuple[int, int]) -> None:
    """A level that is one off shows: sums are integers below 2^24, which float32 tells apart."""
    depth, columns = shape
    workload = product((1, depth), shape, (1, columns))
    kernel = CompiledKernel(workload, guessed_schedules(workload)[0])
    for seed in range(6):
        rng = np.random.default_rng(seed)
        left = rng.standard_normal((1, depth)).astype(np.float32)
        right = rng.standard_normal(shape).astype(np.float32)
        left[0, :8] = (np.arange(8) - 3.5) * (left.max() - left.min()) / 255  # next to halves
        theirs = _quantised_by_onnx_runtime(left, right)
        np.testing.assert_allclose(kernel.run({"x0": left, "x1": right}), theirs, rtol=1e-6)


def _error(found: Array, exact: Array) -> float:
    """Return the norm of the error, relative to that of the result."""
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


def _quantised_by_onnx_runtime(left: Array, right: Array) -> Array:
    """Return their product by DynamicQuantizeMatMul."""
    distance = np.abs(right).max(axis=0) / 127
    levels = np.round(right / distance).astype(np.int8)
    return _by_onnx_runtime("DynamicQuantizeMatMul", left, {"levels": levels, "distance": distance})


def _by_onnx_runtime(
    op_type: str, left: Array, constants: Mapping[str, Array], **attributes: int
) -> Array:
    """Return the result of an operator of ONNX Runtime for a matrix and constants."""
    names, domain = ["a", *constants], "com.microsoft"
    node = helper.make_node(op_type, names, ["y"], domain=domain, **attributes)
    graph = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("a", TensorProto.FLOAT, left.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = open_session(model.SerializeToString(), session_options(threads=1, optimize=False))
    result: Array = session.run(None, {"a": left})[0]
    return result


def _rows_that_hurt() -> Array:
    """Return rows of 70: zeros, constant, of one sign, huge, small, tiny, NaN and infinities."""
    rows = np.random.default_rng(SEED).standard_normal((9, 70)).astype(np.float32)
    rows[0], rows[1], rows[2] = 0.0, 2.5, -np.abs(rows[2])
    for row, factor in ((3, 3.3e38), (4, 1e-20), (5, 1e-38)):
        rows[row] *= np.float32(factor) / np.abs(rows[row]).max()
    for row, value in ((6, np.nan), (7, np.inf), (8, -np.inf)):
        rows[row, row] = value
    return rows


@pytest.mark.parametrize("count", [9, 3])
def test_rows_of_any_magnitude_keep_their_accuracy_and_specials_their_row(count: int) -> None:
    """What the documentation promises; nobody else's rows are touched."""
    workload = product((count, 70), (70, 36), (count, 36))
    right = np.random.default_rng(1).normal(0, 1e-3, (70, 36)).astype(np.float32)
    everything = _rows_that_hurt()
    exact = np.where(np.isfinite(everything), everything, 0).astype(np.float64) @ right
    kernel = CompiledKernel(workload, guessed_schedules(workload)[0])
    parts = np.split(everything, 9 // count)
    found = np.concatenate([kernel.run({"x0": part, "x1": right}) for part in parts])
    assert not found[0].any()
    for row in (1, 2, 3, 4):
        assert np.abs(found[row] - exact[row]).max() < 0.02 * np.abs(exact[row]).max()
    assert np.abs(found[5]).max() < 1e-36
    assert np.isnan(found[6:]).all()


def test_column_with_a_special_value_is_nan_and_the_others_are_not() -> None:
    workload = product((6, 21), (21, 40), (6, 40))
    inputs: dict[str, Any] = dict(run_baseline(workload, random_inputs(workload, SEED)).inputs)
    right = np.array(inputs["x1"])
    right[3, 5], right[4, 20], right[:, 7], right[:, 8] = np.nan, np.inf, 0.0, 1e-39
    kernel = CompiledKernel(workload, guessed_schedules(workload)[0])
    found = kernel.run({**inputs, "x1": right})
    assert np.isnan(found[:, [5, 20]]).all()
    assert np.isfinite(np.delete(found, [5, 20], axis=1)).all()
    assert not found[:, [7, 8]].any()


@pytest.mark.parametrize("feature", ["avx512_zen4", "avx512_sapphirerapids"])
def test_four_products_are_summed_by_one_instruction(feature: str, tmp_path: Path) -> None:
    workload = product((40, 64), (64, 80), (40, 80))
    target = make_target(
        features=("avx2", "avx512", "avx512_skylake"),
        vector_lanes=16,
        int8_dot=InstructionSet(features=(feature,), cpu_features=()),
    )
    schedule = guessed_schedules(workload, KernelTarget.of(target))[0]
    assert _assembly(workload, schedule, target, tmp_path).count("vpdpbusd") >= 16


def _assembly(workload: Workload, schedule: Schedule, target: Target, folder: Path) -> str:
    """Return the code of a kernel for a target."""
    pipeline = MatMul().pipeline(workload, schedule.algorithm)
    apply_schedule(pipeline, schedule)
    set_extents(pipeline)
    name = target.for_kernel(workload.precision, schedule.algorithm).halide_name
    built = hl.Target(f"{name}-no_runtime-no_asserts-no_bounds_query")
    file = folder / "kernel.s"
    pipeline.output.compile_to_assembly(str(file), list(pipeline.arguments), "kernel", built)
    return file.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 4])
def test_errors_are_those_of_onnx_runtime_in_4_bits(rows: int) -> None:
    """MatMulNBits has the same blocks of 32 weights, with rows of 8 bits too (accuracy level 4)."""
    workload = int4_product((rows,), 1024, 130)
    run = run_baseline(workload, random_inputs(workload, SEED))
    left, right = (np.asarray(run.inputs[name], np.float64) for name in ("x0", "x1"))
    theirs = _error(_in_blocks_by_onnx_runtime(run.inputs["x0"], run.inputs["x1"]), left @ right)
    assert 0.07 < theirs < 0.11
    kernel = CompiledKernel(workload, guessed_schedules(workload)[0])
    assert _error(kernel.run(run.inputs), left @ right) < 1.05 * theirs


def _in_blocks_by_onnx_runtime(left: Array, right: Array) -> Array:
    """Return their product by MatMulNBits: levels 0 to 15, of which 8 is zero."""
    depth, columns = right.shape
    blocks = right.T.reshape(columns, depth // 32, 32)
    at = np.abs(blocks).argmax(axis=2)[..., None]
    scales = (np.take_along_axis(blocks, at, axis=2) / -8).astype(np.float32)
    levels = (np.clip(np.round(blocks / scales), -8, 7) + 8).astype(np.uint8)
    packed = levels[..., 0::2] | (levels[..., 1::2] << 4)
    constants = {"levels": packed, "scales": scales[..., 0]}
    sizes = {"K": depth, "N": columns, "bits": 4, "block_size": 32, "accuracy_level": 4}
    return _by_onnx_runtime("MatMulNBits", left, constants, **sizes)


@pytest.mark.slow
def test_each_block_of_32_has_a_scale_of_its_own() -> None:
    """A large weight costs its block, none of the others: those here are exact levels."""
    workload = int4_product((1,), 96, 20)
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
    workload = int4_product((4,), 70, 36)
    rng = np.random.default_rng(SEED)
    left = rng.standard_normal((4, 70)).astype(np.float32)
    left[0], left[1, 5], left[2, 69] = 0.0, np.nan, -np.inf
    right = rng.standard_normal((70, 36)).astype(np.float32)
    found = CompiledKernel(workload, guessed_schedules(workload)[0]).run({"x0": left, "x1": right})
    assert not found[0].any()
    assert np.isnan(found[1:3]).all()
    assert _error(found[3], left[3].astype(np.float64) @ right) < 0.2


def test_int4_column_with_a_special_value_is_nan_and_the_others_are_not() -> None:
    workload = int4_product((3,), 70, 40)
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
    workload = int4_product((1,), 64, 128)
    target = make_target(
        features=("avx2", "avx512", "avx512_skylake"),
        int8_dot=InstructionSet(features=("avx512_zen4",), cpu_features=()),
    )
    schedule = guessed_schedules(workload)[0]
    pipeline = MatMul().pipeline(workload, schedule.algorithm)
    assert np.prod(pipeline.argument_extents[1]) == 64 * 128 // 2
    assert _assembly(workload, schedule, target, tmp_path).count("vpdpbusd") >= 8 * 4


@pytest.mark.parametrize(
    ("workload", "constant"),
    [
        (CASES["bias, GELU and residual"], True),
        (CASES["bias, GELU and residual"], False),
        (INT4_CASES["steps of a decoder: bias, GELU and residual"], True),
    ],
    ids=["int8", "int8, packed in every run", "int4"],
)
def test_library_packs_levels_and_what_makes_numbers_of_them(
    workload: Workload, constant: bool, target: Target, toolchain: Toolchain, tmp_path: Path
) -> None:
    """Once for a constant, else in every run."""
    if target.int8_dot is None:
        pytest.skip("this CPU has no int8")
    schedule = guessed_schedules(workload)[0]
    source = KernelSource.of(workload, schedule)
    library = linked([source], target=target, toolchain=toolchain, file=tmp_path / "kernels.so")
    model = candidate_model(workload_model(workload, seed=SEED), source.name, workload)
    run = run_baseline(workload, random_inputs(workload, SEED))
    feed = dict(random_inputs(workload, SEED))
    if not constant:
        feed |= _as_inputs(model)
    options = session_options(threads=2, optimize=False, library=library)
    session = open_session(model.SerializeToString(), options)
    expected = CompiledKernel(workload, schedule).run(run.inputs)
    for _ in range(2):
        np.testing.assert_allclose(run_session(session, feed)[0], expected, rtol=1e-5, atol=1e-5)


def _as_inputs(model: onnx.ModelProto) -> dict[str, Array]:
    """Make inputs of the constants of a model, and return their values."""
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    for name, value in values.items():
        info = helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape)
        model.graph.input.append(info)
    del model.graph.initializer[:]
    return values
