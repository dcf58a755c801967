"""Local response normalisation across channels, with the element-wise chain behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import halide as hl

from aoe.kernels.family import SUPPORTED, KernelTarget, Pipeline, Support
from aoe.kernels.halide.anchored import Anchored, split_at_anchor
from aoe.kernels.halide.chain import (
    RESULT,
    build_chain,
    estimate_cycles,
    load_arguments,
    loop_variables,
    make_arguments,
)
from aoe.kernels.halide.iteration import Iteration, plan_iteration
from aoe.kernels.halide.tiling import (
    GUESSES_MAX,
    best_tasks,
    estimate_us,
    inner_steps,
    parallel_steps,
    task_choices,
    vector_choices,
)
from aoe.kernels.math.functions import constant, strict
from aoe.kernels.math.powers import inverse_power, power
from aoe.schedule import (
    Choice,
    ComputeAt,
    Configuration,
    Knob,
    Memory,
    Reorder,
    Schedule,
    Space,
    Split,
    Step,
    StoreIn,
    Tail,
    Vectorize,
)
from aoe.workload import Workload

SQUARES = "squares"
_CHANNEL = "cc"
_CYCLES = 25
_SCRATCH_BYTES_MAX = 128 << 10
_NORMAL_BIAS = 1e-20
"""Bias from which the normaliser is a normal float32 whatever the input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attributes:
    """Of the operator, defaults filled in. Source: ONNX operator LRN, versions 1 and 13."""

    size: int
    alpha: float
    beta: float
    bias: float

    @property
    def offsets(self) -> range:
        """Channels summed up, relative to the one computed."""
        below = (self.size - 1) // 2
        return range(-below, self.size - below)


class Lrn:
    """x / (bias + alpha / size * sum of squares over neighbouring channels)^beta.

    Plain: pixels are vectorised, and tiles of pixels are walked along the channels, so that the
    neighbouring rows stay in the first-level cache. Blocked: the squares of a few pixels are
    written to a scratch line that is contiguous over all channels, padded with zeros, and
    windows are read from there.
    """

    name = "lrn"
    anchors: frozenset[tuple[str, str]] = frozenset({("", "LRN")})

    def supports(self, workload: Workload) -> Support:
        """Tell whether the workload is one LRN of images and a chain behind it."""
        parts = split_at_anchor(workload, self.anchors)
        if isinstance(parts, Support):
            return parts
        size = parts.anchor.attributes.get("size", 0)
        if not isinstance(size, int) or size < 1:
            return Support(f"LRN over {size} channels")
        if workload.inputs[parts.source].shape != workload.output.shape:
            return Support("LRN is broadcast by what follows")
        if len(workload.output.shape) != 4:
            return Support(f"LRN of rank {len(workload.output.shape)}, images have 4")
        if prod(workload.output.shape[2:]) == 1:
            return Support("LRN of a single pixel")
        iteration = _plan(workload)
        return SUPPORTED if isinstance(iteration, Iteration) else iteration

    def pipeline(self, workload: Workload, algorithm: str = "") -> Pipeline:
        """Return the normalisation with its chain inlined; blocked with the scratch stage."""
        parts, iteration = _parts(workload), _iteration(workload)
        variables = loop_variables(iteration)
        arguments = make_arguments(workload, iteration)
        attributes = _attributes(parts)
        source = _Source(arguments[parts.source], iteration, variables)
        squares = source.blocked_squares(workload) if workload.blocked else None
        if squares is None:
            window = source.plain_window(attributes.offsets, workload.output.shape[1])
        else:
            window = source.blocked_window(squares, attributes.offsets, workload.output.block)
        loaded = load_arguments(arguments, iteration, variables)
        values = build_chain(parts.before, loaded, workload.scalars, variables)
        normaliser, normalised = hl.Func("normaliser"), hl.Func("normalised")
        normaliser[variables] = _normaliser(window, attributes, variables)
        normalised[variables] = strict(loaded[f"x{parts.source}"] * normaliser[variables])
        values[parts.anchor.output] = normalised[variables]
        values = build_chain(parts.after, values, workload.scalars, variables)
        output = hl.Func(RESULT)
        output[variables] = values[workload.result]
        stages = {RESULT: output}
        loops = {RESULT: tuple((axis.name, axis.extent) for axis in reversed(iteration.axes))}
        if squares is not None:
            stages[SQUARES] = squares
            loops[SQUARES] = tuple((v.name(), 0) for v in squares.args())
        return Pipeline(
            output=output,
            stages=stages,
            arguments=arguments,
            argument_extents=iteration.argument_extents,
            output_extents=iteration.extents,
            loops=loops,
        )

    def space(self, workload: Workload, target: KernelTarget) -> Space:
        """Return pixels per tile, vector width and unrolling (plain), and tasks."""
        if workload.blocked:
            return _blocked_space(workload, target)
        return _plain_space(workload, target)

    def schedule(
        self, workload: Workload, configuration: Configuration, target: KernelTarget
    ) -> Schedule:
        """Return the steps of a configuration."""
        if workload.blocked:
            return _blocked_schedule(workload, configuration)
        return _plain_schedule(workload, configuration)


