"""The matrix product family: shapes that hurt, every transposition, chains of all kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from support.contracts.kernels import (
    SEED,
    CompiledKernel,
    KernelFamilyTests,
    assert_close,
    guessed_schedules,
    kernel_target,
    operation,
    plain,
    run_baseline,
)
from support.tiers import few_every_day

from aoe.graph.workload_model import random_inputs
from aoe.kernels.family import KernelTarget
from aoe.kernels.matmul.family import MatMul
from aoe.kernels.registry import get_family
from aoe.schedule import Configuration, Split
from aoe.workload import AttributeValue, Operation, Precision, TensorSpec, Workload

MICROSOFT = "com.microsoft"


def product(
    left: tuple[int, ...],
    right: tuple[int, ...],
    result: tuple[int, ...],
    *chain: Operation,
    more: Sequence[TensorSpec] = (),
    op_type: str = "MatMul",
    names: str = "x0 x1",
    constant: bool = True,
    **attributes: AttributeValue,
) -> Workload:
    """Return x0 (left) times x1 (right), further inputs and a chain behind it."""
    domain = MICROSOFT if op_type.startswith("Fused") else ""
    anchor = operation(op_type, names, "t0", domain=domain, **attributes)
    return Workload(
        op_type="matmul",
        inputs=(plain(*left), plain(*right, constant=constant), *more),
        operations=(anchor, *chain),
        output=plain(*result),
    )


def gemm(
    rows: int,
    depth: int,
    columns: int,
    *chain: Operation,
    summand: tuple[int, ...] | None = None,
    **attributes: AttributeValue,
) -> Workload:
    """Return a Gemm with a constant summand, by default of one value a column."""
    fused = "activation" in attributes
    left = (depth, rows) if attributes.get("transA") else (rows, depth)
    right = (columns, depth) if attributes.get("transB") else (depth, columns)
    bias = plain(*((columns,) if summand is None else summand), constant=True)
    return product(
        left,
        right,
        (rows, columns),
        *chain,
        more=(bias,),
        names="x0 x1 x2",
        op_type="FusedGemm" if fused else "Gemm",
        **attributes,
    )


GELU = (
    operation("Add", "t0 x2", "t1"),
    operation("Gelu", "t1", "t2"),
    operation("Add", "x3 t2", "t3"),
)


CASES: Mapping[str, Workload] = {
    "one row, transposed, bias and activation": gemm(1, 70, 200, transB=1, activation="Relu"),
    "three rows": product((3, 40), (40, 150), (3, 150)),
    "prime everything": product((13, 29), (29, 17), (13, 17)),
    "depth of one": product((5, 1), (1, 48), (5, 48)),
    "one column": gemm(3, 12, 1),
    "bias, GELU and residual": product(
        (2, 19, 24),
        (24, 96),
        (2, 19, 96),
        *GELU,
        more=(plain(96, constant=True), plain(2, 19, 96)),
    ),
    "rows and columns added by different tensors": product(
        (2, 3, 5, 8),
        (8, 40),
        (2, 3, 5, 40),
        operation("Mul", "t0 x2", "t1"),
        operation("Add", "t1 x3", "t2"),
        more=(plain(3, 1, 40), plain(2, 1, 5, 1)),
    ),
    "left matrix transposed": gemm(11, 8, 34, transA=1, alpha=0.5, beta=-2.0),
    "summand of each row, activation with a parameter": gemm(
        *(7, 9, 20),
        summand=(7, 1),
        transA=1,
        transB=1,
        activation="LeakyRelu",
        activation_alpha=0.1,
    ),
    "batch turned": product((3, 4, 6), (4, 18), (3, 6, 18), op_type="FusedMatMul", transA=1),
    "vector": product((12,), (12, 50), (50,)),
    "the left matrix is the residual": product(
        (21, 32), (32, 32), (21, 32), operation("Add", "x0 t0", "t1")
    ),
    "gate in front of the sum": product(
        (4, 10),
        (10, 64),
        (4, 64),
        operation("Sigmoid", "x2", "t1"),
        operation("Mul", "t1 t0", "t2"),
        more=(plain(4, 64),),
    ),
}
ROUNDED_CASES = (
    "one row, transposed, bias and activation",
    "prime everything",
    "bias, GELU and residual",
    "left matrix transposed",
)


def _of_halves(workload: Workload) -> Workload:
    halves = tuple(replace(spec, dtype="float16") for spec in workload.inputs)
    return replace(workload, inputs=halves)


class TestMatMul(KernelFamilyTests):
    family_name = "matmul"
    cases = CASES
    refused = (
        (product((4, 5), (5,), (4,)), "by a vector"),
        (
            _of_halves(product((4, 5), (5, 6), (4, 6), operation("Cast", "t0", "t1", to=1))),
            "MatMul of float16",
        ),
        (gemm(4, 5, 6, beta=0.0), "summand it does not read"),
        (gemm(4, 5, 6, activation="Affine"), "Affine is not element-wise"),
        (
            product((4, 3, 5), (5, 6), (3, 4, 6), op_type="FusedMatMul", transBatchA=1),
            "batch axis inside",
        ),
        (product((4, 4), (4, 4), (4, 4), names="x0 x0"), "with itself"),
        (
            product((4, 4), (4, 4), (4, 4), operation("Add", "t0 x1", "t1")),
            "reads the right matrix again",
        ),
        (
            product(
                (1, 4, 4),
                (4, 4),
                (2, 4, 4),
                operation("Add", "t0 x2", "t1"),
                more=(plain(2, 4, 4),),
            ),
            "broadcast by what follows",
        ),
        (
            product((4, 1), (1, 4), (4, 4), operation("Add", "t0 x0", "t1")),
            "reads the left matrix again",
        ),
        (product((4, 5), (5, 6), (4, 6), constant=False), "few rows by a computed matrix"),
        (
            product((4, 5), (5, 6), (4, 6), operation("Softmax", "t0", "t1")),
            "Softmax is not element-wise",
        ),
        (product((4, 5), (6, 6), (4, 6)), "cannot broadcast"),
    )


class TestMatMulInBfloat16(KernelFamilyTests):
    """In matrix tiles where this CPU has them, but for a few rows."""

    family_name = "matmul"
    cases: Mapping[str, Workload] = {
        name: replace(workload, precision=Precision.BFLOAT16)
        for name, workload in {
            **{name: CASES[name] for name in ROUNDED_CASES},
            "prime, deep": gemm(67, 101, 83, transB=1, activation="Relu"),
            "many rows and panels": product((3, 49, 64), (64, 320), (3, 49, 320)),
        }.items()
    }


COMPUTED_CASES: Mapping[str, Workload] = {
    "scores: transposed, scaled, masked": product(
        (2, 3, 13, 8),
        (2, 3, 17, 8),
        (2, 3, 13, 17),
        operation("Add", "t0 x2", "t1"),
        more=(plain(2, 1, 1, 17),),
        op_type="FusedMatMul",
        transB=1,
        alpha=0.35,
        constant=False,
    ),
    "values: weighted sums": product((2, 3, 7, 11), (2, 3, 11, 32), (2, 3, 7, 32), constant=False),
    "batches that broadcast": product((2, 1, 6, 5), (1, 3, 5, 18), (2, 3, 6, 18), constant=False),
    "left matrix transposed": product(
        (3, 4, 9), (3, 4, 20), (3, 9, 20), op_type="FusedMatMul", transA=1, constant=False
    ),
    "no batch": product((21, 6), (6, 35), (21, 35), constant=False),
    "batch of constant matrices": product((3, 5, 6), (3, 6, 16), (3, 5, 16)),
}


class TestMatMulOfTwoTensors(KernelFamilyTests):
    family_name = "matmul"
    cases = COMPUTED_CASES


@pytest.mark.parametrize("name", few_every_day(COMPUTED_CASES, 2))
def test_two_tensors_are_multiplied_in_pairs(name: str) -> None:
    workload = replace(COMPUTED_CASES[name], precision=Precision.BFLOAT16)
    run = run_baseline(workload, random_inputs(workload, SEED))
    schedule = guessed_schedules(workload)[0]
    assert schedule.algorithm == "panels_bf16"
    assert_close(workload, CompiledKernel(workload, schedule).run(run.inputs), run.result, name)


@pytest.mark.parametrize("name", few_every_day(ROUNDED_CASES))
def test_pairs_are_summed_up_where_there_are_no_tiles(name: str) -> None:
    workload = TestMatMulInBfloat16.cases[name]
    run = run_baseline(workload, random_inputs(workload, SEED))
    schedules = guessed_schedules(workload, replace(kernel_target(), bf16_tiles=False))
    paired = [schedule for schedule in schedules if schedule.algorithm == "panels_bf16"]
    for schedule in (paired[0], paired[-1]):
        found = CompiledKernel(workload, schedule).run(run.inputs)
        assert_close(workload, found, run.result, repr(schedule))


@pytest.mark.parametrize(
    ("rows", "has_tiles", "expected"),
    [
        (1, True, {"weights_bf16", "panels_bf16"}),
        (64, True, {"panels_tiles"}),
        (64, False, {"panels_bf16"}),
    ],
)
def test_algorithm_in_bfloat16_is_that_of_rows_and_cpu(
    rows: int, has_tiles: bool, expected: set[str]
) -> None:
    workload = replace(gemm(rows, 64, 64), precision=Precision.BFLOAT16)
    target = replace(kernel_target(), bf16_tiles=has_tiles)
    space = get_family("matmul").space(workload, target)
    assert {guess["algorithm"] for guess in space.first_guesses} == expected


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        (gemm(1, 3072, 768), 4),  # 9 MB
        (product((2, 768), (768, 5000), (2, 5000)), 4),
        (replace(gemm(1, 3072, 768), precision=Precision.BFLOAT16), 4),
        (gemm(1, 96, 1600), 8),  # 600 kB: the second-level cache is faster than the sums
    ],
    ids=["one row", "two rows", "bfloat16", "small weights"],
)
def test_few_rows_read_as_many_panels_at_once_as_memory_likes(
    workload: Workload, expected: int
) -> None:
    target = KernelTarget(vector_lanes=16, threads=2, bf16_dot=True)
    guess = get_family("matmul").space(workload, target).first_guesses[0]
    assert guess["blocks"] == expected


@pytest.mark.parametrize("depth", [64, 384, 1536, 6144])
def test_rows_of_a_task_stay_in_the_second_level_cache(depth: int) -> None:
    workload, target = gemm(1500, depth, 384), KernelTarget(vector_lanes=16, threads=2)
    values = Configuration({"algorithm": "panels", "blocks": 4, "rows": 6, "walk": "rows"})
    schedule = get_family("matmul").schedule(workload, values, target)
    tiles = next(
        step.factor for step in schedule.steps if isinstance(step, Split) and step.outer == "task"
    )
    assert tiles >= 1
    assert tiles == 1 or 4 * depth * tiles * 6 <= target.l2_bytes // 2
    assert -(-1500 // (6 * tiles)) >= 2 * target.threads


@pytest.mark.parametrize("walk", ["columns", "rows"])
def test_either_walk_gives_the_same_numbers(walk: str) -> None:
    workload = CASES["bias, GELU and residual"]
    run = run_baseline(workload, random_inputs(workload, SEED))
    family, target = get_family("matmul"), kernel_target()
    values = Configuration({"algorithm": "panels", "blocks": 2, "rows": 3, "walk": walk})
    found = CompiledKernel(workload, family.schedule(workload, values, target)).run(run.inputs)
    assert_close(workload, found, run.result, walk)


@pytest.mark.slow
@pytest.mark.parametrize(
    "workload",
    [product((6, 3072), (3072, 40), (6, 40)), gemm(1, 4096, 130, transB=1)],
    ids=["six rows", "one row"],
)
def test_long_sums_stay_close_to_float64(workload: Workload) -> None:
    run = run_baseline(workload, random_inputs(workload, SEED))
    left, right = (np.asarray(run.inputs[name], np.float64) for name in ("x0", "x1"))
    exact = left @ (right.T if right.shape[0] == workload.output.shape[1] else right)
    exact = exact + np.asarray(run.inputs.get("x2", 0.0), np.float64)
    for schedule in guessed_schedules(workload):
        found = CompiledKernel(workload, schedule).run(run.inputs)
        assert np.abs(found - exact).max() < 3e-6 * np.abs(exact).max()


def test_unknown_algorithm_is_refused() -> None:
    with pytest.raises(ValueError, match="no such algorithm"):
        MatMul().pipeline(product((4, 5), (5, 6), (4, 6)), "strassen")


@pytest.mark.parametrize("rows", [2, 24], ids=["exact rows", "rounded rows"])
def test_nan_of_any_bits_reaches_the_results_of_its_row(rows: int) -> None:
    """Rounding must not carry a NaN whose mantissa is all ones over into a zero."""
    workload = replace(product((rows, 40), (40, 33), (rows, 33)), precision=Precision.BFLOAT16)
    run = run_baseline(workload, random_inputs(workload, SEED))
    spoilt = np.array(run.inputs["x0"])
    spoilt[1, 7] = np.array([0x7FFFFFFF], np.uint32).view(np.float32)[0]
    for schedule in guessed_schedules(workload):
        found = CompiledKernel(workload, schedule).run({**run.inputs, "x0": spoilt})
        assert np.isnan(found[1]).all()
        assert np.isfinite(np.delete(found, 1, axis=0)).all()


@pytest.mark.parametrize(("chain", "loops"), [((), []), (GELU, ["r$x"])])
def test_depth_is_walked_in_two_loops_in_front_of_a_long_chain(
    chain: tuple[Operation, ...], loops: list[str]
) -> None:
    """With one, the compiler keeps constants of the chain in registers, and sums in memory."""
    more = (plain(96, constant=True), plain(2, 19, 96)) if chain else ()
    workload = product((2, 19, 70), (70, 96), (2, 19, 96), *chain, more=more)
    for schedule in guessed_schedules(workload):
        cut = [s.var for s in schedule.steps if isinstance(s, Split) and s.stage == "sums.update"]
        assert [var for var in cut if var.startswith("r")] == loops
