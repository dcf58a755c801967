"""Dense convolution of images, with the chain behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod

from aoe.kernels.algorithms import STREAMED, is_allowed, known_algorithm
from aoe.kernels.conv_nchwc.depthwise import Depthwise
from aoe.kernels.conv_nchwc.direct import Direct
from aoe.kernels.conv_nchwc.matrix_tiles import MatrixTiles
from aoe.kernels.conv_nchwc.shape import (
    ConvolutionPlan,
    ConvolutionShape,
    check_arguments,
    read_convolution,
)
from aoe.kernels.conv_nchwc.winograd.streamed import StreamedWinograd
from aoe.kernels.conv_nchwc.winograd.tiles import Winograd
from aoe.kernels.conv_nchwc.winograd.transforms import (
    F2,
    F2_STRIDE_2,
    F3,
    F4,
    F4_STRIDE_2,
    F4_TAPS_5,
    F4_TAPS_7,
    single_column,
    single_row,
    square,
)
from aoe.kernels.family import SUPPORTED, KernelTarget, Pipeline, PlannedFamily, Support
from aoe.kernels.tiled_products import SCOPE, TiledAlgorithm, tiled_schedule, tiled_space
from aoe.operators import BLOCKED_CONVOLUTION
from aoe.schedule import Choice, Schedule, Space, Values
from aoe.workload import Precision, Workload

TILES = "direct_tiles"
"""The algorithm that, on CPUs which have it, leaves other sums of bfloat16 nothing to win."""

ALGORITHMS: Mapping[str, TiledAlgorithm[ConvolutionPlan]] = {
    "winograd_4x4": Winograd(transforms=square(F4), guesses=2),
    "winograd_2x2": Winograd(transforms=square(F2), guesses=1),
    "winograd_3x3": Winograd(transforms=square(F3), guesses=1, is_for_phases=True, pools=False),
    "winograd_4x4_stride_2": Winograd(transforms=square(F4_STRIDE_2), guesses=2),
    "winograd_2x2_stride_2": Winograd(transforms=square(F2_STRIDE_2), guesses=1),
    f"winograd_4x4_{STREAMED}": StreamedWinograd(transforms=square(F4), guesses=1),
    f"winograd_2x2_{STREAMED}": StreamedWinograd(transforms=square(F2), guesses=1),
    "winograd_4x4_taps_5": Winograd(transforms=square(F4_TAPS_5), guesses=2),
    "winograd_1x4": Winograd(transforms=single_row(F4), guesses=2, pools=False),
    "winograd_4x1": Winograd(transforms=single_column(F4), guesses=2, pools=False),
    "winograd_1x4_taps_5": Winograd(transforms=single_row(F4_TAPS_5), guesses=2, pools=False),
    "winograd_4x1_taps_5": Winograd(transforms=single_column(F4_TAPS_5), guesses=2, pools=False),
    "winograd_1x4_taps_7": Winograd(transforms=single_row(F4_TAPS_7), guesses=2, pools=False),
    "winograd_4x1_taps_7": Winograd(transforms=single_column(F4_TAPS_7), guesses=2, pools=False),
    "direct": Direct(precision=Precision.FLOAT32, guesses=2),
    "depthwise": Depthwise(guesses=4),
    "direct_bf16": Direct(precision=Precision.BFLOAT16, guesses=3),
    TILES: MatrixTiles(guesses=4),
}
"""By the name a schedule has; the first that computes a workload is its default."""


_FEW_PIXELS = 1024
"""Results of a filter up to which transformed filters do not pay for being read from memory:
128 x 128 of 28 x 28 take 560 us so, 390 transformed where they are used; 64 x 64 of 56 x 56, which
stay in the cache, 400 and 440 (CPU time with weights in no cache, one thread of a Zen 5,
2026-11-23)."""
_LANES = 16
"""Lanes from which on transforming a filter where it is used is faster than reading it, but for few
channels of a group: with 8, 256 channels of 14x14 take 1.25 times as long so, 512 of 7x7 2.2 times
(one thread of a Zen 4 with other work, CPU time with weights in no cache, 2026-11-28)."""


class Convolution(PlannedFamily[ConvolutionPlan]):
    """y = chain(activation(x * w + bias + sum)), blocked.

    ONNX Runtime's own blocked convolution runs at the roof of the hardware, so what gains is
    doing less: Winograd's minimal filtering, 2.25 (2 x 2) or 4 (4 x 4) times fewer products, 6.25
    with 5 x 5 filters, 2 to 2.8 where they are a single row or column; products of
    bfloat16, where they are allowed; and no pass of its own for the chain, or for the pooling
    behind a convolution whose tiles hold whole squares.
    """

    name = "convolution"
    anchors = frozenset({BLOCKED_CONVOLUTION})

    def plan(self, workload: Workload) -> ConvolutionPlan | Support:
        """Plan one blocked convolution and its chains, or tell why not."""
        return read_convolution(workload, takes_long_rows=True)

    def supports(self, workload: Workload) -> Support:
        """Check that the workload is one convolution that an algorithm could speed up."""
        plan = self.plan(workload)
        if isinstance(plan, Support):
            return plan
        arguments = check_arguments(plan)
        if not arguments or _computing(plan):
            return arguments
        refused = [algorithm.supports(plan).reason for algorithm in ALGORITHMS.values()]
        reasons = "; ".join(dict.fromkeys(filter(None, refused)))
        return Support(reasons or f"Conv in {workload.precision.value}")

    def pipeline_of(self, plan: ConvolutionPlan, algorithm: str) -> Pipeline:
        """Return the algorithm called `algorithm`; by default the one with fewest products."""
        name = algorithm or _computing(plan)[0]
        return ALGORITHMS[known_algorithm(self.name, name, ALGORITHMS)].pipeline(plan)

    def space_of(self, plan: ConvolutionPlan, target: KernelTarget) -> Space:
        """Return algorithm, register tile, and what is kept between the stages."""
        offered = {name: ALGORITHMS[name] for name in _offered(plan, target)}
        guesses = [
            guess
            for name, algorithm in offered.items()
            for guess in _varied(algorithm.ranked(plan, target, name), algorithm.guesses)
        ]
        return tiled_space(offered, plan, target, guesses)

    def schedule_of(self, plan: ConvolutionPlan, values: Values, target: KernelTarget) -> Schedule:
        return tiled_schedule(ALGORITHMS, plan, values)


def _computing(plan: ConvolutionPlan) -> tuple[str, ...]:
    """Return the algorithms that compute a convolution in its precision."""
    precision, is_pooled = plan.workload.precision, plan.shape.pooled > 1
    return tuple(
        name
        for name, algorithm in ALGORITHMS.items()
        if is_allowed(name, precision)
        and (algorithm.pools or not is_pooled)
        and algorithm.supports(plan) == SUPPORTED
    )


def _offered(plan: ConvolutionPlan, target: KernelTarget) -> tuple[str, ...]:
    """Return the algorithms the CPU has instructions for; all where it has them for none."""
    computing = _computing(plan)
    available = tuple(name for name in computing if ALGORITHMS[name].is_available(target))
    if TILES in available:
        return (TILES,)
    offered = available or computing
    if not _waits_for_weights(plan.shape, target):
        return offered
    return tuple(sorted(offered, key=lambda name: not name.endswith(STREAMED)))


def _waits_for_weights(shape: ConvolutionShape, target: KernelTarget) -> bool:
    """Return True if reading transformed filters takes longer than transforming them."""
    if shape.groups == 1 and target.vector_lanes < _LANES:
        return False
    transformed = 4 * prod(shape.weight_extents) * F4.products**2 // prod(shape.kernel)
    return transformed > target.l2_bytes and shape.rows * shape.columns <= _FEW_PIXELS


def _varied(
    ranked: Sequence[tuple[float, dict[str, Choice]]], count: int
) -> list[dict[str, Choice]]:
    """Return the first guesses of both scopes and of several register tiles."""
    taken: list[dict[str, Choice]] = []
    tried: Counter[Choice] = Counter()
    for _, guess in ranked:
        if len(taken) == count:
            break
        scope = guess[SCOPE]
        if tried[scope] < -(-count // 2):
            tried[scope] += 1
            taken.append(guess)
    return taken
