"""Blocked convolutions of shapes nobody has chosen, with any legal schedule, against the host.

The default tries some, `pytest -m slow` hundreds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from support.contracts.kernels import (
    SEED,
    CompiledKernel,
    assert_close,
    block_size,
    kernel_target,
    operation,
    run_baseline,
)
from support.engine.convolutions import (
    BLOCK,
    SILU,
    chained,
    convolution,
    depthwise,
    expansion,
    in_groups,
    pooled,
    stem,
)

from aoe.graph.workload_model import random_inputs, special_inputs
from aoe.kernels.algorithms import allowed_space
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import get_family
from aoe.workload import Precision, Workload

pytestmark = pytest.mark.skipif(not block_size(), reason="this CPU has no blocked layout")
_LIGHT = (operation("Neg", "t0", "t1"),)
_BETWEEN = (operation("Sigmoid", "p0", "p1"), operation("Mul", "p0 p1", "p2"))
_SOME, _MANY = 10, 300


def _drawn(
    rng: random.Random, kernel: tuple[int, int] | None = None, *, is_grouped: bool = False
) -> Workload:
    """Return a convolution with padding to any side, no result of which meets zeros alone."""
    blocks = rng.randint(1, 4), rng.randint(1, 4)
    if is_grouped:
        blocks = blocks[0], blocks[0]
    while True:
        size = rng.randint(1, 20), rng.randint(1, 20)
        taps = kernel or (rng.randint(1, 5), rng.randint(1, 5))
        dilations = rng.choice([1, 1, 2, 3, 12]), rng.choice([1, 1, 2, 5, 21])
        reach = [apart * (extent - 1) for apart, extent in zip(dilations, taps, strict=True)]
        pads = tuple(rng.randint(0, min(reach[at % 2], 25)) for at in range(4))
        if all(size[at] + pads[at] + pads[at + 2] > reach[at] for at in range(2)):
            break
    return convolution(
        size,
        batch=rng.choice([1, 1, 2, 3]),
        blocks=blocks,
        pads=(pads[0], pads[1], pads[2], pads[3]),
        bias=rng.random() < 0.7,
        added=rng.random() < 0.3,
        kernel=taps,
        strides=(rng.randint(1, 3), rng.randint(1, 3)),
        dilations=dilations,
        **rng.choice([{}, {"activation": "Relu"}, _CLIPPED]),
    )


_CLIPPED = {"activation": "Clip", "activation_params": (-0.5, 1.5)}


def _with_a_chain(known: Workload, rng: random.Random) -> Workload:
    return chained(known, *rng.choice([SILU, _LIGHT]))


def _of_some_groups(known: Workload) -> Workload:
    groups = known.inputs[0].shape[1] // BLOCK
    return in_groups(known, groups) if groups > 1 else depthwise(known)


def _expanded(rng: random.Random) -> Workload:
    known = _drawn(rng, is_grouped=True)
    second = depthwise(known) if rng.random() < 0.7 else _of_some_groups(known)
    if rng.random() < 0.5:
        second = _with_a_chain(second, rng)
    between = _BETWEEN[: rng.randint(0, 2)]
    return expansion(second, rng.randint(1, 4), *between, **rng.choice([{}, _CLIPPED]))


def _in_squares(rng: random.Random) -> Workload:
    """Return a convolution by Winograd, whole squares of whose results may be pooled."""
    is_pooled = rng.random() < 0.6
    while True:
        pads = (rng.randint(0, 2), rng.randint(0, 2), rng.randint(0, 2), rng.randint(0, 2))
        apart = 1 if is_pooled else rng.choice([1, 1, 2, 3])
        size = rng.randint(2 * apart + 1, 26), rng.randint(2 * apart + 1, 26)
        known = convolution(
            size,
            batch=rng.choice([1, 2]),
            blocks=(rng.randint(1, 4), rng.randint(1, 4)),
            pads=pads,
            bias=rng.random() < 0.7,
            added=rng.random() < 0.3,
            strides=rng.choice([(1, 1), (1, 1), (2, 2)]),
            dilations=(apart, apart),
            **rng.choice([{}, {"activation": "Relu"}, _CLIPPED]),
        )
        _, _, *extents = known.output.shape
        if not is_pooled or not any(extent % 2 for extent in extents):
            break
    if rng.random() < 0.5:
        known = _with_a_chain(known, rng)
    return pooled(known) if is_pooled else known


def _single_line(rng: random.Random) -> Workload:
    """Return a convolution whose filters are a row or a column, without strides."""
    while True:
        taps = rng.choice([3, 5, 7])
        known = _drawn(rng, rng.choice([(1, taps), (taps, 1)]))
        if known.operations[0].attributes["strides"] == (1, 1):
            return known


def _in_bfloat16(known: Workload) -> Workload:
    return replace(known, precision=Precision.BFLOAT16)


_KINDS: Mapping[str, Callable[[random.Random], Workload]] = {
    "direct": lambda rng: _with_a_chain(_drawn(rng), rng),
    "bfloat16": lambda rng: _in_bfloat16(_drawn(rng)),
    "depthwise": lambda rng: _with_a_chain(depthwise(_drawn(rng, is_grouped=True)), rng),
    "groups": lambda rng: _of_some_groups(_drawn(rng, is_grouped=True)),
    "stem": lambda rng: _with_a_chain(stem(_drawn(rng), rng.randint(1, 7)), rng),
    "stem in bfloat16": lambda rng: _in_bfloat16(stem(_drawn(rng), rng.randint(1, 7))),
    "expansion": _expanded,
    "squares": _in_squares,
    "single line": _single_line,
}


def _target() -> KernelTarget:
    """A CPU without matrix tiles: with them the family offers nothing else."""
    return replace(kernel_target(), bf16_tiles=False)


def _try(kind: str, number: int) -> None:
    rng = random.Random(f"{kind} {number}")
    workload = _KINDS[kind](rng)
    family = get_family(workload.op_type)
    if not family.supports(workload):
        return
    space = allowed_space(family, workload, _target())
    if space is None:
        return
    chosen = next(replace(space, first_guesses=()).draw(rng))
    kernel = CompiledKernel(workload, family.schedule(workload, chosen, _target()))
    for feed in (random_inputs(workload, SEED + number), special_inputs(workload, number)):
        run = run_baseline(workload, feed)
        assert_close(workload, kernel.run(run.inputs), run.result, f"{chosen}", share=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(_SOME))
def test_convolution_of_any_shape_is_computed(number: int) -> None:
    kinds = [*_KINDS]
    _try(kinds[number % len(kinds)], number)


@pytest.mark.slow
@pytest.mark.parametrize("kind", _KINDS)
def test_many_convolutions_of_any_shape_are_computed(kind: str) -> None:
    for number in range(_SOME, _SOME + _MANY):
        _try(kind, number)