def _plan(workload: Workload) -> Iteration | Support:
    return plan_iteration(workload, ("co", "ci") if workload.blocked else ("c",))


def _iteration(workload: Workload) -> Iteration:
    iteration = _plan(workload)
    if not isinstance(iteration, Iteration):
        raise ValueError(f"lrn: not supported: {iteration.reason}")
    return iteration


def _parts(workload: Workload) -> Anchored:
    parts = split_at_anchor(workload, Lrn.anchors)
    if not isinstance(parts, Anchored):
        raise ValueError(f"lrn: not supported: {parts.reason}")
    return parts


def _attributes(parts: Anchored) -> _Attributes:
    given = parts.anchor.attributes

    def number(name: str, default: float) -> float:
        value = given.get(name, default)
        return float(value) if isinstance(value, int | float) else default

    return _Attributes(
        size=int(number("size", 1)),
        alpha=number("alpha", 1e-4),
        beta=number("beta", 0.75),
        bias=number("bias", 1.0),
    )


def _normaliser(window: hl.Expr, attributes: _Attributes, variables: Sequence[hl.Var]) -> hl.Expr:
    """Return (bias + alpha / size * window)^-beta."""
    summed, base = hl.Func("summed"), hl.Func("base")
    summed[tuple(variables)] = window
    factor = constant(attributes.alpha / attributes.size)
    base[tuple(variables)] = strict(summed[tuple(variables)] * factor + constant(attributes.bias))
    value = base[tuple(variables)]
    if attributes.bias >= _NORMAL_BIAS and attributes.alpha >= 0:
        return inverse_power(value, attributes.beta)
    return power(value, constant(-attributes.beta))


