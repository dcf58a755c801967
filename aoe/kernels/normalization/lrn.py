"""Local response normalisation across channels, with the element-wise chain behind it.

The loops; `tile` counts pixels, and tasks share what is outside of a tile:

    plain        images, tiles:  channels:  pixels of the tile, in vectors
                 the window of a channel is read again from the rows around it
    blocked      images, tiles:
                     squares     of all channels of a few pixels, in one line with zeros around it
                     y           blocks of channels and pixels; a window is read from the line
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import prod

import halide as hl

from aoe import schedule as sch
from aoe.kernels.family import KernelTarget, Pipeline, PlannedFamily, Support
from aoe.kernels.halide.anchored import (
    Anchored,
    AnchoredNest,
    anchor_operands,
    anchored_pipeline,
    plan_nest,
    split_at_anchor,
)
from aoe.kernels.halide.chain import RESULT, Operands, estimate_cycles
from aoe.kernels.halide.iteration import Axis
from aoe.kernels.halide.loops import moved_to
from aoe.kernels.halide.tiling import (
    estimate_us,
    inner_steps,
    parallel_steps,
    shared_space,
    tile_choices,
    tile_steps,
    vector_choices,
)
from aoe.kernels.math.functions import constant, inverse_power, power, strict
from aoe.operators import number
from aoe.schedule import Choice, Schedule, Space, Values
from aoe.workload import Workload

SQUARES = "squares"
_CHANNEL = "cc"
_CYCLES = 25
_SCRATCH_BYTES_MAX = 128 << 10
_NORMAL_BIAS = 1e-20
"""Bias from which the normaliser is a normal float32 whatever the input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _LrnPlan:
    """A workload's loops, and the operator's attributes, defaults filled in.

    Source: ONNX operator LRN, versions 1 and 13.
    """

    nest: AnchoredNest
    size: int
    alpha: float
    beta: float
    bias: float

    @property
    def offsets(self) -> range:
        """Channels summed up, relative to the one computed."""
        below = (self.size - 1) // 2
        return range(-below, self.size - below)

    def work_us(self, target: KernelTarget) -> float:
        """Return the estimated time of one core."""
        cycles = _CYCLES + 2 * self.size + estimate_cycles(self.nest.parts.after)
        elements = self.nest.workload.output.size
        return estimate_us(elements, cycles, 8 * elements, target)


class Lrn(PlannedFamily[_LrnPlan]):
    """x / (bias + alpha / size * sum of squares over neighbouring channels)^beta.

    Tiles of pixels are walked along the channels, so that the neighbouring rows stay in the
    first-level cache. In blocks a window crosses from one block into the next, so squares go
    through a line that is contiguous over all channels.
    """

    name = "lrn"
    anchors = frozenset({("", "LRN")})

    def plan(self, workload: Workload) -> _LrnPlan | Support:
        """Plan one LRN of images and a chain behind it, or tell why not."""
        parts = split_at_anchor(workload, self.anchors)
        if isinstance(parts, Support):
            return parts
        reason = _refusal(parts)
        if reason:
            return Support(reason)
        nest = plan_nest(parts, ("co", "ci") if workload.blocked else ("c",))
        if isinstance(nest, Support):
            return nest
        given = parts.anchor.attributes
        return _LrnPlan(
            nest=nest,
            size=int(number(given, "size", 1)),
            alpha=number(given, "alpha", 1e-4),
            beta=number(given, "beta", 0.75),
            bias=number(given, "bias", 1.0),
        )

    def pipeline_of(self, plan: _LrnPlan, algorithm: str) -> Pipeline:
        """Return the normalisation with its chain inlined; blocked with the scratch stage."""
        operands = anchor_operands(plan.nest)
        stages = {SQUARES: _blocked_squares(plan, operands)} if plan.nest.workload.blocked else {}
        window = _blocked_window(plan, stages[SQUARES]) if stages else _plain_window(plan, operands)
        normaliser = hl.Func("normaliser")
        normaliser[operands.variables] = _normaliser(window, plan, operands.variables)
        value = operands.values[f"x{plan.nest.parts.source}"]
        result = strict(value * normaliser[operands.variables])
        loops = {name: tuple((v.name(), 0) for v in f.args()) for name, f in stages.items()}
        return anchored_pipeline(plan.nest, operands, result, stages, loops)

    def space_of(self, plan: _LrnPlan, target: KernelTarget) -> Space:
        """Return pixels per tile, vector width and unrolling (plain), and tasks."""
        space = _blocked_space if plan.nest.workload.blocked else _plain_space
        return space(plan, target)

    def schedule_of(self, plan: _LrnPlan, values: Values, target: KernelTarget) -> Schedule:
        made = _blocked_schedule if plan.nest.workload.blocked else _plain_schedule
        return made(plan, values)


