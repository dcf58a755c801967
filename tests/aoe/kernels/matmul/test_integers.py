"""Products of quantised models: the same integers as ONNX Runtime's unfused operators and NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import halide as hl
import numpy as np
import pytest
from support.contracts.kernels import (
    SEED,
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
from support.engine.quantised import blockwise

from aoe.device.compiler import KernelSource
from aoe.device.toolchain import Toolchain
from aoe.graph.workload_model import candidate_model, random_inputs, workload_model
from aoe.kernels.family import KernelTarget
from aoe.kernels.halide.apply import apply_schedule, set_extents
from aoe.kernels.matmul.integer_family import IntegerMatMul
from aoe.ort.sessions import run_session, session_options
from aoe.schedule import Schedule
from aoe.target import InstructionSet, Target
from aoe.workload import Operation, Precision, TensorSpec, Workload

MICROSOFT = "com.microsoft"


def dynamic(
    rows: tuple[int, ...],
    depth: int,
    columns: int,
    *chain: Operation,
    weights: str = "int8",
    per_column: bool = False,
    more: tuple[TensorSpec, ...] = (),
) -> Workload:
    """Return rows x0 by weights x1 with scale x2, zero point x3, bias x4, and a chain."""
    each = (columns,) if per_column else ()
    return Workload(
        op_type="quantised_matmul",
        inputs=(
            plain(*rows, depth),
            plain(depth, columns, constant=True, dtype=weights),
            plain(*each, constant=True),
            plain(*each, constant=True, dtype=weights),
            plain(columns, constant=True),
            *more,
        ),
        operations=(
            operation("DynamicQuantizeMatMul", "x0 x1 x2 x3 x4", domain=MICROSOFT),
            *chain,
        ),
        output=plain(*rows, columns),
    )


def scaled(
    rows: tuple[int, ...],
    depth: int,
    columns: int,
    *,
    left: str = "uint8",
    weights: str = "int8",
    per_column: bool = False,
) -> Workload:
    """Return integers x0 by weights x1, scales x2 and x3, zero points x4 and x5."""
    each = (columns,) if per_column else ()
    return Workload(
        op_type="quantised_matmul",
        inputs=(
            plain(*rows, depth, dtype=left),
            plain(depth, columns, constant=True, dtype=weights),
            plain(),
            plain(*each, constant=True),
            plain(dtype=left),
            plain(*each, constant=True, dtype=weights),
        ),
        operations=(operation("MatMulIntegerToFloat", "x0 x1 x2 x3 x4 x5", domain=MICROSOFT),),
        output=plain(*rows, columns),
    )


def static(
    rows: tuple[int, ...],
    depth: int,
    columns: int,
    *,
    general: bool = False,
    to_float: bool = False,
    left: str = "uint8",
    weights: str = "int8",
    per_column: bool = False,
    **attributes: int,
) -> Workload:
    """Return a QGemm, with a bias, or a QLinearMatMul of integers by weights x3."""
    each = (columns,) if per_column else ()
    right = (columns, depth) if attributes.get("transB") else (depth, columns)
    inputs = [
        *(plain(*rows, depth, dtype=left), plain(constant=True), plain(dtype=left, constant=True)),
        *(plain(*right, constant=True, dtype=weights), plain(*each, constant=True)),
    ]
    if general:
        inputs.append(plain(columns, constant=True, dtype="int32"))
    if not to_float:
        inputs += [plain(constant=True), plain(dtype=left, constant=True)]
    refs = ["x0", "x1", "x2", "x3", "x4", "-", *(f"x{at}" for at in range(5, len(inputs)))]
    anchor = operation(
        "QGemm" if general else "QLinearMatMul",
        " ".join(refs),
        domain=MICROSOFT if general else "",
        w_zero_point=0 if weights == "int8" else 131,
        **attributes,
    )
    return Workload(
        op_type="quantised_matmul",
        inputs=tuple(inputs),
        operations=(anchor,),
        output=plain(*rows, columns, dtype="float32" if to_float else left),
    )


def of_two(
    left: tuple[int, ...],
    right: tuple[int, ...],
    *,
    dtypes: tuple[str, str] = ("uint8", "uint8"),
    zero: int = 131,
) -> Workload:
    """Return a QLinearMatMul of computed integers x0 and x3, the second with a zero point."""
    batch = np.broadcast_shapes(left[:-2], right[:-2])
    return Workload(
        op_type="quantised_matmul",
        inputs=(
            *(plain(*left, dtype=dtypes[0]), plain(constant=True)),
            plain(dtype=dtypes[0], constant=True),
            *(plain(*right, dtype=dtypes[1]), plain(constant=True)),
            *(plain(constant=True), plain(dtype=dtypes[0], constant=True)),
        ),
        operations=(operation("QLinearMatMul", "x0 x1 x2 x3 x4 - x5 x6", w_zero_point=zero),),
        output=plain(*batch, left[-2], right[-1], dtype=dtypes[0]),
    )


STATIC_CASES: Mapping[str, Workload] = {
    "QGemm": static((13,), 29, 17, general=True),
    "QGemm, per column, transposed": static((9,), 70, 40, general=True, per_column=True, transB=1),
    "QGemm to float32": static((5,), 37, 19, general=True, to_float=True, transB=1),
    "QGemm without a sign": static((1,), 64, 48, general=True, weights="uint8"),
    "QGemm with signs": static((6,), 33, 20, general=True, left="int8", per_column=True),
    "QLinearMatMul in batches": static((2, 7), 30, 21, per_column=True),
    "QLinearMatMul of two": of_two((2, 3, 7, 30), (2, 3, 30, 21)),
    "QLinearMatMul of two, broadcast": of_two(
        (2, 1, 16, 65), (2, 4, 65, 33), dtypes=("uint8", "int8"), zero=-3
    ),
}


@pytest.mark.parametrize("name", list(STATIC_CASES))
def test_integers_that_are_made_are_those_of_onnx_runtime(name: str) -> None:
    """One step would show: nothing is tolerated but rounding steps of float32 results."""
    workload = STATIC_CASES[name]
    assert workload.op_type == IntegerMatMul.name
    for seed in range(3):
        run = run_baseline(workload, random_inputs(workload, seed), seed=seed)
        for schedule in schedules(workload):
            found = CompiledKernel(workload, schedule).run(run.inputs)
            assert len(np.unique(run.result)) > 10
            np.testing.assert_allclose(
                found.astype(np.float64), run.result.astype(np.float64), rtol=3e-7, atol=0
            )


def with_input(workload: Workload, number: int, *shape: int) -> Workload:
    """Return a workload with an input of another shape."""
    inputs = list(workload.inputs)
    inputs[number] = replace(inputs[number], shape=shape)
    return replace(workload, inputs=tuple(inputs))


GELU_AND_RESIDUAL = dynamic(
    *((2, 19), 24, 96),
    operation("Gelu", "t0", "t1"),
    operation("Add", "x5 t1", "t2"),
    more=(plain(2, 19, 96),),
)
CASES: Mapping[str, Workload] = {
    **STATIC_CASES,
    "prime everything": dynamic((13,), 29, 17),
    "GELU and residual": GELU_AND_RESIDUAL,
    "one row, per column, without a sign": dynamic((1,), 70, 40, weights="uint8", per_column=True),
    "integers given, both with a sign": scaled((3, 7), 37, 19, left="int8", per_column=True),
    "integers given, none with a sign": scaled((9,), 64, 48, weights="uint8"),
}


class TestIntegerMatMul(KernelFamilyTests):
    family_name = "quantised_matmul"
    cases = CASES
    refused = (
        (dynamic((8,), 33026, 2), "sums of 33026 products of integers"),
        (
            replace(
                dynamic((8,), 5, 6),
                inputs=(plain(8, 5), plain(5, 6, dtype="int8"), *dynamic((8,), 5, 6).inputs[2:]),
            ),
            "a matrix that is no constant of 8 bits",
        ),
        (of_two((2, 4, 30), (2, 30, 21)), "a few rows by a computed matrix"),
        (
            with_input(static((17,), 29, 17, general=True), 5, 17, 1),
            "scales, zero points or summands of shape (17, 1)",
        ),
        (
            with_input(static((9,), 29, 17), 1, 9),
            "scales, zero points or summands of shape (9,)",
        ),
        (dynamic((8,), 5, 6, operation("Mul", "t0 x2", "t1")), "is read again behind it"),
    )


AMX, VECTORS, NEITHER = (
    KernelTarget(vector_lanes=16, threads=2, int8_dot=dot, int8_tiles=tiles)
    for dot, tiles in ((True, True), (True, False), (False, False))
)
"""CPUs as kernels are told of them, whatever this one is."""


def schedules(workload: Workload) -> list[Schedule]:
    """Return the first guess with AMX where this CPU has it, with VNNI, and without.

    This CPU may lack VNNI: compiled for it, that algorithm widens, too.
    """
    targets = [*([AMX] * kernel_target().int8_tiles), VECTORS, NEITHER]
    found = [guessed_schedules(workload, target)[0] for target in targets]
    return [one for at, one in enumerate(found) if one not in found[:at]]


IN_TILES: Mapping[str, Workload] = {
    "read in place": static((2, 20), 128, 40, per_column=True),
    "read in place, signed": static((17,), 192, 33, left="int8"),
    "a tail of the depth": static((37,), 130, 50, general=True, transB=1),
    "a zero point of weights": static((16,), 128, 16, weights="uint8"),
    "dynamic": dynamic((19,), 176, 24, weights="uint8", per_column=True),
    "of two": of_two((3, 18, 100), (3, 100, 21)),
    "of two, in two batches": of_two((2, 3, 9, 72), (2, 3, 72, 35), dtypes=("int8", "int8")),
    "four rows": scaled((4,), 65, 17, left="int8", per_column=True),
}


def test_algorithms_follow_the_cpu_and_what_fills_tiles() -> None:
    for workload in IN_TILES.values():
        names = [guessed_schedules(workload, one)[0].algorithm for one in (AMX, VECTORS, NEITHER)]
        assert names == ["panels_amx", "panels_vnni", "panels_widened"]
        # a small product may be faster in vectors: the best of them is tried beside tiles
        assert guessed_schedules(workload, AMX)[-1] == guessed_schedules(workload, VECTORS)[0]
    in_vectors = {
        "a row": static((1,), 128, 48),
        "sums of one instruction": static((32,), 64, 48),
        "matrices of rows that share them": of_two((2, 5, 16, 72), (1, 5, 72, 33)),
    }
    for workload in in_vectors.values():
        assert guessed_schedules(workload, AMX)[0].algorithm == "panels_vnni"


@pytest.mark.skipif(not kernel_target().int8_tiles, reason="this CPU has no AMX")
class TestInTiles(KernelFamilyTests):
    family_name = "quantised_matmul"
    cases = IN_TILES


def exact(inputs: Mapping[str, Array]) -> Array:
    """Return the result of `scaled` by integers of 64 bits, scaled in float32."""
    left, right, scale, scales, zero, zeros = (
        inputs[f"x{at}"].astype(np.int64) if at not in (2, 3) else inputs[f"x{at}"]
        for at in range(6)
    )
    return ((left - zero) @ (right - zeros)).astype(np.float32) * (scale * scales)


@pytest.mark.parametrize(
    ("left", "weights"), [("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8")]
)
@pytest.mark.parametrize("ends", [("min", "min"), ("min", "max"), ("max", "min"), ("max", "max")])
def test_extremes_of_integers_and_zero_points_are_summed_exactly(
    left: str, weights: str, ends: tuple[str, str]
) -> None:
    """Where products of two saturate in 16 bits, and where sums are largest."""
    workload = scaled((6,), 1021, 35, left=left, weights=weights, per_column=True)
    given = run_baseline(workload, random_inputs(workload, SEED)).inputs
    inputs = {name: np.array(value) for name, value in given.items()}
    low, high = (np.iinfo(left).min, np.iinfo(left).max)
    inputs["x0"] = np.array([[low], [high]] * 3, left) + np.zeros((6, 1021), left)
    inputs["x0"][4:, :256] = np.arange(256) + low
    inputs["x1"][:, :8] = np.iinfo(weights).min
    inputs["x1"][:, 8:16] = np.iinfo(weights).max
    inputs["x2"] = np.array(0.5, np.float32)
    inputs["x4"] = np.array(getattr(np.iinfo(left), ends[0]), left)
    inputs["x5"] = np.full(35, getattr(np.iinfo(weights), ends[1]), weights)
    for schedule in schedules(workload):
        found = CompiledKernel(workload, schedule).run(inputs)
        np.testing.assert_array_equal(found, exact(inputs))


@pytest.mark.parametrize("dtypes", [("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")])
@pytest.mark.parametrize("ends", [("min", "min"), ("min", "max"), ("max", "min"), ("max", "max")])
def test_products_of_two_computed_matrices_are_exact_at_both_ends(
    dtypes: tuple[str, str], ends: tuple[str, str]
) -> None:
    kinds = [np.iinfo(dtype) for dtype in dtypes]
    zeros = [int(getattr(kind, end)) for kind, end in zip(kinds, ends, strict=True)]
    workload = of_two((2, 9, 520), (2, 520, 20), dtypes=dtypes, zero=zeros[1])
    drawn = run_baseline(workload, random_inputs(workload, SEED)).inputs
    inputs = {name: np.array(value) for name, value in drawn.items()}
    inputs["x2"] = np.array(zeros[0], dtypes[0])
    for at, kind in zip((0, 3), kinds, strict=True):
        inputs[f"x{at}"][0] = np.where(inputs[f"x{at}"][0] > kind.min + 100, kind.max, kind.min)
    left, right = (inputs[f"x{at}"].astype(np.int64) for at in (0, 3))
    sums = (left - zeros[0]) @ (right - zeros[1])
    # the scales that spread the sums over all levels
    inputs["x1"], inputs["x4"] = np.array(0.25, np.float32), np.array(0.5, np.float32)
    inputs["x5"] = np.array(np.abs(sums).max() / 1024, np.float32)
    factor = inputs["x1"] * inputs["x4"] / inputs["x5"]
    made = np.rint(sums.astype(np.float32) * factor) + int(inputs["x6"])
    expected = np.clip(made, kinds[0].min, kinds[0].max).astype(dtypes[0])
    for schedule in schedules(workload):
        np.testing.assert_array_equal(CompiledKernel(workload, schedule).run(inputs), expected)


def by_onnx_runtime(workload: Workload, left: Array) -> tuple[Array, Mapping[str, Array]]:
    """Return the result of ONNX Runtime without optimisations, and all inputs."""
    run = run_baseline(workload, {**random_inputs(workload, SEED), "x0": left})
    return run.result, run.inputs


def matrices_that_hurt() -> Mapping[str, Array]:
    """Return matrices of (5, 70) whose range or rounding is special."""
    normal = np.random.default_rng(SEED).standard_normal((5, 70)).astype(np.float32)
    halves = (np.arange(350, dtype=np.float32).reshape(5, 70) % 255 - 127.5) / 255
    found: dict[str, Array] = {
        "normal": normal,
        "between two integers": halves,
        "zeros": np.zeros_like(normal),
        "positive": np.abs(normal) + 1,
        "negative": -np.abs(normal) - 1,
        "huge": normal * np.float32(1e37),
        "tiny": normal * np.float32(1e-36),
    }
    for name, value in (("NaN", np.nan), ("infinity", np.inf), ("-infinity", -np.inf)):
        found[name] = normal.copy()
        found[name][2, 17] = value
    return found


@pytest.mark.parametrize("name", list(matrices_that_hurt()))
def test_ranges_and_rounding_are_those_of_dynamic_quantize_linear(name: str) -> None:
    """Bit for bit: one integer off would show, and so would another order of rounding.

    A NaN counts for nothing in the range and is the lowest integer, as in ONNX Runtime.
    """
    workload = dynamic((5,), 70, 36, per_column=True)
    expected, inputs = by_onnx_runtime(workload, matrices_that_hurt()[name])
    for schedule in schedules(workload):
        found = CompiledKernel(workload, schedule).run(inputs)
        np.testing.assert_allclose(found, expected, rtol=3e-7, atol=0)


@pytest.mark.parametrize("rows", [1, 40])
def test_a_million_values_become_the_integers_of_onnx_runtime(rows: int) -> None:
    workload = dynamic((rows,), 3072, 16, weights="uint8")
    kernel = CompiledKernel(workload, guessed_schedules(workload)[0])
    for seed in range(8):
        rng = np.random.default_rng(seed)
        left = rng.standard_normal((rows, 3072)).astype(np.float32)
        expected, inputs = by_onnx_runtime(workload, left)
        np.testing.assert_allclose(kernel.run(inputs), expected, rtol=3e-7, atol=0)


@pytest.mark.parametrize(
    ("feature", "wanted", "unwanted"),
    [
        ("avx512_zen4", "vpdpbusd", "vpmaddubsw"),
        ("avx512_sapphirerapids", "vpdpbusd", "vpmaddubsw"),
        ("", "vpmaddwd", "vpmaddubsw"),
    ],
)
def test_one_instruction_sums_products_and_none_saturates(
    feature: str, wanted: str, unwanted: str, tmp_path: Path
) -> None:
    workload = dynamic((40,), 64, 80)
    target = make_target(
        features=("avx2", "avx512", "avx512_skylake") if feature else ("avx2", "fma", "f16c"),
        vector_lanes=16 if feature else 8,
        int8_dot=InstructionSet(features=(feature,), cpu_features=()) if feature else None,
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
    assert code.count(wanted) >= 8
    assert unwanted not in code


@pytest.mark.parametrize(
    "workload",
    [
        GELU_AND_RESIDUAL,
        CASES["integers given, both with a sign"],
        CASES["QLinearMatMul of two"],
        blockwise((3,), 70, 20, bits=8),
        blockwise((3,), 70, 20, level=4),
    ],
    ids=["quantised", "given", "of two", "words", "bytes"],
)
def test_library_packs_integers_scales_and_zero_points(
    workload: Workload, target: Target, toolchain: Toolchain, tmp_path: Path
) -> None:
    schedule = guessed_schedules(workload)[0]
    source = KernelSource.of(workload, schedule)
    library = linked([source], target=target, toolchain=toolchain, file=tmp_path / "kernels.so")
    model = candidate_model(workload_model(workload, seed=SEED), source.name, workload)
    feed: dict[str, Any] = dict(random_inputs(workload, SEED))
    options = session_options(threads=2, optimize=False, library=library)
    session = open_session(model.SerializeToString(), options)
    expected = run_baseline(workload, feed).result
    for _ in range(2):
        np.testing.assert_allclose(run_session(session, feed)[0], expected, rtol=1e-5, atol=1e-5)


def test_weights_with_a_sign_and_without_are_packed_each_in_its_way(
    target: Target, toolchain: Toolchain, tmp_path: Path
) -> None:
    workloads = [scaled((8,), 16, 16, weights=weights) for weights in ("int8", "uint8")]
    sources = [KernelSource.of(one, guessed_schedules(one)[0]) for one in workloads]
    assert sources[0].schedule == sources[1].schedule
    library = linked(sources, target=target, toolchain=toolchain, file=tmp_path / "kernels.so")
    for workload, source in zip(workloads, sources, strict=True):
        model = candidate_model(workload_model(workload, seed=SEED), source.name, workload)
        feed: dict[str, Any] = dict(random_inputs(workload, SEED))
        options = session_options(threads=1, optimize=False, library=library)
        session = open_session(model.SerializeToString(), options)
        expected = run_baseline(workload, feed).result
        np.testing.assert_allclose(run_session(session, feed)[0], expected, rtol=1e-5, atol=1e-5)
