"""The ways a convolution of plain tensors is computed, of which the search chooses one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aoe.kernels.algorithms import is_allowed
from aoe.kernels.conv_nchw import tiles, winograd_line_tiles, winograd_tiles
from aoe.kernels.conv_nchw.direct import plain_pipeline
from aoe.kernels.conv_nchw.shape import ConvNchwPlan
from aoe.kernels.conv_nchw.winograd import check_row_winograd, row_winograd_pipeline
from aoe.kernels.conv_nchw.winograd_line import (
    check_line_winograd,
    line_winograd_pipeline,
)
from aoe.kernels.family import KernelTarget
from aoe.kernels.tiled_products import SCOPE, TiledAlgorithm, tile_of
from aoe.schedule import Choice

WINOGRAD = (winograd_tiles.WINOGRAD_4, winograd_tiles.WINOGRAD_2)
LINE = winograd_line_tiles.WINOGRAD_LINE
_DIRECT_GUESSES = 3
"""First guesses of the first of the direct algorithms; together they are six at most."""


def _direct(name: str) -> TiledAlgorithm[ConvNchwPlan]:
    """Return every product once, in vectors of neighbours or of channels."""
    return TiledAlgorithm(
        guesses=1,
        pipeline=lambda plan: plain_pipeline(plan, tiles.panels_of(name, plan.shape)),
        tiles=lambda plan, target: tiles.offered_tiles(plan, name, target),
        rows=lambda plan, target: tiles.GROUPS,
        fits=tiles.fits,
        cost=tiles.cycles_of,
        steps=tiles.direct_steps,
    )


def _winograd(name: str, *, guesses: int) -> TiledAlgorithm[ConvNchwPlan]:
    """Return fewer products on tiles that are transformed across rows."""
    return TiledAlgorithm(
        guesses=guesses,
        pipeline=lambda plan: row_winograd_pipeline(
            plan, winograd_tiles.row_transforms(name, plan.shape)
        ),
        tiles=lambda plan, target: winograd_tiles.winograd_offered(plan, name, target),
        rows=lambda plan, target: winograd_tiles.winograd_groups(plan, name),
        fits=winograd_tiles.winograd_fits,
        cost=winograd_tiles.winograd_cycles,
        steps=winograd_tiles.winograd_steps,
    )


_LINE = TiledAlgorithm(
    guesses=2,
    pipeline=line_winograd_pipeline,
    tiles=winograd_line_tiles.line_offered,
    rows=lambda plan, target: winograd_line_tiles.LINE_GROUPS,
    fits=winograd_line_tiles.line_fits,
    cost=lambda values, plan, target: winograd_line_tiles.line_cycles(values, plan.shape, target),
    steps=winograd_line_tiles.line_steps,
)
"""Fewer products of signals."""

ALGORITHMS: Mapping[str, TiledAlgorithm[ConvNchwPlan]] = {
    tiles.ROWS: _direct(tiles.ROWS),
    tiles.CHANNELS: _direct(tiles.CHANNELS),
    tiles.ROWS_IN_PAIRS: _direct(tiles.ROWS_IN_PAIRS),
    tiles.CHANNELS_IN_PAIRS: _direct(tiles.CHANNELS_IN_PAIRS),
    winograd_tiles.WINOGRAD_4: _winograd(winograd_tiles.WINOGRAD_4, guesses=2),
    winograd_tiles.WINOGRAD_2: _winograd(winograd_tiles.WINOGRAD_2, guesses=1),
    LINE: _LINE,
}
"""By the name a schedule has."""


def algorithms_of(plan: ConvNchwPlan) -> tuple[str, ...]:
    """Return the algorithms for a convolution in the precision of its workload."""
    direct, shape = tiles.direct_algorithms(plan), plan.shape
    if not is_allowed(LINE, plan.workload.precision):
        return direct
    if shape.result[0] >= tiles.VECTOR and check_row_winograd(shape):
        return (*direct, *WINOGRAD)
    is_line = check_line_winograd(shape) and winograd_line_tiles.is_long_enough(shape)
    return (*direct, LINE) if is_line else direct


def first_guesses(plan: ConvNchwPlan, target: KernelTarget) -> tuple[dict[str, Choice], ...]:
    """Return the first guesses: of every algorithm some, of several register tiles."""
    names = algorithms_of(plan)
    chosen: list[tuple[float, dict[str, Choice]]] = []
    for name in names:
        most = _DIRECT_GUESSES if name == names[0] else ALGORITHMS[name].guesses
        found: dict[tuple[Choice, ...], tuple[float, dict[str, Choice]]] = {}
        for cycles, values in ALGORITHMS[name].ranked(plan, target, name):
            found.setdefault((*tile_of(values), values[SCOPE]), (cycles, values))
        chosen += _of_both_groups([*found.values()], most)
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
    scopes = {values[SCOPE] for _, values in chosen}
    others = [item for item in ranked[most:] if item[1][SCOPE] not in scopes]
    if most >= _FUSION_GROUPS_FROM and others:
        chosen[-1] = others[0]
    return chosen