def _refusal(parts: Anchored) -> str:
    size, shape = parts.anchor.attributes.get("size", 0), parts.workload.output.shape
    if not isinstance(size, int) or size < 1:
        return f"LRN over {size} channels"
    if parts.workload.inputs[parts.source].shape != shape:
        return "LRN is broadcast by what follows"
    if len(shape) != 4:
        return f"LRN of rank {len(shape)}, images have 4"
    return "LRN of a single pixel" if prod(shape[2:]) == 1 else ""


def _normaliser(window: hl.Expr, plan: _LrnPlan, variables: tuple[hl.Var, ...]) -> hl.Expr:
    """Return (bias + alpha / size * window)^-beta."""
    summed, base = hl.Func("summed"), hl.Func("base")
    summed[variables] = window
    factor, bias = constant(plan.alpha / plan.size), constant(plan.bias)
    base[variables] = strict(summed[variables] * factor + bias)
    if plan.bias >= _NORMAL_BIAS and plan.alpha >= 0:
        return inverse_power(base[variables], plan.beta)
    return power(base[variables], constant(-plan.beta))


def _element(plan: _LrnPlan, operands: Operands, place: Mapping[str, hl.Expr]) -> hl.Expr:
    """Return an element of the normalised tensor, some loop variables replaced."""
    argument = operands.arguments[plan.nest.parts.source]
    return argument[moved_to(operands.variables, place)]


def _plain_window(plan: _LrnPlan, operands: Operands) -> hl.Expr:
    """Return the sum of squares of the neighbours inside the tensor."""
    channels, total = plan.nest.workload.output.shape[1], constant(0.0)
    for offset in plan.offsets:
        at = hl.Var("c") + offset
        value = _element(plan, operands, {"c": hl.clamp(at, 0, channels - 1)})
        inside = hl.likely(at >= 0) & hl.likely(at < channels)
        total = total + hl.select(inside, value * value, constant(0.0))
    return total


