"""The family of attention: two matrix products with a softmax between them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.contracts.kernels import (
    BFLOAT16_STRICTNESS,
    SEED,
    CompiledKernel,
    KernelFamilyTests,
    guessed_schedules,
    kernel_target,
    operation,
    plain,
    run_baseline,
)
from support.tiers import few_every_day

from aoe.graph.workload_model import random_inputs, workload_model
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import classify, get_family
from aoe.operators import MICROSOFT_DOMAIN
from aoe.schedule import Parallel
from aoe.workload import Operation, Precision, TensorSpec, Workload

Array = np.ndarray[Any, Any]


def attention(
    queries: tuple[int, ...],
    keys: tuple[int, ...],
    values: tuple[int, ...],
    *chain: Operation,
    masks: Sequence[TensorSpec] = (),
    scalars: tuple[float, ...] = (),
    turned: bool = False,
    alpha: float = 0.125,
    axis: int = -1,
) -> Workload:
    """Return an attention of `x0` by `x1`; the values are `x2`, masks what follows.

    Args:
        queries: Shape, (..., queries, depth).
        keys: Shape, (..., depth, keys), or (..., keys, depth) where they are `turned`.
        values: Shape, (..., keys, columns).
        chain: Between scores, `t0`, and softmax.
        masks: Read by the chain.
        scalars: The same.
        turned: True for keys as the values are stored.
        alpha: Factor of the scores.
        axis: Of the softmax.
    """
    score = operation(
        "FusedMatMul", "x0 x1", "t0", domain=MICROSOFT_DOMAIN, alpha=alpha, transB=int(turned)
    )
    scores = chain[-1].output if chain else "t0"
    return Workload(
        op_type="attention",
        inputs=(plain(*queries), plain(*keys), plain(*values), *masks),
        scalars=scalars,
        operations=(
            score,
            *chain,
            operation("Softmax", scores, "t8", axis=axis),
            operation("MatMul", "t8 x2", "t9"),
        ),
        output=plain(*queries[:-1], values[-1]),
    )


def in_bfloat16(workload: Workload) -> Workload:
    """Return a workload whose factors may be rounded."""
    return replace(workload, precision=Precision.BFLOAT16)


ADDED = operation("Add", "t0 x3", "t1")
MASKED = attention((1, 2, 9, 8), (1, 2, 8, 12), (1, 2, 12, 16), ADDED, masks=[plain(9, 12)])


def guarded(workload: Workload, zero: float = 0.0) -> Workload:
    """Return an attention as PyTorch writes it: weights that are no numbers become zeros."""
    *scores, softmax, last = workload.operations
    guard = (
        operation("IsNaN", softmax.output, "g0"),
        operation("Where", f"g0 s{len(workload.scalars)} {softmax.output}", "g1"),
    )
    last = replace(last, inputs=("g1", *last.inputs[1:]))
    return replace(
        workload,
        scalars=(*workload.scalars, zero),
        operations=(*scores, softmax, *guard, last),
    )


def with_joint_heads(tokens: int, heads: int, size: int) -> Workload:
    """Return an attention of heads that lie side by side in one tensor, as in ViT."""
    joint, apart = (1, tokens, 3 * heads * size), (1, tokens, 3, heads, size)
    moves = [
        operation("Reshape", "x0", "t0", shape=apart),
        operation("Transpose", "t0", "t1", perm=(2, 0, 3, 1, 4)),
    ]
    for at in range(3):
        moves += [
            operation("Slice", "t1", f"t{2 + at}", starts=(at,), ends=(at + 1,), axes=(0,)),
            operation("Reshape", f"t{2 + at}", f"t{5 + at}", shape=(1, heads, tokens, size)),
        ]
    return Workload(
        op_type="attention",
        inputs=(plain(*joint),),
        operations=(
            *moves,
            operation("Transpose", "t6", "t8", perm=(0, 1, 3, 2)),
            operation("FusedMatMul", "t5 t8", "t9", domain=MICROSOFT_DOMAIN, alpha=0.125),
            operation("Softmax", "t9", "t10", axis=-1),
            operation("MatMul", "t10 t7", "t11"),
            operation("Transpose", "t11", "t12", perm=(0, 2, 1, 3)),
        ),
        output=plain(1, tokens, heads, size),
    )


def with_turned_heads(
    batch: int, queries: int, keys: int, heads: int, size: int, *, joins: bool = True
) -> Workload:
    """Return a masked attention of heads that are split by Transposes, as in BERT.

    Args:
        batch: Of texts.
        queries: Tokens asked for.
        keys: Tokens asked.
        heads: Side by side in each token.
        size: Of a head.
        joins: True if the heads of the result are put side by side again.
    """
    back = (operation("Transpose", "t6", "t7", perm=(0, 2, 1, 3)),) if joins else ()
    made = (batch, queries, heads, size) if joins else (batch, heads, queries, size)
    return Workload(
        op_type="attention",
        inputs=(
            plain(batch, keys, heads, size),
            plain(batch, queries, heads, size),
            plain(batch, 1, 1, keys),
            plain(batch, keys, heads, size),
        ),
        operations=(
            operation("Transpose", "x0", "t0", perm=(0, 2, 3, 1)),
            operation("Transpose", "x1", "t1", perm=(0, 2, 1, 3)),
            operation("Transpose", "x3", "t2", perm=(0, 2, 1, 3)),
            operation("FusedMatMul", "t1 t0", "t3", domain=MICROSOFT_DOMAIN, alpha=0.25),
            operation("Add", "t3 x2", "t4"),
            operation("Softmax", "t4", "t5", axis=-1),
            operation("MatMul", "t5 t2", "t6"),
            *back,
        ),
        output=plain(*made),
    )


def with_shared_heads(
    queries: int,
    keys: int,
    *,
    groups: int = 1,
    batch: int = 1,
    mask: tuple[int, ...] = (),
    axis: int = -1,
    turned: bool = True,
) -> Workload:
    """Return an attention whose heads of queries, three a group, have keys and values in common.

    Args:
        queries: Of a batch.
        keys: The same.
        groups: Of heads.
        batch: Of texts.
        mask: Shape of what is added to the scores; () for nothing.
        axis: Of the softmax.
        turned: False for a Transpose behind the keys of all heads.
    """
    heads, size = 3 * groups, 18
    one, each = (batch, groups, 1, keys, size), (batch, groups, 3, keys, size)
    scored, key = "t2", "t0"
    chain = []
    if not turned:
        chain.append(operation("Transpose", "t0", "t8", perm=(0, 1, 3, 2)))
        key = "t8"
    product = {"domain": MICROSOFT_DOMAIN, "transB": int(turned), "alpha": 0.25}
    chain.append(operation("FusedMatMul", f"x2 {key}", "t2", **product))
    if mask:
        chain.append(operation("Add", "t2 x3", "t9"))
        scored = "t9"
    shared = [
        moved
        for given, made in ((0, "t0"), (1, "t1"))
        for moved in (
            operation("Reshape", f"x{given}", f"{made}5", shape=one),
            operation("Expand", f"{made}5", f"{made}6", shape=each),
            operation("Reshape", f"{made}6", made, shape=(batch, heads, keys, size)),
        )
    ]
    return Workload(
        op_type="attention",
        inputs=(
            plain(batch, groups, keys, size),
            plain(batch, groups, keys, size),
            plain(batch, heads, queries, size),
            *([plain(*mask)] if mask else []),
        ),
        operations=(
            *shared,
            *chain,
            operation("Softmax", scored, "t3", axis=axis),
            operation("MatMul", "t3 t1", "t4"),
            operation("Transpose", "t4", "t7", perm=(0, 2, 1, 3)),
        ),
        output=plain(batch, queries, heads, size),
    )


def _written_apart() -> Workload:
    """Return one whose last Transpose makes rows of queries."""
    workload = with_turned_heads(1, 9, 21, 3, 16)
    *others, last = workload.operations
    last = replace(last, attributes={"perm": (0, 1, 3, 2)})
    return replace(workload, operations=(*others, last), output=plain(1, 3, 16, 9))


def _cut_apart() -> Workload:
    """Return one with values whose rows a Reshape cuts."""
    workload = with_turned_heads(1, 9, 20, 3, 16)
    *inputs, _ = workload.inputs
    operations = tuple(
        replace(item, op_type="Reshape", version=21, attributes={"shape": (1, 3, 20, 16)})
        if item.output == "t2"
        else item
        for item in workload.operations
    )
    return replace(workload, inputs=(*inputs, plain(1, 15, 64)), operations=operations)


class TestAttention(KernelFamilyTests):
    family_name = "attention"
    cases: Mapping[str, Workload] = {
        "heads of 64": attention((1, 2, 33, 64), (1, 2, 64, 33), (1, 2, 33, 64)),
        "keys as the values are, odd": attention(
            (2, 3, 17, 36), (2, 3, 29, 36), (2, 3, 29, 36), turned=True
        ),
        "columns of 80, batch of one axis": attention((3, 11, 80), (3, 80, 50), (3, 50, 80)),
        "depth and columns of one": attention((2, 7, 1), (2, 1, 19), (2, 19, 1)),
        "no batch, two keys": attention((5, 17), (17, 2), (2, 3)),
        "keys of one batch for all": attention((4, 2, 8, 16), (1, 1, 16, 21), (1, 1, 21, 16)),
        "mask of the scores": MASKED,
        "bias of the heads and mask of the windows": attention(
            *((4, 3, 7, 5), (4, 3, 5, 7), (4, 3, 7, 5)),
            ADDED,
            operation("Add", "t1 x4", "t2"),
            masks=[plain(3, 7, 7), plain(4, 1, 7, 7)],
        ),
        "mask of the keys, and a chain": attention(
            (2, 3, 10, 16),
            (2, 3, 16, 70),
            (2, 3, 70, 20),
            operation("Div", "t0 s0", "t1"),
            operation("Add", "t1 x3", "t2"),
            masks=[plain(2, 1, 1, 70)],
            scalars=(8.0,),
        ),
        "chosen scores": attention(
            (2, 12, 16),
            (2, 16, 40),
            (2, 40, 16),
            operation("Greater", "x3 s0", "t1"),
            operation("Where", "t1 t0 s1", "t2"),
            masks=[plain(12, 40)],
            scalars=(0.0, -10000.0),
        ),
        "scores where a mask says so": attention(
            (2, 3, 10, 16),
            (2, 3, 16, 23),
            (2, 3, 23, 20),
            operation("Where", "x3 t0 s0", "t1"),
            masks=[plain(2, 1, 10, 23, dtype="bool")],
            scalars=(-10000.0,),
        ),
        "weights that are no numbers are zeros": guarded(MASKED),
    }


class TestAttentionWithMoves(KernelFamilyTests):
    """Heads are read and written where they lie: one tensor for all, or one each."""

    family_name = "attention"
    cases: Mapping[str, Workload] = {
        "heads side by side in one tensor": with_joint_heads(37, 3, 20),
        "heads of a mask, not joined": with_turned_heads(2, 9, 21, 3, 16, joins=False),
        "in bfloat16": in_bfloat16(with_joint_heads(19, 2, 17)),
        "a few queries": with_turned_heads(2, 2, 33, 3, 16),
        "heads of a mask": with_turned_heads(2, 9, 21, 3, 16),
        "keys and values of all heads": with_shared_heads(33, 21),
        "keys and values of all heads, a few queries": with_shared_heads(2, 35),
        "keys and values of groups": with_shared_heads(33, 21, groups=2, mask=(33, 21), axis=3),
        "keys and values of groups, one query": with_shared_heads(1, 35, groups=2),
        "keys of groups by columns, mask of heads": with_shared_heads(
            9, 21, groups=2, batch=2, mask=(2, 6, 1, 21), turned=False
        ),
        "keys of groups by columns, a few queries": with_shared_heads(
            3, 21, groups=3, batch=2, mask=(2, 1, 1, 21), turned=False
        ),
        "groups in bfloat16": in_bfloat16(with_shared_heads(17, 19, groups=2)),
    }
    refused = (
        (_written_apart(), "columns of the result that are written apart"),
        (_cut_apart(), "moves that are more than strides"),
    )


class TestAttentionOfFewQueries(KernelFamilyTests):
    """Keys and values are not packed: both ways to store keys, widths that are no whole panels."""

    family_name = "attention"
    cases: Mapping[str, Workload] = {
        "one query, cached keys as the values are": attention(
            (1, 12, 1, 64), (1, 12, 33, 64), (1, 12, 33, 64), turned=True
        ),
        "keys by columns, odd widths": attention((2, 3, 2, 36), (2, 3, 36, 29), (2, 3, 29, 37)),
        "mask and chain, keys of one batch for all": attention(
            (4, 2, 2, 17),
            (1, 1, 70, 17),
            (1, 1, 70, 20),
            operation("Div", "t0 s0", "t1"),
            operation("Add", "t1 x3", "t2"),
            masks=[plain(4, 1, 1, 70)],
            scalars=(8.0,),
            turned=True,
        ),
        "scores but where a mask says so": attention(
            (2, 3, 1, 16),
            (2, 3, 23, 16),
            (2, 3, 23, 20),
            operation("Where", "x3 x4 t0", "t1"),
            masks=[plain(2, 1, 1, 23, dtype="bool"), plain()],
            turned=True,
        ),
        "no batch, two keys, depth of one": attention((2, 1), (1, 2), (2, 5)),
        "depth and columns of one": attention((2, 1, 1), (2, 19, 1), (2, 19, 1), turned=True),
        "weights that are no numbers are zeros": guarded(
            attention((2, 2, 8), (2, 8, 12), (2, 12, 16), ADDED, masks=[plain(2, 12)])
        ),
    }


class TestAttentionInBfloat16(KernelFamilyTests):
    """Products of pairs: odd depths and odd numbers of keys have a zero behind them."""

    family_name = "attention"
    share = BFLOAT16_STRICTNESS
    cases: Mapping[str, Workload] = {
        name: in_bfloat16(workload) for name, workload in TestAttention.cases.items()
    }


def in_float64(workload: Workload, feed: Mapping[str, Array]) -> Array:
    """Return the attention of `attention((...), ADDED)` in float64."""
    queries, keys, values, mask = (feed[f"x{number}"].astype(np.float64) for number in range(4))
    with np.errstate(invalid="ignore"):
        scores = 0.125 * (queries @ keys) + mask
        grown = np.exp(scores - scores.max(axis=-1, keepdims=True))
        made: Array = grown / grown.sum(axis=-1, keepdims=True) @ values
    return made


def best_kernel(workload: Workload) -> CompiledKernel:
    """Return the kernel of the first guess."""
    return CompiledKernel(workload, guessed_schedules(workload)[0])


def test_results_are_those_of_float64() -> None:
    feed = random_inputs(MASKED, SEED)
    made, expected = best_kernel(MASKED).run(feed), in_float64(MASKED, feed)
    assert np.max(np.abs(made - expected)) < 1e-6 * np.max(np.abs(expected))


@pytest.mark.slow
def test_results_in_bfloat16_are_near_those_of_float64() -> None:
    """Three factors are rounded, and sums of as many pairs grow no worse by it."""
    shapes = ((1, 40, 64), (1, 64, 701), (1, 701, 33))
    workload = in_bfloat16(attention(*shapes, ADDED, masks=[plain(40, 701)]))
    feed = random_inputs(workload, SEED)
    made, expected = best_kernel(workload).run(feed), in_float64(workload, feed)
    assert np.linalg.norm(made - expected) < 5e-3 * np.linalg.norm(expected)


@pytest.mark.slow
def test_weights_in_bfloat16_add_up_to_one() -> None:
    workload = in_bfloat16(attention((2, 9, 8), (2, 8, 301), (2, 301, 16)))
    feed = {**random_inputs(workload, SEED), "x2": np.ones((2, 301, 16), np.float32)}
    np.testing.assert_allclose(best_kernel(workload).run(feed), 1.0, rtol=1e-6)


def test_long_sums_keep_their_accuracy() -> None:
    shapes = ((1, 6, 16), (1, 16, 3000), (1, 3000, 16))
    workload = attention(*shapes, ADDED, masks=[plain(6, 3000)])
    feed = random_inputs(workload, SEED)
    made, expected = best_kernel(workload).run(feed), in_float64(workload, feed)
    assert np.max(np.abs(made - expected)) < 3e-6 * np.max(np.abs(expected))


@pytest.mark.parametrize("workload", [MASKED, in_bfloat16(MASKED)], ids=["float32", "bfloat16"])
def test_masked_keys_have_no_part_and_a_query_without_keys_is_nan(workload: Workload) -> None:
    feed = {name: value.copy() for name, value in random_inputs(MASKED, SEED).items()}
    feed["x3"][:, 3:] = -np.inf  # a causal mask would be another such shape
    feed["x3"][4] = -np.inf
    feed["x2"][:, :, 3:] *= 1e30
    made = best_kernel(workload).run(feed)
    np.testing.assert_array_equal(np.isnan(made[0, 0]).all(axis=-1), np.arange(9) == 4)
    there = made[:, :, np.arange(9) != 4]
    assert np.max(np.abs(there)) <= np.max(np.abs(feed["x2"][:, :, :3])) * 1.01
    np.testing.assert_array_equal(np.isnan(made), np.isnan(run_baseline(MASKED, feed).result))


@pytest.mark.parametrize("precision", [Precision.FLOAT32, Precision.BFLOAT16])
def test_query_without_keys_makes_zeros_where_weights_are_guarded(precision: Precision) -> None:
    workload = replace(guarded(MASKED), precision=precision)
    feed = {name: value.copy() for name, value in random_inputs(MASKED, SEED).items()}
    feed["x3"][4] = -np.inf
    feed["x3"][6, 2] = np.nan
    feed["x0"][0, 1, 3, 5] = np.inf
    made, expected = best_kernel(workload).run(feed), run_baseline(workload, feed).result
    assert np.isfinite(expected).all()
    np.testing.assert_array_equal((made == 0).all(axis=-1), (expected == 0).all(axis=-1))
    assert not made[:, :, [4, 6]].any() and not made[0, 1, 3].any()
    share = 1e-5 if precision is Precision.FLOAT32 else 2e-2
    np.testing.assert_allclose(made, expected, atol=share * np.abs(expected).max())


def test_guard_that_puts_in_another_number_is_refused() -> None:
    assert not get_family("attention").supports(guarded(MASKED, zero=1.0))


@pytest.mark.parametrize("special", few_every_day([np.nan, np.inf, -np.inf]))
@pytest.mark.parametrize("name", few_every_day(["x0", "x1", "x2", "x3"], 2))
@pytest.mark.parametrize("workload", [MASKED, in_bfloat16(MASKED)], ids=["float32", "bfloat16"])
def test_special_values_come_out_where_onnx_runtime_has_them(
    workload: Workload, name: str, special: float
) -> None:
    feed = {key: value.copy() for key, value in random_inputs(MASKED, SEED).items()}
    feed[name][(0,) * (feed[name].ndim - 2) + (2, 5)] = special
    made, expected = best_kernel(workload).run(feed), run_baseline(MASKED, feed).result
    np.testing.assert_array_equal(np.isnan(made), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(made), np.isinf(expected))


@pytest.mark.parametrize("turned", [False, True], ids=["keys by columns", "keys by rows"])
def test_special_values_of_few_queries_are_onnx_runtime_s(turned: bool) -> None:
    keys = (2, 12, 8) if turned else (2, 8, 12)
    workload = attention((2, 2, 8), keys, (2, 12, 16), ADDED, masks=[plain(2, 12)], turned=turned)
    kernel, given = best_kernel(workload), random_inputs(workload, SEED)
    for name, special in itertools.product(("x0", "x1", "x2", "x3"), (np.nan, np.inf, -np.inf)):
        feed = {key: value.copy() for key, value in given.items()}
        feed[name][(0,) * (feed[name].ndim - 2) + (1, 5)] = special
        made, expected = kernel.run(feed), run_baseline(workload, feed).result
        np.testing.assert_array_equal(np.isnan(made), np.isnan(expected), f"{name} {special}")
        np.testing.assert_array_equal(np.isinf(made), np.isinf(expected), f"{name} {special}")


def test_long_sums_of_few_queries_keep_their_accuracy() -> None:
    shapes = ((1, 2, 16), (1, 3000, 16), (1, 3000, 16))
    workload = attention(*shapes, ADDED, masks=[plain(2, 3000)], turned=True)
    feed = random_inputs(workload, SEED)
    made = best_kernel(workload).run(feed)
    turned = {**feed, "x1": np.ascontiguousarray(feed["x1"].swapaxes(1, 2))}
    expected = in_float64(workload, turned)
    assert np.max(np.abs(made - expected)) < 3e-6 * np.max(np.abs(expected))


def test_large_scores_do_not_overflow() -> None:
    workload = attention((1, 6, 4), (1, 4, 20), (1, 20, 16), alpha=1.0)
    feed = {name: value.copy() for name, value in random_inputs(workload, SEED).items()}
    feed["x0"] *= 1e18
    feed["x1"] *= 1e18
    made, expected = best_kernel(workload).run(feed), run_baseline(workload, feed).result
    np.testing.assert_allclose(made, expected, rtol=1e-6)


@pytest.mark.parametrize(("seed", "few"), few_every_day([(n, n >= 12) for n in range(20)], 2))
def test_attentions_of_any_shape_are_computed(seed: int, few: bool) -> None:
    rng = np.random.default_rng(seed)
    queries, keys = (int(count) for count in rng.integers(5, 60, 2))
    queries = queries % 4 + 1 if few else queries
    depth, columns = (int(count) for count in rng.integers(1, 70, 2))
    batch = tuple(int(count) for count in rng.integers(1, 4, rng.integers(0, 3)))
    turned = bool(rng.integers(2))
    masks = [(), (keys,), (queries, 1), (queries, keys), (*batch, queries, keys)]
    stored = (keys, depth) if turned else (depth, keys)
    mask = masks[rng.integers(len(masks))]
    workload = attention(
        (*batch, queries, depth),
        (*batch, *stored),
        (*batch, keys, columns),
        ADDED,
        masks=[plain(*mask)],
        turned=turned,
        alpha=0.3,
    )
    family, target = get_family("attention"), kernel_target()
    assert family.supports(workload).reason == ""
    offered = family.space(workload, target).configurations()
    chosen = offered[rng.integers(len(offered))]
    feed = random_inputs(workload, seed)
    kernel = CompiledKernel(workload, family.schedule(workload, chosen, target))
    expected = run_baseline(workload, feed).result
    np.testing.assert_allclose(kernel.run(feed), expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("queries", [9, 3], ids=["tiles", "few queries"])
@pytest.mark.parametrize("value", [np.finfo(np.float32).min, -np.inf], ids=str)
def test_rows_that_are_masked_whole_are_what_the_chain_makes_of_them(
    value: float, queries: int
) -> None:
    """The mean of the values, not zeros as in ONNX Runtime's Attention; NaN for minus infinity."""
    workload = attention(
        (1, 2, queries, 8), (1, 2, 8, 12), (1, 2, 12, 16), ADDED, masks=[plain(queries, 12)]
    )
    feed = dict(random_inputs(workload, SEED))
    mask = np.zeros((queries, 12), np.float32)
    mask[0] = mask[1, 3:] = value
    feed["x3"] = mask
    found = best_kernel(workload).run(feed)
    expected = run_baseline(workload, feed).result
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    if np.isfinite(value):
        mean = feed["x2"].mean(axis=2)
        np.testing.assert_allclose(found[:, :, 0], mean, rtol=1e-4, atol=1e-6)
    else:
        assert np.isnan(found[:, :, 0]).all() and np.isfinite(found[:, :, 1:]).all()


