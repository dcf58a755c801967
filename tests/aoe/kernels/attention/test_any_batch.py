"""Attentions whose parts have batches of their own, are stored either way, masked and guarded.

The default tries some, `pytest -m slow` hundreds.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from support.contracts.kernels import (
    SEED,
    CompiledKernel,
    assert_close,
    kernel_target,
    operation,
    plain,
    run_baseline,
)
from support.tiers import few_every_day

from aoe.graph.workload_model import random_inputs
from aoe.kernels.algorithms import allowed_space
from aoe.kernels.registry import get_family
from aoe.operators import MICROSOFT_DOMAIN
from aoe.workload import Operation, Precision, TensorSpec, Workload

_SOME, _MANY = 8, 300


def _product(inputs: str, output: str, rng: random.Random, *, turned: bool) -> Operation:
    """Return one with or without a factor, stored either way."""
    factor = rng.choice([1.0, 0.25, -0.5])
    if not turned and factor == 1.0:
        return operation("MatMul", inputs, output)
    return operation(
        "FusedMatMul", inputs, output, domain=MICROSOFT_DOMAIN, alpha=factor, transB=int(turned)
    )


def _own_batch(batch: tuple[int, ...], rng: random.Random) -> tuple[int, ...]:
    """Return a batch that is broadcast to another, some extents of 1 and some left out."""
    kept = tuple(extent if rng.random() < 0.7 else 1 for extent in batch)
    return kept[rng.choice([0, 0, 0, len(kept) // 2]) :]


def _drawn(rng: random.Random) -> Workload:
    batch = tuple(rng.randint(1, 3) for _ in range(rng.randint(0, 3)))
    queries = rng.choice([1, 2, *range(5, 40)])
    keys, depth, columns = rng.randint(2, 70), rng.randint(1, 70), rng.randint(1, 70)
    key_turned, value_turned = rng.random() < 0.5, rng.random() < 0.3
    stored = (keys, depth) if key_turned else (depth, keys)
    values = (columns, keys) if value_turned else (keys, columns)
    inputs = [
        plain(*batch, queries, depth),  # scores have the batch of the queries
        plain(*_own_batch(batch, rng), *stored),
        plain(*_own_batch(batch, rng), *values),
    ]
    scalars: tuple[float, ...] = ()
    operations = [_product("x0 x1", "t0", rng, turned=key_turned)]
    if rng.random() < 0.7:
        inputs.append(_mask((*batch, queries, keys), rng))
        operations.append(operation("Add", "t0 x3" if rng.random() < 0.7 else "x3 t0", "t1"))
    scores = operations[-1].output
    operations.append(operation("Softmax", scores, "w0", axis=rng.choice([-1, len(batch) + 1])))
    weights = "w0"
    if rng.random() < 0.3:
        scalars = (0.0,)
        operations.append(operation("IsNaN", "w0", "w1"))
        operations.append(operation("Where", "w1 s0 w0", "w2"))
        weights = "w2"
    operations.append(_product(f"{weights} x2", "y0", rng, turned=value_turned))
    return Workload(
        op_type="attention",
        inputs=tuple(inputs),
        scalars=scalars,
        operations=tuple(operations),
        output=plain(*batch, queries, columns),
        precision=rng.choice([Precision.FLOAT32, Precision.FLOAT32, Precision.BFLOAT16]),
    )


def _mask(scored: tuple[int, ...], rng: random.Random) -> TensorSpec:
    shape = tuple(extent if rng.random() < 0.6 else 1 for extent in scored)
    return plain(*shape[rng.randint(0, len(shape) - 1) :])


def _try(number: int) -> None:
    rng = random.Random(f"attention {number}")
    workload = _drawn(rng)
    family, target = get_family("attention"), kernel_target()
    if not family.supports(workload):
        return
    space = allowed_space(family, workload, target)
    if space is None:
        return
    chosen = next(replace(space, first_guesses=()).draw(rng))
    kernel = CompiledKernel(workload, family.schedule(workload, chosen, target))
    feed = dict(random_inputs(workload, SEED + number))
    if "x3" in feed and rng.random() < 0.5:  # some keys are hidden, from some queries all
        hidden = np.random.default_rng(number).random(feed["x3"].shape) < 0.3
        feed["x3"] = np.where(hidden, np.float32(-np.inf), feed["x3"])
    run = run_baseline(workload, feed)
    assert_close(workload, kernel.run(run.inputs), run.result, f"{number}: {chosen}", share=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("number", few_every_day(range(_SOME), 2))
def test_attention_of_any_batch_is_computed(number: int) -> None:
    _try(number)


@pytest.mark.slow
def test_many_attentions_of_any_batch_are_computed() -> None:
    for number in range(_SOME, _SOME + _MANY):
        _try(number)


def test_most_of_what_is_tried_is_computed() -> None:
    family = get_family("attention")
    drawn = [_drawn(random.Random(f"attention {number}")) for number in range(60)]
    assert sum(bool(family.supports(workload)) for workload in drawn) > 30