def _blocked_squares(plan: _LrnPlan, operands: Operands) -> hl.Func:
    """Return the squares of one pixel, contiguous over channels, zero outside of them."""
    output, channel = plan.nest.workload.output, hl.Var(_CHANNEL)
    block, channels = output.block, output.shape[1]
    blocks = hl.clamp(channel // block, 0, channels // block - 1)
    value = _element(plan, operands, {"ci": channel % block, "co": blocks})
    inside = (channel >= 0) & (channel < channels)
    pixel = (v for v in operands.variables if v.name() not in ("ci", "co"))
    squares = hl.Func(SQUARES)
    squares[(channel, *pixel)] = hl.select(inside, value * value, constant(0.0))
    squares.align_bounds(channel, block)
    squares.compute_root()  # steps place it closer
    return squares


def _blocked_window(plan: _LrnPlan, squares: hl.Func) -> hl.Expr:
    """Return the sum of neighbouring squares from the scratch stage."""
    channel = hl.Var("co") * plan.nest.workload.output.block + hl.Var("ci")
    total = constant(0.0)
    for offset in plan.offsets:
        total = total + squares[(channel + offset, *squares.args()[1:])]
    return total


def _plain_space(plan: _LrnPlan, target: KernelTarget) -> Space:
    pixels = plan.nest.axes[-1].extent
    vectors = vector_choices(pixels, target.vector_lanes)
    tiles = tile_choices(pixels, 2 * target.vector_lanes)
    work, parts = plan.work_us(target), plan.nest.iteration.size // target.vector_lanes
    knobs = {"tile": tiles, "vector": vectors, "unroll": (1, 2)}

    def legal(values: Values) -> bool:
        tile, vector, unroll = (int(values[name]) for name in ("tile", "vector", "unroll"))
        together = vector * unroll
        if (tile < pixels and tile % together) or (unroll > 1 and together > tile):
            return False
        return int(values["tasks"]) <= prod(axis.extent for axis in _plain_outer(plan, tile))

    double = vectors[min(1, len(vectors) - 1)]
    shapes = [  # the last one is always legal
        (tiles[min(3, len(tiles) - 1)], double, 1),
        (tiles[-1], vectors[-1], 2),
        (tiles[min(1, len(tiles) - 1)], double, 1),
        (tiles[min(2, len(tiles) - 1)], vectors[0], 1),
        (tiles[-1], vectors[0], 1),
    ]
    return shared_space(work, parts, target, knobs, shapes, legal)


def _plain_outer(plan: _LrnPlan, tile: int) -> tuple[Axis, ...]:
    """Return the loops that tasks share: around tiles of pixels, or all but a row of them."""
    pixels = plan.nest.axes[-1]
    if tile >= pixels.extent:
        return plan.nest.axes[:-1]
    return plan.nest.iteration.around(Axis(pixels.name, tile), ("c", pixels.name))


def _plain_schedule(plan: _LrnPlan, values: Values) -> Schedule:
    tile, vector, unroll, tasks = (int(values[n]) for n in ("tile", "vector", "unroll", "tasks"))
    pixel, pixels = plan.nest.axes[-1].name, plan.nest.axes[-1].extent
    outer = _plain_outer(plan, tile)
    shared_out = parallel_steps(RESULT, outer, tasks)
    # a tile of all pixels is no tile: channels stay outside, and rows are walked as they lie
    if tile >= pixels:
        return Schedule((*inner_steps(RESULT, pixel, pixels, vector, unroll), *shared_out))
    lanes = (["lane"] if vector > 1 or unroll > 1 else []) + ([f"{pixel}_u"] if unroll > 1 else [])
    inner = inner_steps(RESULT, pixel, tile, vector, unroll)
    order = (*lanes, pixel, "c")
    return Schedule((*tile_steps(RESULT, Axis(pixel, tile), outer, order, inner), *shared_out))


def _blocked_space(plan: _LrnPlan, target: KernelTarget) -> Space:
    channels, block = plan.nest.workload.output.shape[1], plan.nest.workload.output.block
    pixels = plan.nest.axes[-2].extent
    # squares of a pixel with the zeros on both sides of its channels
    line_bytes = 4 * (channels + 2 * block * -(-plan.size // block))
    tiles = tuple(
        t for t in (1, 2, 4, 8, 16, 32) if t <= pixels and t * line_bytes <= _SCRATCH_BYTES_MAX
    )
    orders = ("blocks_outer", "pixels_outer")
    knobs: dict[str, tuple[Choice, ...]] = {"pixels": tiles, "order": orders}
    shapes = product((tiles[-2] if len(tiles) > 1 else tiles[-1], tiles[-1]), orders)
    parts = plan.nest.iteration.size // (channels * tiles[-1])
    return shared_space(plan.work_us(target), parts, target, knobs, shapes)


def _blocked_schedule(plan: _LrnPlan, values: Values) -> Schedule:
    block, pixel = plan.nest.workload.output.block, plan.nest.axes[-2].name
    tile = Axis(pixel, int(values["pixels"]))
    outer = plan.nest.iteration.around(tile, ("co", pixel, "ci"))
    nest = ("co", pixel) if values["order"] == "pixels_outer" else (pixel, "co")
    return Schedule(
        (
            *tile_steps(RESULT, tile, outer, ("ci", *nest)),
            sch.Vectorize(RESULT, "ci", block),
            *parallel_steps(RESULT, outer, int(values["tasks"])),
            sch.ComputeAt(SQUARES, RESULT, outer[-1].name),
            sch.StoreIn(SQUARES, sch.Memory.STACK),
            sch.Vectorize(SQUARES, _CHANNEL, block),
        )
    )
