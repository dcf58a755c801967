"""The ways a convolution of plain tensors is computed, of which the search chooses one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aoe.kernels.algorithms import KNOB, is_allowed
from aoe.kernels.conv_nchw import tiles, winograd_line_tiles, winograd_tiles
from aoe.kernels.conv_nchw.direct import plain_pipeline
from aoe.kernels.conv_nchw.shape import ConvNchwPlan
from aoe.kernels.conv_nchw.winograd import check_row_winograd, row_winograd_pipeline
from aoe.kernels.conv_nchw.winograd_line import (
    check_line_winograd,
    line_winograd_pipeline,
)
from aoe.kernels.family import KernelTarget, Pipeline
from aoe.schedule import Choice, Step

Values = Mapping[str, Choice]
WINOGRAD = (winograd_tiles.WINOGRAD_4, winograd_tiles.WINOGRAD_2)
LINE = winograd_line_tiles.WINOGRAD_LINE
ALGORITHMS = (
    tiles.ROWS,
    tiles.CHANNELS,
    tiles.ROWS_IN_PAIRS,
    tiles.CHANNELS_IN_PAIRS,
    *WINOGRAD,
    LINE,
)
_GUESSES = {winograd_tiles.WINOGRAD_4: 2, winograd_tiles.WINOGRAD_2: 1, LINE: 2}
_DIRECT_GUESSES = 3
"""First guesses of each; one of direct algorithms but the first, together six at most."""


def algorithms_of(plan: ConvNchwPlan) -> tuple[str, ...]:
    """Return the algorithms for a convolution in the precision of its workload."""
    direct, shape = tiles.direct_algorithms(plan), plan.shape
    if not is_allowed(LINE, plan.workload.precision):
        return direct
    if shape.result[0] >= tiles.VECTOR and check_row_winograd(shape):
        return (*direct, *WINOGRAD)
    is_line = check_line_winograd(shape) and winograd_line_tiles.is_long_enough(shape)
    return (*direct, LINE) if is_line else direct


def pipeline(plan: ConvNchwPlan, algorithm: str) -> Pipeline:
    """Return an algorithm, not scheduled."""
    if algorithm in WINOGRAD:
        return row_winograd_pipeline(plan, winograd_tiles.row_transforms(algorithm, plan.shape))
    if algorithm == LINE:
        return line_winograd_pipeline(plan)
    return plain_pipeline(plan, tiles.panels_of(algorithm, plan.shape))


def choices(plan: ConvNchwPlan, algorithm: str, target: KernelTarget) -> dict[str, tuple[int, ...]]:
    """Return what may be chosen for the numbers of a configuration, rising."""
    if algorithm in WINOGRAD:
        return winograd_tiles.winograd_choices(plan, algorithm, target)
    if algorithm == LINE:
        return winograd_line_tiles.line_choices(plan, target)
    return tiles.choices(plan, algorithm, target)


def fits(values: Values, plan: ConvNchwPlan, target: KernelTarget) -> bool:
    """Return True if a configuration is worth a trial."""
    if values[KNOB] in WINOGRAD:
        return winograd_tiles.winograd_fits(values, plan, target)
    if values[KNOB] == LINE:
        return winograd_line_tiles.line_fits(values, plan, target)
    return tiles.fits(values, plan, target)


def first_guesses(plan: ConvNchwPlan, target: KernelTarget) -> tuple[dict[str, Choice], ...]:
    """Return the first guesses: of every algorithm some, of several register tiles."""
    names = algorithms_of(plan)
    chosen: list[tuple[float, dict[str, Choice]]] = []
    for name in names:
        most = _DIRECT_GUESSES if name == names[0] else 1
        found: dict[tuple[Choice, ...], tuple[float, dict[str, Choice]]] = {}
        for cycles, values in _ranked(plan, name, target):
            found.setdefault((*tiles.tile_of(values), values[tiles.SCOPE]), (cycles, values))
        chosen += _of_both_groups([*found.values()], _GUESSES.get(name, most))
    best_first = sorted(chosen, key=lambda item: item[0])
    return tuple(values for _, values in best_first)[:_MOST_GUESSES]


_MOST_GUESSES = 6
_FUSION_GROUPS_FROM = 3
"""Guesses of an algorithm from which on both scopes are among them. Which one is better depends on
the caches more than on anything that is counted: 32 to 16 channels of 64x64x64 in bfloat16 took
22.1 ms in groups, tried first, and 18.8 with the image copied at once (one thread of a Zen 5 with
other work, CPU time, 2026-11-23)."""


def _of_both_groups(
    ranked: Sequence[tuple[float, dict[str, Choice]]], most: int
) -> list[tuple[float, dict[str, Choice]]]:
    """Return the best of ranked configurations, at least one of either scope if they are many."""
    chosen = list(ranked[:most])
    scopes = {values[tiles.SCOPE] for _, values in chosen}
    others = [item for item in ranked[most:] if item[1][tiles.SCOPE] not in scopes]
    if most >= _FUSION_GROUPS_FROM and others:
        chosen[-1] = others[0]
    return chosen


def _ranked(
    plan: ConvNchwPlan, algorithm: str, target: KernelTarget
) -> list[tuple[float, dict[str, Choice]]]:
    if algorithm in WINOGRAD:
        return winograd_tiles.winograd_ranked(plan, algorithm, target)
    if algorithm == LINE:
        return winograd_line_tiles.line_ranked(plan, target)
    return tiles.ranked(plan, algorithm, target)


def steps(values: Values, plan: ConvNchwPlan, target: KernelTarget) -> Iterator[Step]:
    """Yield the steps of a configuration."""
    if values[KNOB] in WINOGRAD:
        return winograd_tiles.winograd_steps(values, plan, target)
    if values[KNOB] == LINE:
        return winograd_line_tiles.line_steps(values, plan, target)
    return tiles.direct_steps(values, plan, target)