@dataclass(frozen=True, slots=True)
class _Source:
    """The normalised tensor and the loops its window is summed in."""

    argument: hl.ImageParam
    iteration: Iteration
    variables: tuple[hl.Var, ...]

    def _at(self, replaced: Mapping[str, hl.Expr]) -> hl.Expr:
        """Return an element, some loop variables replaced."""
        return self.argument[tuple(replaced.get(v.name(), hl.Expr(v)) for v in self.variables)]

    def plain_window(self, offsets: range, channels: int) -> hl.Expr:
        """Return the sum of squares of the neighbours inside the tensor."""
        total = constant(0.0)
        for offset in offsets:
            at = hl.Var("c") + offset
            value = self._at({"c": hl.clamp(at, 0, channels - 1)})
            inside = hl.likely(at >= 0) & hl.likely(at < channels)
            total = total + hl.select(inside, value * value, constant(0.0))
        return total

    def blocked_squares(self, workload: Workload) -> hl.Func:
        """Return the squares of one pixel, contiguous over channels, zero outside of them."""
        block, channels = workload.output.block, workload.output.shape[1]
        channel = hl.Var(_CHANNEL)
        kept = [v for v in self.variables if v.name() not in ("ci", "co")]
        value = self._at(
            {"ci": channel % block, "co": hl.clamp(channel // block, 0, channels // block - 1)}
        )
        squares = hl.Func(SQUARES)
        inside = (channel >= 0) & (channel < channels)
        squares[(channel, *kept)] = hl.select(inside, value * value, constant(0.0))
        squares.align_bounds(channel, block)
        squares.compute_root()  # steps place it closer
        return squares

    def blocked_window(self, squares: hl.Func, offsets: range, block: int) -> hl.Expr:
        """Return the sum of neighbouring squares from the scratch stage."""
        kept = [v for v in self.variables if v.name() not in ("ci", "co")]
        channel = hl.Var("co") * block + hl.Var("ci")
        total = constant(0.0)
        for offset in offsets:
            total = total + squares[(channel + offset, *kept)]
        return total


def _work_us(workload: Workload, target: KernelTarget) -> float:
    size = _attributes(_parts(workload)).size
    cycles = _CYCLES + 2 * size + estimate_cycles(_parts(workload).after)
    return estimate_us(workload.output.size, cycles, 8 * workload.output.size, target)


def _pixel_tiles(extent: int, smallest: int) -> tuple[int, ...]:
    tiles = [smallest << shift for shift in range(6)]
    return (*(tile for tile in tiles if tile < extent), extent)


def _plain_space(workload: Workload, target: KernelTarget) -> Space:
    iteration = _iteration(workload)
    pixels = iteration.axes[-1].extent
    vectors = vector_choices(pixels, target.vector_lanes)
    tiles = _pixel_tiles(pixels, 2 * target.vector_lanes)
    work = _work_us(workload, target)
    tasks = task_choices(work, iteration.size // target.vector_lanes, target)
    knobs = (
        Knob("tile", tiles),
        Knob("vector", vectors),
        Knob("unroll", (1, 2)),
        Knob("tasks", tasks),
    )

    def legal(values: Mapping[str, Choice]) -> bool:
        tile, vector, unroll = (int(values[name]) for name in ("tile", "vector", "unroll"))
        if tile < pixels and tile % (vector * unroll):
            return False
        if unroll > 1 and vector * unroll > tile:
            return False
        return int(values["tasks"]) <= _plain_parts(iteration, tile)

    counts = tuple(dict.fromkeys((best_tasks(work, tasks), 1)))
    guesses = _plain_guesses(tiles, vectors, counts)
    best_first = tuple(guess for guess in guesses if legal(guess))[:GUESSES_MAX]
    return Space(knobs=knobs, constraint=legal, first_guesses=best_first)


def _plain_guesses(
    tiles: Sequence[int], vectors: Sequence[int], counts: Sequence[int]
) -> list[dict[str, Choice]]:
    """Return guesses, best first; not all of them are legal, the last one always is."""
    double = vectors[min(1, len(vectors) - 1)]
    shapes = [
        (tiles[min(3, len(tiles) - 1)], double, 1),
        (tiles[-1], vectors[-1], 2),
        (tiles[min(1, len(tiles) - 1)], double, 1),
        (tiles[min(2, len(tiles) - 1)], vectors[0], 1),
        (tiles[-1], vectors[0], 1),
    ]
    guesses: list[dict[str, Choice]] = []
    for count in counts:
        for tile, vector, unroll in shapes:
            guess: dict[str, Choice] = {"tile": tile, "vector": vector, "unroll": unroll}
            guess["tasks"] = count
            guesses += [guess] if guess not in guesses else []
    return guesses


def _plain_parts(iteration: Iteration, tile: int) -> int:
    """Return how many tasks a tiling can make: tiles of pixels, or rows without tiles."""
    pixels = iteration.axes[-1].extent
    rest = prod(axis.extent for axis in iteration.axes[:-1])
    channels = iteration.axes[iteration.position("c")].extent
    return rest if tile >= pixels else rest // channels * -(-pixels // tile)


def _plain_schedule(workload: Workload, values: Mapping[str, Choice]) -> Schedule:
    iteration = _iteration(workload)
    names = [axis.name for axis in iteration.axes]
    extents = [axis.extent for axis in iteration.axes]
    tile, vector, unroll, tasks = (int(values[n]) for n in ("tile", "vector", "unroll", "tasks"))
    pixel, pixels = names[-1], extents[-1]
    if tile >= pixels:
        inner = inner_steps(RESULT, pixel, pixels, vector, unroll)
        return Schedule((*inner, *parallel_steps(RESULT, names[:-1], extents[:-1], tasks)))
    tiles = f"{pixel}_tile"
    steps: list[Step] = [Split(RESULT, pixel, tiles, pixel, tile, Tail.SHIFT_INWARDS)]
    inner = inner_steps(RESULT, pixel, tile, vector, unroll)
    steps += inner
    channel = iteration.position("c")
    outer = names[:channel] + names[channel + 1 : -1] + [tiles]
    outer_extents = extents[:channel] + extents[channel + 1 : -1] + [-(-pixels // tile)]
    lanes = (["lane"] if vector > 1 or unroll > 1 else []) + ([f"{pixel}_u"] if unroll > 1 else [])
    steps.append(Reorder(RESULT, (*lanes, pixel, names[channel], *reversed(outer))))
    steps += parallel_steps(RESULT, outer, outer_extents, tasks)
    return Schedule(tuple(steps))


def _blocked_space(workload: Workload, target: KernelTarget) -> Space:
    iteration = _iteration(workload)
    channels, block = workload.output.shape[1], workload.output.block
    pixels = iteration.axes[-2].extent
    line_bytes = 4 * (channels + 2 * block * -(-_attributes(_parts(workload)).size // block))
    tiles = tuple(
        t for t in (1, 2, 4, 8, 16, 32) if t <= pixels and t * line_bytes <= _SCRATCH_BYTES_MAX
    )
    work = _work_us(workload, target)
    tasks = task_choices(work, iteration.size // (channels * tiles[-1]), target)
    knobs = (
        Knob("pixels", tiles),
        Knob("order", ("blocks_outer", "pixels_outer")),
        Knob("tasks", tasks),
    )
    best = best_tasks(work, tasks)
    guesses = [
        {"pixels": tile, "order": order, "tasks": count}
        for count in dict.fromkeys((best, 1))
        for tile in dict.fromkeys((tiles[-2] if len(tiles) > 1 else tiles[-1], tiles[-1]))
        for order in ("blocks_outer", "pixels_outer")
    ]
    return Space(knobs=knobs, first_guesses=tuple(guesses[:GUESSES_MAX]))


def _blocked_schedule(workload: Workload, values: Mapping[str, Choice]) -> Schedule:
    iteration = _iteration(workload)
    block = workload.output.block
    names = [axis.name for axis in iteration.axes]
    extents = [axis.extent for axis in iteration.axes]
    tile, tasks = int(values["pixels"]), int(values["tasks"])
    pixel, pixels = names[-2], extents[-2]
    tiles = f"{pixel}_tile"
    blocks = names.index("co")
    outer = names[:blocks] + names[blocks + 1 : -2] + [tiles]
    outer_extents = extents[:blocks] + extents[blocks + 1 : -2] + [-(-pixels // tile)]
    nest = ("co", pixel) if values["order"] == "pixels_outer" else (pixel, "co")
    steps: list[Step] = [
        Split(RESULT, pixel, tiles, pixel, tile, Tail.SHIFT_INWARDS),
        Reorder(RESULT, ("ci", *nest, *reversed(outer))),
        Vectorize(RESULT, "ci", block),
    ]
    steps += parallel_steps(RESULT, outer, outer_extents, tasks)
    steps += [
        ComputeAt(SQUARES, RESULT, tiles),
        StoreIn(SQUARES, Memory.STACK),
        Vectorize(SQUARES, _CHANNEL, block),
    ]
    return Schedule(tuple(steps))