def test_the_reference_of_onnx_agrees() -> None:
    from onnx.reference import ReferenceEvaluator

    factor = operation("Mul", "t0 s0", "t1")
    workload = replace(
        attention((2, 3, 9, 8), (2, 3, 8, 30), (2, 3, 30, 12), factor, scalars=(0.35,)),
    )
    product = operation("MatMul", "x0 x1", "t0")
    workload = replace(workload, operations=(product, *workload.operations[1:]))
    feed = random_inputs(workload, SEED)
    expected = ReferenceEvaluator(workload_model(workload, seed=SEED)).run(None, dict(feed))[0]
    np.testing.assert_allclose(best_kernel(workload).run(feed), expected, rtol=1e-5, atol=1e-6)


def test_tiles_stay_in_the_registers_of_every_cpu() -> None:
    workload = TestAttention.cases["heads of 64"]
    family = get_family("attention")
    for lanes in (4, 8, 16):
        target = KernelTarget(vector_lanes=lanes, threads=2)
        for values in family.space(workload, target).configurations():
            wide = int(values["blocks"]) * (16 // lanes)
            assert wide * int(values["rows"]) + wide + 1 <= target.registers


@pytest.mark.parametrize(
    ("heads", "tokens", "loop"),
    [(1, 40, "task"), (3, 40, "task"), (12, 40, "d0_"), (12, 1500, "task")],
)
def test_threads_share_one_loop_short_tasks_by_the_batch(
    heads: int, tokens: int, loop: str
) -> None:
    workload = attention((heads, tokens, 64), (heads, 64, tokens), (heads, tokens, 64))
    for schedule in guessed_schedules(workload, replace(kernel_target(), threads=2)):
        shared = [s.var for s in schedule.steps if isinstance(s, Parallel) and s.stage == "y"]
        assert shared == [loop]


def changed(workload: Workload, **changes: Operation | None) -> Workload:
    """Return a workload whose operations are replaced, by name of their result."""
    operations = {item.output: item for item in workload.operations} | changes
    return replace(workload, operations=tuple(filter(None, operations.values())))


KEYS_ARE_VALUES = changed(
    attention((2, 9, 8), (2, 12, 8), (2, 12, 8), turned=True),
    t9=operation("MatMul", "t8 x1", "t9"),
)


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        (changed(MASKED, t8=None, t9=operation("MatMul", "t1 x2", "t9")), "no softmax between two"),
        (
            attention((2, 9, 8), (2, 8, 9), (2, 9, 8), axis=1),
            "softmax over an axis that is not the last",
        ),
        (
            changed(
                MASKED,
                t9=operation("FusedMatMul", "t8 x2", "t9", domain=MICROSOFT_DOMAIN, transA=1),
            ),
            "FusedMatMul of a softmax by columns",
        ),
        (
            in_bfloat16(attention((2, 4, 8), (2, 8, 9), (2, 9, 8))),
            "a few queries in bfloat16, which save no reading",
        ),
        (
            attention((2, 1, 8), (2, 8, 600), (2, 600, 8)),
            "600 keys, stored column by column, of a few queries",
        ),
        (
            attention((2, 1, 8), (2, 9, 8), (2, 9, 5000), turned=True),
            "5000 columns of a few queries",
        ),
        (attention((2, 6, 8), (2, 8, 1), (2, 1, 8)), "a single key"),
        (KEYS_ARE_VALUES, "queries, keys or values are read twice"),
    ],
)
def test_refusal_says_why(workload: Workload, reason: str) -> None:
    assert get_family("attention").supports(workload).reason.startswith(reason)


