"""Direct convolution of plain tensors: every product once, the sums of a register tile kept.

padded       the image with its zeros around it; in bfloat16 where factors are, channels in pairs
products     sums over channels and filter of elements times weights
finished     the same put down, for chains too long to be written out for each of them
y            bias, the tensor added, activation, the chain

Channels written come in panels. With panels of a few channels (`rows`), a vector holds
neighbours along the innermost axis, and each weight is broadcast; with panels of a vector
(`channels`), a vector holds channels, and each element is broadcast.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import gcd, prod

import halide as hl

from aoe import schedule as sch
from aoe.kernels.algorithms import KNOB
from aoe.kernels.conv_nchw.shape import (
    WEIGHTS,
    ConvNchwPlan,
    ConvNchwShape,
    X,
    finished_value,
    image_with_zeros,
    pixel,
    plain_arguments,
)
from aoe.kernels.conv_nchwc.direct import FINISHED, PADDED, PRODUCTS, REDUCED, SUMMED
from aoe.kernels.conv_nchwc.shape import KernelArguments, finished_pipeline
from aoe.kernels.family import KernelTarget, PackedInput, Pipeline
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.loops import v
from aoe.kernels.math.functions import constant, to_bfloat16
from aoe.kernels.tiled_products import (
    GROUP,
    SCOPE,
    TILE_ROWS,
    Tile,
    TiledAlgorithm,
    copy_steps,
    groups_fit,
    register_steps,
    several,
    tile_of,
)
from aoe.schedule import Step, Values
from aoe.workload import Precision

ROWS, CHANNELS = "direct_rows", "direct_channels"
ROWS_IN_PAIRS, CHANNELS_IN_PAIRS = f"{ROWS}_bf16", f"{CHANNELS}_bf16"
VECTOR = 16
"""Elements of a vector: a register with AVX-512, two with AVX2, four with NEON."""
_GROUPS = (1, 2, 4, 8, 16, 32)
"""Rows of tiles of a group."""
_BLOCKS, _DOWN = (1, 2, 3, 4, 5, 6, 7), (1, 2, 3, 4, 7)
_BEST_TILES = 3
"""Register tiles offered for a shape: the register file leaves few that are any good."""
FAR_BYTES_PER_CYCLE = 12
"""Bytes a core reads per cycle from the cache behind its own. Assumed: about 40 GB/s at 3 GHz."""
_STRAY_CYCLES = 2.0
"""Cycles to store a result away from its neighbours. Assumed."""
_DEPTH_PART, _IN_DEPTH = 16, "r$i"
"""Channels of the inner of two loops over those read, in front of a long chain; its name.

