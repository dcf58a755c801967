"""Convolutions of plain tensors, transposed or not, with the chain behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aoe.kernels.algorithms import STREAMED, is_allowed, known_algorithm
from aoe.kernels.conv_nchw import direct
from aoe.kernels.conv_nchw.shape import ConvNchwPlan, check_plain_arguments, read_plain
from aoe.kernels.conv_nchw.winograd import (
    LineWinograd,
    RowWinograd,
    check_line_winograd,
    check_row_winograd,
    is_long_enough,
)
from aoe.kernels.conv_nchw.winograd_groups import GroupWinograd, check_group_winograd
from aoe.kernels.conv_nchwc.winograd.transforms import F2, F4
from aoe.kernels.family import KernelTarget, Pipeline, PlannedFamily, Support
from aoe.kernels.tiled_products import SCOPE, TiledAlgorithm, tile_of, tiled_schedule, tiled_space
from aoe.operators.products import PLAIN_CONVOLUTIONS
from aoe.schedule import Choice, Schedule, Space, Values
from aoe.workload import Workload

WINOGRAD, LINE = ("winograd_rows_4", "winograd_rows_2"), "winograd_line_4"
GROUPS = (f"winograd_4x4_groups_{STREAMED}", f"winograd_2x2_groups_{STREAMED}")
_DIRECT = (direct.ROWS, direct.CHANNELS, direct.ROWS_IN_PAIRS, direct.CHANNELS_IN_PAIRS)
_DIRECT_GUESSES = 3
"""First guesses of the first of the direct algorithms; together they are six at most."""
_MOST_GUESSES = 6
_FUSION_GROUPS_FROM = 3
"""Guesses of an algorithm from which on both scopes are among them. Which one is better depends on
the caches more than on anything that is counted: 32 to 16 channels of 64x64x64 in bfloat16 took
22.1 ms in groups, tried first, and 18.8 with the image copied at once (one thread of a Zen 5 with
other work, CPU time, 2026-11-23)."""

ALGORITHMS: Mapping[str, TiledAlgorithm[ConvNchwPlan]] = {
    **{name: direct.Direct(name=name, guesses=1) for name in _DIRECT},
    WINOGRAD[0]: RowWinograd(results=4, guesses=2),
    WINOGRAD[1]: RowWinograd(results=2, guesses=1),
    LINE: LineWinograd(guesses=2),
    GROUPS[0]: GroupWinograd(transforms=F4, guesses=2),
    GROUPS[1]: GroupWinograd(transforms=F2, guesses=1),
}
"""By the name a schedule has."""


class ConvNchw(PlannedFamily[ConvNchwPlan]):
    """y = chain(activation(x * w + bias + sum)) of one, two or three axes, not in blocks.

    ONNX Runtime gathers the elements each result reads and multiplies matrices; what gains is
    not to gather, and products of bfloat16 where they are allowed.
    """

    name = "plain_convolution"
    anchors = PLAIN_CONVOLUTIONS

    def plan(self, workload: Workload) -> ConvNchwPlan | Support:
        """Plan one convolution of plain tensors and a chain, or tell why not."""
        return read_plain(workload)

    def supports(self, workload: Workload) -> Support:
        """Check that there is a plan whose chain reads inputs as the convolution does."""
        plan = self.plan(workload)
        return plan if isinstance(plan, Support) else check_plain_arguments(plan)

    def pipeline_of(self, plan: ConvNchwPlan, algorithm: str) -> Pipeline:
        """Return the algorithm called `algorithm`; by default the first of its precision."""
        name = algorithm or _algorithms_of(plan)[0]
        return ALGORITHMS[known_algorithm(self.name, name, ALGORITHMS)].pipeline(plan)

    def space_of(self, plan: ConvNchwPlan, target: KernelTarget) -> Space:
        """Return the choices: vector axis, register tile, and the copy of a task."""
        offered = {name: ALGORITHMS[name] for name in _algorithms_of(plan)}
        return tiled_space(offered, plan, target, _first_guesses(plan, target))

    def schedule_of(self, plan: ConvNchwPlan, values: Values, target: KernelTarget) -> Schedule:
        return tiled_schedule(ALGORITHMS, plan, values)


def _algorithms_of(plan: ConvNchwPlan) -> tuple[str, ...]:
    """Return the algorithms for a convolution in the precision of its workload."""
    always, shape = direct.direct_algorithms(plan), plan.shape
    if shape.is_open or not is_allowed(LINE, plan.workload.precision):
        return always
    if check_group_winograd(shape):
        return (*always, *GROUPS)
    if shape.result[0] >= direct.VECTOR and check_row_winograd(shape):
        return (*always, *WINOGRAD)
    is_line = check_line_winograd(shape) and is_long_enough(shape)
    return (*always, LINE) if is_line else always


def _first_guesses(plan: ConvNchwPlan, target: KernelTarget) -> tuple[dict[str, Choice], ...]:
    """Return the first guesses: of every algorithm some, of several register tiles."""
    names = _algorithms_of(plan)
    chosen: list[tuple[float, dict[str, Choice]]] = []
    for name in names:
        most = _DIRECT_GUESSES if name == names[0] else ALGORITHMS[name].guesses
        found: dict[tuple[Choice, ...], tuple[float, dict[str, Choice]]] = {}
        for cycles, values in ALGORITHMS[name].ranked(plan, target, name):
            found.setdefault((*tile_of(values), values[SCOPE]), (cycles, values))
        chosen += _of_both_groups([*found.values()], most)
    best_first = sorted(chosen, key=lambda item: item[0])
    return tuple(values for _, values in best_first)[:_MOST_GUESSES]


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
