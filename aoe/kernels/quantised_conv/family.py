"""Quantised convolutions of images with channels last, and the chain behind them."""

from __future__ import annotations

from collections.abc import Mapping

from aoe.kernels.algorithms import known_algorithm
from aoe.kernels.family import KernelTarget, Pipeline, PlannedFamily, Support
from aoe.kernels.quantised_conv.depthwise import Depthwise
from aoe.kernels.quantised_conv.direct import Direct
from aoe.kernels.quantised_conv.matrix_tiles import MatrixTiles
from aoe.kernels.quantised_conv.planes import DirectPlanes, PlanesPlan, read_planes
from aoe.kernels.quantised_conv.rows import LEAST_ROW, DepthwiseRows, Rows
from aoe.kernels.quantised_conv.shape import (
    FOURS,
    PAIRS,
    QuantisedPlan,
    has_table,
    read_quantised,
    with_look_ups,
)
from aoe.kernels.tiled_products import SCOPE, tile_of, tiled_schedule, tiled_space
from aoe.operators import op_key
from aoe.operators.quantised import INTEGER_CONVOLUTION, QUANTISED_CONVOLUTIONS
from aoe.schedule import Choice, Schedule, Space, Values
from aoe.target import AMX, VNNI, WIDENED
from aoe.workload import Workload

_DENSE, _DEPTHWISE = "direct", "depthwise"
_PLANES, _ROWS, _DEPTHWISE_ROWS = "planes", "rows", "depthwise_rows"
_GUESSES = 5

ALGORITHMS: Mapping[str, Direct | Depthwise | MatrixTiles | Rows] = {
    f"{_DENSE}_{AMX}": MatrixTiles(guesses=_GUESSES - 1),
    f"{_DENSE}_{VNNI}": Direct(guesses=_GUESSES, unit=FOURS, needs_vnni=True),
    f"{_DENSE}_{WIDENED}": Direct(guesses=_GUESSES, unit=PAIRS),
    f"{_PLANES}_{VNNI}": DirectPlanes(guesses=_GUESSES, unit=FOURS, needs_vnni=True),
    f"{_PLANES}_{WIDENED}": DirectPlanes(guesses=_GUESSES, unit=PAIRS),
    f"{_ROWS}_{VNNI}": Rows(guesses=_GUESSES, unit=FOURS, needs_vnni=True),
    f"{_ROWS}_{WIDENED}": Rows(guesses=_GUESSES, unit=PAIRS),
    f"{_DEPTHWISE_ROWS}_{VNNI}": DepthwiseRows(guesses=_GUESSES, unit=FOURS, needs_vnni=True),
    f"{_DEPTHWISE_ROWS}_{WIDENED}": DepthwiseRows(guesses=_GUESSES, unit=PAIRS),
    f"{_DEPTHWISE}_{VNNI}": Depthwise(guesses=_GUESSES, unit=FOURS, needs_vnni=True),
    f"{_DEPTHWISE}_{WIDENED}": Depthwise(guesses=_GUESSES, unit=PAIRS),
}
"""By the name a schedule has. The results of all of them are the same integers; the name tells
records of CPUs with AMX or VNNI from others."""


class QuantisedConvolution(PlannedFamily[QuantisedPlan]):
    """y = chain(requantise(sum of (x - x_zero) * w + bias)), for levels of 8 bits."""

    name = "quantised_convolution"
    anchors = QUANTISED_CONVOLUTIONS | {INTEGER_CONVOLUTION}

    def plan(self, workload: Workload) -> QuantisedPlan | Support:
        """Plan one quantised convolution and a chain, or tell why not."""
        if any(op_key(item) == INTEGER_CONVOLUTION for item in workload.operations):
            return read_planes(workload)
        return read_quantised(workload)

    def pipeline_of(self, plan: QuantisedPlan, algorithm: str) -> Pipeline:
        """Return the algorithm called `algorithm`; by default one that every CPU has."""
        name = algorithm or _names(plan)[-1]
        return ALGORITHMS[known_algorithm(self.name, name, _names(plan))].pipeline(plan)

    def space_of(self, plan: QuantisedPlan, target: KernelTarget) -> Space:
        """Return the choices: register tile, and the copy of a task."""
        names = [
            one
            for one in _names(plan)
            if ALGORITHMS[one].is_available(target) and ALGORITHMS[one].supports(plan)
        ]
        # what every CPU has is offered where there is nothing else; beside tiles, one of vectors
        offered = names[:1] if VNNI in names[0] else names[:-1] or names
        guesses = [_first_guesses(plan, target, name) for name in offered]
        found = guesses[0] if len(offered) == 1 else (*guesses[0], *guesses[1][:1])
        return tiled_space({name: ALGORITHMS[name] for name in offered}, plan, target, found)

    def schedule_of(self, plan: QuantisedPlan, values: Values, target: KernelTarget) -> Schedule:
        schedule = tiled_schedule(ALGORITHMS, plan, values)
        return with_look_ups(schedule) if has_table(plan) else schedule


def _names(plan: QuantisedPlan) -> tuple[str, ...]:
    """Return the algorithms of a convolution, best first."""
    kind = _DEPTHWISE if plan.shape.is_depthwise else _DENSE
    if isinstance(plan, PlanesPlan):
        kind = _PLANES if plan.shape.result[0] < LEAST_ROW else _ROWS
        kind = _DEPTHWISE_ROWS if plan.shape.is_depthwise else kind
        if not plan.has_signed_weights:
            return (f"{kind}_{WIDENED}",)
    names = (f"{kind}_{known}" for known in (AMX, VNNI, WIDENED))
    return tuple(name for name in names if name in ALGORITHMS)


def _first_guesses(
    plan: QuantisedPlan, target: KernelTarget, name: str
) -> tuple[dict[str, Choice], ...]:
    """Return the cheapest configurations of several register tiles, of both kinds of tasks."""
    algorithm = ALGORITHMS[name]
    found: dict[tuple[Choice, ...], dict[str, Choice]] = {}
    for _, values in algorithm.ranked(plan, target, name):
        found.setdefault((*tile_of(values), values[SCOPE]), values)
    ranked = list(found.values())
    chosen = ranked[: algorithm.guesses]
    others = [values for values in ranked if values[SCOPE] != chosen[0][SCOPE]]
    if others and all(values[SCOPE] == chosen[0][SCOPE] for values in chosen):
        chosen[-1 if len(chosen) == algorithm.guesses else len(chosen) :] = others[:1]
    return tuple(chosen)