A single loop counts for less than the loops of the chain when the compiler gives out registers:
two of three sums go to memory and back (`aoe/kernels/matmul/tiles.py` has the same).
"""
_LONG_CHAIN = 1.2
"""Cost of a long chain for `rows` all the same, which has more of its tiles: 1500 results of 384
channels with GELU take 11.0 ms with one loop, 7.5 with two, 6.3 in vectors of channels, without
GELU 6.1 and 6.4 (one thread of a Zen 5 with other work, CPU time, 2026-11-23)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panels:
    """Cuts of the channels of a convolution."""

    width: int  # Channels of a panel
    pair: int  # Channels read that are multiplied at once
    in_rows: bool  # True if vectors hold neighbours along the innermost axis, not channels

    def ordered(self, channel: hl.Expr, along: hl.Expr, *others: hl.Expr) -> tuple[hl.Expr, ...]:
        """Return an index into sums, what a vector holds innermost."""
        return (along, channel, *others) if self.in_rows else (channel, along, *others)

    def out(self, shape: ConvNchwShape) -> int:
        """Return panels of one group."""
        return -(-shape.channels_out // self.width)

    def pairs(self, shape: ConvNchwShape) -> int:
        """Return pairs of channels read by one group."""
        return -(-shape.channels_in // self.pair)

    def weight_extents(self, shape: ConvNchwShape) -> tuple[int, ...]:
        """Return the extents of the packed weights, innermost first (see `_packing`)."""
        pair = (self.pair,) if self.pair > 1 else ()
        phases, panels = prod(shape.phases), shape.groups * self.out(shape)
        return *pair, self.width, *shape.taps, self.pairs(shape), phases, panels

    def reduced_extents(self, shape: ConvNchwShape) -> tuple[int, ...]:
        """Return the extents of the loops that sum up, innermost first."""
        pair = (self.pair,) if self.pair > 1 else ()
        return *pair, *shape.taps, self.pairs(shape)


def plain_pipeline(plan: ConvNchwPlan, panels: Panels) -> Pipeline:
    """Return the algorithm; weights are packed once, when the kernel is created."""
    shape = plan.shape
    kind = hl.BFloat(16) if panels.pair > 1 else hl.Float(32)
    arguments = plain_arguments(plan, panels.weight_extents(shape), kind)
    stages = _image(arguments.at(X), shape, panels)
    products = _sums(stages.get(PADDED), arguments, shape, panels)
    finished, result = hl.Func(FINISHED), hl.Func(RESULT)
    finished[products.args()] = products[products.args()]
    place = pixel(shape, (v.w, v.h, v.d), v.o, v.n)
    summed = finished[_place_of_result(shape, panels)]
    result[place] = finished_value(plan, arguments, summed, place)
    for stage in (products, finished):
        stage.bound_extent(v.u, panels.width).bound_extent(v.p, shape.phases[0])
    stages |= {PRODUCTS: products, SUMMED: products.update(), FINISHED: finished}
    may_go_past = is_cut_short(shape) or (shape.is_open and needs_copy(shape, panels))
    made = finished_pipeline(
        arguments,
        stages,
        result,
        extents=shape.result_extents,
        known={"u": panels.width, "p": shape.phases[0], "i": panels.pair},
        reduced={SUMMED: zip(REDUCED, panels.reduced_extents(shape), strict=False)},
        packing=_packing(shape, panels),
        inlined=(FINISHED,),
        padded=frozenset({PADDED, *((PRODUCTS, FINISHED) if may_go_past else ())}),
    )
    return replace(made, multiples={"w": shape.phases[0]}) if shape.is_open else made


def needs_copy(shape: ConvNchwShape, panels: Panels) -> bool:
    """Return True if elements are not read from the image itself."""
    is_strided = shape.strides[0] > 1
    return panels.pair > 1 or shape.needs_zeros or is_strided or is_cut_short(shape)


def is_cut_short(shape: ConvNchwShape) -> bool:
    """Return True if the last element of a row makes fewer results than the others."""
    return shape.result[0] % shape.phases[0] != 0


def _image(x: hl.ImageParam, shape: ConvNchwShape, panels: Panels) -> dict[str, hl.Func]:
    """Return the stage that copies the image, if there is one.

    Its loops are: channel of a pair, every `stride`-th element along the innermost axis, which of
    them, the other axes, pairs of channels, images.
    """
    if not needs_copy(shape, panels):
        return {}
    per_group = panels.pairs(shape)
    channel = v.c % per_group * panels.pair + v.i
    group = v.c // per_group
    is_there = channel < shape.channels_in
    channel = group * shape.channels_in + hl.min(channel, shape.channels_in - 1)
    axes = (v.w * shape.strides[0] + v.s, v.h, v.d)
    value = image_with_zeros(x, shape, axes, channel, v.n)
    if shape.channels_in % panels.pair:
        value = hl.select(is_there, value, constant(0.0))
    padded = hl.Func(PADDED)
    stored = to_bfloat16(value) if panels.pair > 1 else value
    padded[v.i, v.w, v.s, v.h, v.d, v.c, v.n] = stored
    padded.bound_extent(v.i, panels.pair)
    return {PADDED: padded}


def _sums(
    padded: hl.Func | None, arguments: KernelArguments, shape: ConvNchwShape, panels: Panels
) -> hl.Func:
    """Return the sums of products; the two of a pair are the innermost loop."""
    extents = panels.reduced_extents(shape)
    r = hl.RDom([(0, extent) for extent in extents], "r")
    reduced = [r[at] for at in range(len(extents))]
    pair = reduced[: len(extents) - 4]
    taps, channel = reduced[len(pair) : -1], reduced[-1]
    results = ((v.p, v.w), (v.h, 0), (v.d, 0))
    phases: list[hl.Expr] = []
    axes: list[hl.Expr] = []
    for at, (result, more) in enumerate(results):
        moved = result + shape.leads[at]
        first = (moved // shape.phases[at] + more) * shape.strides[at]
        axes.append(first + taps[at] * shape.dilations[at])
        phases.append(moved % shape.phases[at])
    of_group = v.b // panels.out(shape) if shape.groups > 1 else hl.Expr(0)
    read = channel + of_group * panels.pairs(shape)
    if padded is None:
        element = arguments.at(X)[pixel(shape, axes, read, v.n)]
    else:
        offset = taps[0] * shape.dilations[0]
        along = (v.p + shape.leads[0]) // shape.phases[0] + v.w + offset // shape.strides[0]
        step = offset % shape.strides[0]
        first = pair[0] if pair else hl.Expr(0)
        element = padded[first, along, step, axes[1], axes[2], read, v.n]
    phase = phases[0] + shape.phases[0] * (phases[1] + shape.phases[1] * phases[2])
    panel = hl.Expr(v.b)
    if is_cut_short(shape):  # panels past the last one may be asked for
        panel = hl.clamp(panel, 0, shape.groups * panels.out(shape) - 1)
    weight = arguments.at(WEIGHTS)[(*pair, v.u, *taps, channel, phase, panel)]
    products = hl.Func(PRODUCTS)
    place = panels.ordered(v.u, v.w, v.p, v.h, v.d, v.b, v.n)
    products[place] = constant(0.0)
    products[place] += hl.f32(element) * hl.f32(weight)
    if pair:
        products.update().atomic()  # lets the schedule vectorise a pair
    return products


def _place_of_result(shape: ConvNchwShape, panels: Panels) -> tuple[hl.Expr, ...]:
    """Return the index of a result's products."""
    if shape.groups > 1 and shape.channels_out % panels.width:
        inside = v.o % shape.channels_out
        panel = v.o // shape.channels_out * panels.out(shape) + inside // panels.width
    else:  # the same, in a form whose bounds are seen through
        inside, panel = v.o, v.o // panels.width
    along, phase = v.w // shape.phases[0], v.w % shape.phases[0]
    rows = v.h if shape.rank > 1 else hl.Expr(0)
    planes = v.d if shape.rank > 2 else hl.Expr(0)
    return panels.ordered(inside % panels.width, along, phase, rows, planes, panel, v.n)


def _packing(shape: ConvNchwShape, panels: Panels) -> PackedInput:
    """Return the weights in panels, zeros where a panel, a pair or a phase has none.

    From the innermost: channels of a pair (bfloat16 only), channels of a panel, taps along width,
    height, depth, pairs of channels read, phases, panels.
    """
    i, u, f, c, b = (hl.Var(name) for name in ("i", "u", "f", "c", "b"))
    taps = tuple(hl.Var(f"tap_{at}") for at in range(len(shape.taps)))
    weights = hl.ImageParam(hl.Float(32), shape.rank + 2, "weights")
    read: hl.Expr = c * panels.pair + i if panels.pair > 1 else hl.Expr(c)
    group, inside = b // panels.out(shape), b % panels.out(shape) * panels.width + u
    values, is_there = _filter_values(shape, taps, f)
    is_there = is_there & (read < shape.channels_in) & (inside < shape.channels_out)
    read = hl.clamp(read, 0, shape.channels_in - 1)
    inside = hl.clamp(inside, 0, shape.channels_out - 1)
    if shape.is_transposed:
        place = pixel(shape, values, inside, group * shape.channels_in + read)
    else:
        place = pixel(shape, values, read, group * shape.channels_out + inside)
    value = hl.select(is_there, weights[place], constant(0.0))
    packed = hl.Func("packed")
    inner = (i, u) if panels.pair > 1 else (u,)
    stored = to_bfloat16(value) if panels.pair > 1 else value
    packed[(*inner, *taps, c, f, b)] = stored
    return PackedInput(
        output=packed,
        argument=weights,
        argument_extents=shape.weight_extents,
        dtype=(Precision.BFLOAT16 if panels.pair > 1 else Precision.FLOAT32).value,
    )


def _filter_values(
    shape: ConvNchwShape, taps: Sequence[hl.Var], phase: hl.Var
) -> tuple[list[hl.Expr], hl.Expr]:
    """Return the place in the filter of each tap of a phase, and whether all lie inside it."""
    values: list[hl.Expr] = []
    is_there = hl.Expr(True)
    rest: hl.Expr = hl.Expr(phase)
    for at, tap in enumerate(taps):
        value: hl.Expr = hl.Expr(tap)
        if shape.is_transposed:
            value = rest % shape.phases[at] + shape.phases[at] * (shape.taps[at] - 1 - tap)
            rest = rest // shape.phases[at]
        is_there = is_there & (value < shape.kernel[at])
        values.append(hl.clamp(value, 0, shape.kernel[at] - 1))
    return values, is_there


def panels_of(algorithm: str, shape: ConvNchwShape) -> Panels:
    """Return the cut of the channels into panels.

    A tile of `rows` has all phases of its results, so that what is stored has no gaps: the more
    phases, the fewer channels.
    """
    pair = 2 if algorithm.endswith("_bf16") else 1
    if algorithm.startswith(CHANNELS):
        return Panels(width=VECTOR, pair=pair, in_rows=False)
    phases = shape.phases[0]
    width = 4 if phases <= 2 else 2 if phases <= 4 else 1
    if shape.groups > 1:  # no panel has channels of two groups
        width = gcd(width, shape.channels_out)
    return Panels(width=width, pair=pair, in_rows=True)


def direct_algorithms(plan: ConvNchwPlan) -> tuple[str, ...]:
    """Return the direct algorithms in the precision of a workload, the first one a default."""
    shape = plan.shape
    has_rows = shape.result[0] // shape.phases[0] >= VECTOR
    names = (ROWS_IN_PAIRS, CHANNELS_IN_PAIRS) if plan.in_pairs else (ROWS, CHANNELS)
    if not has_rows:
        return names[1:]
    return names[:1] if shape.groups > 1 and shape.channels_out % VECTOR else names


@dataclass(frozen=True, slots=True, kw_only=True)
class Direct(TiledAlgorithm[ConvNchwPlan]):
    """Every product once, in vectors of neighbours or of channels."""

    name: str

    def pipeline(self, plan: ConvNchwPlan) -> Pipeline:
        return plain_pipeline(plan, panels_of(self.name, plan.shape))

    def tiles(self, plan: ConvNchwPlan, target: KernelTarget) -> Sequence[Tile]:
        return _best_tiles(plan.shape, self.name, vectors_of(target))

    def rows(self, plan: ConvNchwPlan, target: KernelTarget) -> tuple[int, ...]:
        return _GROUPS

    def fits(self, values: Values, plan: ConvNchwPlan, target: KernelTarget) -> bool:
        tile = tile_of(values)
        most = max(1, _tiles_along(plan.shape, self.name, tile))
        return tile in self.tiles(plan, target) and groups_fit(values, most)

    def cost(self, values: Values, plan: ConvNchwPlan, target: KernelTarget) -> float:
        """Return the estimated cycles: products, traffic, idle threads."""
        algorithm, shape, tile = self.name, plan.shape, tile_of(values)
        panels, size = panels_of(algorithm, shape), 2 if plan.in_pairs else 4
        results = prod(shape.result) * shape.channels_out * shape.groups * shape.batch
        depth = panels.pairs(shape) * prod(shape.taps)
        cycles = results / VECTOR * depth * _tile_cost(tile, shape, algorithm)
        if algorithm.startswith(CHANNELS):
            cycles += _STRAY_CYCLES * results
        elif plan.epilogue.is_heavy and panels.pairs(shape) > _DEPTH_PART:
            cycles *= _LONG_CHAIN
        is_grouped = values[SCOPE] == GROUP
        along = _tiles_along(shape, algorithm, tile)
        groups = max(1, -(-along // int(values[TILE_ROWS]))) if is_grouped else 1
        planes = shape.result[2] * shape.batch
        channels = shape.channels_in * shape.groups
        at = 0 if _is_low(shape) else 1
        halo = (shape.taps[at] - 1) * shape.dilations[at]
        cut = shape.image[at] / groups + halo
        held = channels * cut * prod(shape.image[:2]) / shape.image[at] * shape.taps[2]
        if needs_copy(shape, panels):
            copied = held * groups * planes if is_grouped else channels * prod(shape.image)
            cycles += 0.2 * copied * (1 if is_grouped else 1.5)
        if not is_grouped:
            held = channels * prod(shape.image[:2]) * shape.taps[2]
        panel = depth * panels.pair * panels.width * prod(shape.phases) * tile[0] * size
        over = panels.out(shape) * shape.groups / tile[0]
        if held * size + panel > 0.7 * target.l2_bytes:  # elements are read again for each panel
            cycles += over * held * size * groups * planes / FAR_BYTES_PER_CYCLE
        tasks = planes * groups if is_grouped else over
        return cycles * target.idle_ratio(tasks)

    def steps(self, values: Values, plan: ConvNchwPlan) -> Iterator[Step]:
        is_heavy = plan.epilogue.is_heavy
        yield from _result_steps(values, plan.shape, is_heavy=is_heavy)
        yield from _copy_steps(values, plan)
        yield from _product_steps(values, plan, is_heavy=is_heavy)


def _lanes(algorithm: str) -> int:
    """Return elements along the innermost axis one vector of results holds."""
    return VECTOR if algorithm.startswith(ROWS) else 1


def _is_low(shape: ConvNchwShape) -> bool:
    """Return True if groups are cut along the innermost axis: there is no other."""
    return shape.result[1] == 1


def _tiles_along(shape: ConvNchwShape, algorithm: str, tile: Tile) -> int:
    """Return register tiles along the axis groups are cut."""
    if _is_low(shape):
        return shape.result[0] // shape.phases[0] // (_lanes(algorithm) * tile[1])
    return -(-shape.result[1] // tile[2])


def vectors_of(target: KernelTarget) -> int:
    """Return vectors the registers hold."""
    return target.registers * target.vector_lanes // VECTOR


@cache
def _best_tiles(shape: ConvNchwShape, algorithm: str, vectors: int) -> tuple[Tile, ...]:
    """Return blocks of channels, vectors or elements across, and rows of the best tiles."""
    panels, lanes = panels_of(algorithm, shape), _lanes(algorithm)
    along = shape.result[0] // shape.phases[0]
    found = [
        (blocks, across, down)
        for blocks, across, down in product(_BLOCKS, range(1, 29), _DOWN)
        if panels.out(shape) % blocks == 0
        and lanes * across <= max(along, 1)
        and down <= shape.result[1]
        and _registers((blocks, across, down), shape, algorithm) <= vectors
    ] or [(1, 1, 1)]
    return tuple(
        sorted(found, key=lambda tile: (_tile_cost(tile, shape, algorithm), tile))[:_BEST_TILES]
    )


def _sums_and_loads(tile: Tile, shape: ConvNchwShape, algorithm: str) -> tuple[int, int, int]:
    """Return vectors of sums, of what is kept, and of what is broadcast for each product."""
    blocks, across, down = tile
    written = blocks * shape.phases[0]
    if algorithm.startswith(CHANNELS):
        return written * across * down, written, across * down
    written *= panels_of(algorithm, shape).width
    return written * across * down, across * down, written


def _registers(tile: Tile, shape: ConvNchwShape, algorithm: str) -> int:
    sums, kept, _ = _sums_and_loads(tile, shape, algorithm)
    return sums + kept + 1


def _tile_cost(tile: Tile, shape: ConvNchwShape, algorithm: str) -> float:
    """Return cycles per product and vector of results that count."""
    sums, kept, broadcast = _sums_and_loads(tile, shape, algorithm)
    waiting = max(0.5, 4 / sums)
    # rows start anywhere: loads that cross a cache line count more
    split = 1.5 if algorithm.startswith(ROWS) else 1.0
    loads = 0.55 * (split * kept + broadcast) / sums
    busy = max(waiting, loads) + 0.05 * loads + 0.1 / sums + 0.01 * (tile[2] - 1)
    busy += 0.2 * kept / sums  # these come from the second cache
    return busy * _repeated(tile, shape, algorithm)


def _repeated(tile: Tile, shape: ConvNchwShape, algorithm: str) -> float:
    """Return the number of results computed for each that is needed."""
    _, across, down = tile
    panels, wide = panels_of(algorithm, shape), _lanes(algorithm) * across
    along = -(-shape.result[0] // shape.phases[0])
    repeated = -(-along // wide) * wide / along
    repeated *= -(-shape.result[1] // down) * down / shape.result[1]
    return repeated * panels.out(shape) * panels.width / shape.channels_out


def _result_steps(values: Values, shape: ConvNchwShape, *, is_heavy: bool) -> Iterator[Step]:
    tile = _tile_loops(values, shape)
    yield from _result_splits(values, shape)
    is_grouped = values[SCOPE] == GROUP
    high, deep = (("h",) if shape.rank > 1 else ()), (("d",) if shape.rank > 2 else ())
    of = ("of",) if shape.groups > 1 else ()
    inner = (*tile, "w", *high)
    if is_grouped:
        yield sch.Reorder(RESULT, (*inner, "b", *of, "group", *deep, "n"))
    else:  # weights of a panel serve the whole image
        yield sch.Reorder(RESULT, (*inner, *deep, "b", *of, "n"))
    vector, *others = tile.items()
    yield from register_steps((RESULT,), vector, {} if is_heavy else dict(others))
    yield sch.Parallel(RESULT, "n")
    for name in (*deep, "group") if is_grouped else (*of, "b"):
        yield sch.Parallel(RESULT, name)


def _tile_loops(values: Values, shape: ConvNchwShape) -> dict[str, int]:
    """Return the loops of the result inside a register tile with their lengths, innermost first."""
    algorithm, (blocks, across, down) = str(values[KNOB]), tile_of(values)
    channels = {"in_o": panels_of(algorithm, shape).width}
    phase = {"phase": shape.phases[0]} if shape.phases[0] > 1 else {}
    high = {"in_h": down} if shape.rank > 1 else {}
    if algorithm.startswith(ROWS):
        return {"lane": VECTOR, **phase, "in_w": across, **high, **channels, "in_b": blocks}
    return {**channels, **phase, "in_w": across, **high, "in_b": blocks}


def _result_splits(values: Values, shape: ConvNchwShape) -> Iterator[Step]:
    algorithm, (blocks, across, down) = str(values[KNOB]), tile_of(values)
    phases = shape.phases[0]
    # a phase of a transposed convolution meets its own values of the filter, no zeros
    if phases > 1:
        ends = sch.Tail.ROUND_UP if shape.is_open else sch.Tail.GUARD
        yield sch.Split(RESULT, "w", "w", "phase", phases, ends)
    tail = sch.Tail.GUARD if is_cut_short(shape) else sch.Tail.SHIFT_INWARDS
    yield sch.Split(RESULT, "w", "w", "in_w", _lanes(algorithm) * across, tail)
    # the shifted last tile as code of its own would double what LLVM has to compile
    yield sch.NeverPartition(RESULT, "w")
    if algorithm.startswith(ROWS):
        yield sch.Split(RESULT, "in_w", "in_w", "lane", VECTOR, sch.Tail.GUARD)
    if shape.groups > 1:
        yield sch.Split(RESULT, "o", "of", "o", shape.channels_out, sch.Tail.GUARD)
    yield sch.Split(RESULT, "o", "b", "in_o", panels_of(algorithm, shape).width, sch.Tail.GUARD)
    yield sch.Split(RESULT, "b", "b", "in_b", blocks, sch.Tail.GUARD)
    if shape.rank > 1:
        yield sch.Split(RESULT, "h", "h", "in_h", down, sch.Tail.SHIFT_INWARDS)
    if values[SCOPE] == GROUP:
        axis = "w" if _is_low(shape) else "h"
        yield sch.Split(RESULT, axis, "group", axis, int(values[TILE_ROWS]), sch.Tail.GUARD)


def _copy_steps(values: Values, plan: ConvNchwPlan) -> Iterator[Step]:
    panels = panels_of(str(values[KNOB]), plan.shape)
    if not needs_copy(plan.shape, panels):
        return
    yield from copy_steps(values, PADDED, "c")
    # whole vectors: the copy has room behind the end of a row
    yield sch.Split(PADDED, "w", "w", "lane", VECTOR, sch.Tail.ROUND_UP)
    yield sch.Reorder(PADDED, ("lane", "i", "s", "w", "h", "d", "c", "n"))
    yield sch.Vectorize(PADDED, "lane", VECTOR)
    yield sch.Unroll(PADDED, "i", panels.pair)
    if plan.shape.strides[0] > 1:
        yield sch.Unroll(PADDED, "s", plan.shape.strides[0])


def _product_steps(values: Values, plan: ConvNchwPlan, *, is_heavy: bool) -> Iterator[Step]:
    algorithm, (blocks, across, down) = str(values[KNOB]), tile_of(values)
    shape, panels = plan.shape, panels_of(algorithm, plan.shape)
    width = {"w": across, "h": down}
    if panels.in_rows:
        tile = {**width, "u": panels.width, "p": shape.phases[0], "b": blocks}
    else:  # weights stay in registers while one element after the other meets them
        tile = {"u": panels.width, "p": shape.phases[0], "b": blocks, **width}
    stages = (PRODUCTS, SUMMED, FINISHED) if is_heavy else (PRODUCTS, SUMMED)
    if is_heavy:
        yield sch.ComputeAt(FINISHED, RESULT, "w")
        yield sch.Reorder(FINISHED, (*tile, "d", "n"))
        yield sch.ComputeAt(PRODUCTS, FINISHED, "d")
    else:
        yield sch.ComputeAt(PRODUCTS, RESULT, "w")
    extents = panels.reduced_extents(shape)
    pair, depth = REDUCED[: panels.pair - 1], REDUCED[panels.pair - 1 : len(extents)]
    if is_heavy and extents[-1] > _DEPTH_PART:
        yield sch.Split(SUMMED, depth[-1], depth[-1], _IN_DEPTH, _DEPTH_PART, sch.Tail.GUARD)
        depth = (*depth[:-1], _IN_DEPTH, depth[-1])
    # each step of the depth adds to every sum of a tile once: none waits for itself
    yield sch.Reorder(SUMMED, (*pair, *tile, *depth, "d", "n"))
    if pair:
        yield sch.Vectorize(SUMMED, pair[0], panels.pair)
    for stage in stages:
        if is_cut_short(shape):
            wide = _lanes(algorithm) * across
            yield sch.Split(stage, "w", "past", "w", wide, sch.Tail.ROUND_UP)
        first, *others = tile
        inner = [first, *others] if panels.in_rows else others
        written_out = several({name: tile[name] for name in inner})
        yield from register_steps((stage,), (first, VECTOR), written_out)
    if panels.in_rows and shape.taps[0] <= VECTOR:  # lanes of channels would keep all elements
        yield sch.Unroll(SUMMED, depth[0], shape.taps[0])