def test_a_matrix_product_alone_is_not_an_attention() -> None:
    product = operation("MatMul", "x0 x1", "t0")
    inputs = (plain(2, 9, 8), plain(2, 8, 16))
    workload = Workload(op_type="", inputs=inputs, operations=(product,), output=plain(2, 9, 16))
    found = classify(workload)
    assert isinstance(found, Workload)
    assert found.op_type == "matmul"


@pytest.mark.parametrize("queries", [1, 33])
def test_heads_read_keys_and_values_of_their_own_group(queries: int) -> None:
    workload = with_shared_heads(queries, 21, groups=2)
    feed = random_inputs(workload, SEED)
    keys, values, asked = (feed[f"x{number}"].astype(np.float64) for number in range(3))
    keys, values = (np.repeat(given, 3, axis=1) for given in (keys, values))
    scores = 0.25 * (asked @ keys.swapaxes(-1, -2))
    grown = np.exp(scores - scores.max(axis=-1, keepdims=True))
    expected = (grown / grown.sum(axis=-1, keepdims=True) @ values).swapaxes(1, 2)
    made = best_kernel(workload).run(feed)
    assert np.max(np.abs(made - expected)) < 2e-6 * np.max(np.abs(expected))


@pytest.mark.parametrize("special", few_every_day([np.nan, np.inf, -np.inf]))
@pytest.mark.parametrize("name", ["x0", "x1", "x2"])
@pytest.mark.parametrize("queries", [1, 5])
def test_special_values_of_a_group_stay_in_it(queries: int, name: str, special: float) -> None:
    workload = with_shared_heads(queries, 21, groups=2)
    feed = {key: value.copy() for key, value in random_inputs(workload, SEED).items()}
    feed[name][0, 1, queries - 1, 5] = special
    made, expected = best_kernel(workload).run(feed), run_baseline(workload, feed).result
    np.testing.assert_array_equal(np.isnan(made), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(made), np.isinf(expected))
    assert np.isfinite(made[:, :, :1]).all()
