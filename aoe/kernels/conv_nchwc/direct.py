"""Direct convolution: every product once, the sums of a register tile of results kept.

padded       the image with its zeros around it, rounded to bfloat16 where factors are;
             depthwise, zeros may be made where they are read
products     sums over channels and filter of pixels times weights; depthwise over the filter
finished     the same put down, for chains too long to be written out for each of them
y            bias, the tensor added, activation, the chain
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod

import halide as hl

from aoe import schedule as sch
from aoe.kernels.conv_nchwc.shape import (
    WEIGHTS,
    ConvolutionPlan,
    ConvolutionShape,
    KernelArguments,
    finished_pipeline,
    finished_result,
    image_read,
    kernel_arguments,
    padded_image,
)
from aoe.kernels.family import SUPPORTED, UPDATE, KernelTarget, PackedInput, Pipeline, Support
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.loops import v
from aoe.kernels.math.functions import constant, to_bfloat16
from aoe.kernels.tiled_products import (
    BLOCKS,
    DOWN,
    GROUP,
    IMAGE,
    SCOPE,
    TILE_ROWS,
    Tile,
    TiledAlgorithm,
    copy_steps,
    group_steps,
    groups_fit,
    register_steps,
    task_steps,
    tile_of,
)
from aoe.schedule import Step, Values
from aoe.workload import Precision

PADDED, PRODUCTS, FINISHED = "padded", "products", "finished"
SUMMED = f"{PRODUCTS}{UPDATE}"
REDUCED = ("r$x", "r$y", "r$z", "r$w", "r$4")
"""Loops over what is summed up, innermost first."""
PAIR = 2
"""Products of bfloat16 the hardware sums up at once: neighbours in memory."""
_BLOCKS, _ACROSS, _DOWN, _GROUPS = (1, 2, 3, 4), range(1, 29), (1, 2, 4, 7), (1, 2, 4, 7, 14)
_MOST_BLOCKS, _FEW_REGISTERS = 5, 16
"""Blocks of a tile of few registers, where no smaller number may divide the blocks of a result:
tiles of 5x2 take 0.88 of the time of 1x11. In 32 registers 5x5 take 1.07 of that of 1x14x2."""
_BEST_TILES = 3
"""Register tiles offered for a shape: the register file leaves few that are any good."""
_FAR_BYTES_PER_CYCLE = 12
"""Bytes a core reads per cycle from the cache behind its own. Assumed: about 40 GB/s at 3 GHz."""
_SHARED_BYTES_PER_CYCLE = 48
"""The same where another core has just read them."""
_NEAR_RUN_CYCLES, _RUN_CYCLES = 20, 70
"""Until a piece of memory is read, or half of one written, that does not follow on the last one, as
the rows of one block of channels do; in the second-level cache, and beyond. Here and below: fitted
to 300 first guesses and trials of networks in bfloat16 (two threads of a Zen 5, 2026-11-23); 14x14
pixels of 1024 channels in groups of 7 rows take 0.9 of the time of single rows, of 64 channels
1.09."""
_TASK_CYCLES = 700
_LATE_CYCLES, _SHORT_TASK_CYCLES = 25_000, 60_000
"""Cycles threads come late to a kernel; tasks much shorter than that are shared accordingly."""
_SECTION_CYCLES = 10_000
"""Cycles threads wait for each other between the copy of a whole image and its sums."""
_SMALL = 200
"""Results of a channel up to which the host is below the roof with filters larger than 1x1: 512
channels of 7x7 take 0.83 of its time, 128 to 256 channels of 14x14 with stride 2 0.93, 64 to 128 of
28x28 1.02 (one thread of a Zen 5 with other work, CPU time, 2026-11-23)."""
_BLOCK_OF_AVX2, _BLOCKS_OF_HOST, _LEAST_PIXELS = 8, 4, 64
"""Channels of a block with AVX2; blocks of results the host sums up together there. What is left
over it computes below the roof: 16, 24, 40, 72, 120 and 240 filters of 1x1 for 112x112 to 28x28
pixels take 0.83 to 0.95 of its time, 80 and 112 for 14x14 0.95. Filters of 32, 64 and 128 channels
take 0.98 to 1, those for 7x7 pixels longer (one thread of a Zen 4 with other work, CPU time with
weights in no second-level cache, 2026-11-28)."""


def direct_pipeline(plan: ConvolutionPlan, precision: Precision) -> Pipeline:
    """Return the algorithm.

    In float32 the arguments are the workload's inputs. In bfloat16 the weights are packed once,
    when the kernel is created: see `pair_packing`.
    """
    shape = plan.shape
    in_pairs = precision is Precision.BFLOAT16
    packing = pair_packing(shape) if in_pairs else None
    extents = pair_extents(shape) if in_pairs else shape.weight_extents
    arguments = kernel_arguments(plan, extents, hl.BFloat(16) if in_pairs else None)
    place = (v.o, v.w, v.h, v.b, v.n)
    image = image_read(plan, arguments)
    stages = _image(plan, arguments, in_pairs=in_pairs)
    read = stages.get(PADDED, image)
    products = direct_sums(read, arguments.at(WEIGHTS), shape, in_pairs=in_pairs)
    finished, result = hl.Func(FINISHED), hl.Func(RESULT)
    finished[place] = products[place]
    result[place] = finished_result(plan, arguments, finished[place], place)
    stages |= {PRODUCTS: products, SUMMED: products.update(), FINISHED: finished}
    return finished_pipeline(
        arguments,
        stages,
        result,
        extents=shape.result_extents,
        known={"o": shape.block, "c": shape.block},
        reduced={SUMMED: zip(REDUCED, depth_extents(shape, in_pairs=in_pairs), strict=False)},
        packing=packing,
        inlined=(FINISHED, PADDED) if shape.is_depthwise else (FINISHED,),
    )


def needs_copy(shape: ConvolutionShape, precision: Precision) -> bool:
    """Return True if pixels are not read from the image itself."""
    return precision is Precision.BFLOAT16 or any(shape.pads) or shape.is_made


def is_thinned(shape: ConvolutionShape, precision: Precision) -> bool:
    """Return True if what lies between the strides of a 1x1 filter is not copied."""
    is_pointwise = shape.kernel == (1, 1) and not shape.is_stem
    return is_pointwise and needs_copy(shape, precision)


def pair_extents(shape: ConvolutionShape) -> tuple[int, ...]:
    """Return the extents of weights in pairs, innermost first (see `pair_packing`)."""
    rows, columns = shape.kernel
    if shape.is_stem:
        pairs = -(-columns // PAIR)
        return PAIR, shape.block, pairs, rows, shape.channels_in, shape.blocks_out
    pairs = shape.block // PAIR
    return PAIR, shape.block, pairs, columns, rows, shape.blocks_summed, shape.blocks_out


def pair_packing(shape: ConvolutionShape) -> PackedInput:
    """Return the weights as vectors of pairs, rounded to bfloat16.

    Pairs of channels: from the innermost 2 channels read, block of o, pairs of a block, columns,
    rows, blocks in, blocks out ("OIhw8i16o2i" with AVX-512), from "OIhw16i16o". For a stem pairs
    of columns: 2 columns, block of o, pairs, rows, channels, blocks out, with zeros behind the
    last column, from "OIhw16o".
    """
    extents = shape.weight_extents
    i, o, p, *outer = (hl.Var(f"axis_{at}") for at in range(len(extents) + 1))
    weights = hl.ImageParam(hl.Float(32), len(extents), "weights")
    at, last = PAIR * p + i, extents[1] - 1
    value = weights[(o, hl.clamp(at, 0, last), *outer)]
    packed = hl.Func("packed")
    packed[(i, o, p, *outer)] = to_bfloat16(hl.select(at <= last, value, constant(0.0)))
    packed.bound(i, 0, PAIR).unroll(i).vectorize(o, shape.block)
    dtype = Precision.BFLOAT16.value
    return PackedInput(output=packed, argument=weights, argument_extents=extents, dtype=dtype)


def _image(
    plan: ConvolutionPlan, arguments: KernelArguments, *, in_pairs: bool
) -> dict[str, hl.Func]:
    """Return the stage that copies the image, if there is one."""
    shape = plan.shape
    precision = _precision(in_pairs=in_pairs)
    if not needs_copy(shape, precision):
        return {}
    place = (v.w, v.h, v.c, v.n) if shape.is_stem else (v.c, v.w, v.h, v.b, v.n)
    down, along = shape.strides if is_thinned(shape, precision) else (1, 1)
    apart = (v.w * along, v.h * down)
    read = (*apart, v.c, v.n) if shape.is_stem else (v.c, *apart, v.b, v.n)
    value = padded_image(plan, arguments, read)
    padded = hl.Func(PADDED)
    padded[place] = to_bfloat16(value) if in_pairs else value
    return {PADDED: padded}


def _precision(*, in_pairs: bool) -> Precision:
    return Precision.BFLOAT16 if in_pairs else Precision.FLOAT32


def met_taps(shape: ConvolutionShape) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the first row of the filter that meets more than zeros, and how many do; columns too.

    Filters dilated by more than the image has rows meet it with one of theirs.
    """
    if shape.is_open:
        return (0, shape.kernel[0]), (0, shape.kernel[1])
    sizes = ((shape.height, shape.rows), (shape.width, shape.columns))
    found = []
    for at, (size, results) in enumerate(sizes):
        first, apart = -shape.pads[at], shape.dilations[at]
        reach = first + (results - 1) * shape.strides[at]
        met = [tap for tap in range(shape.kernel[at]) if -reach <= tap * apart < size - first]
        found.append((met[0], len(met)) if met else (0, shape.kernel[at]))
    return found[0], found[1]


def depth_extents(shape: ConvolutionShape, *, in_pairs: bool) -> tuple[int, ...]:
    """Return the extents of the loops that sum up, innermost first.

    In pairs the first loop is over a pair; a depthwise convolution has none.
    """
    rows, columns = shape.kernel
    pair = (PAIR,) if in_pairs else ()
    step = PAIR if in_pairs else 1
    if shape.is_depthwise:
        return columns, rows
    if shape.is_stem:
        return (*pair, -(-columns // step), rows, shape.channels_in)
    (_, rows), (_, columns) = met_taps(shape)
    return (*pair, shape.block // step, columns, rows, shape.blocks_summed)


def direct_sums(
    read: hl.Func | hl.ImageParam,
    weights: hl.ImageParam,
    shape: ConvolutionShape,
    *,
    in_pairs: bool,
    name: str = PRODUCTS,
    depth_name: str = "r",
) -> hl.Func:
    """Return the sums of products; the two of a pair are the innermost loop.

    Args:
        read: The image, with its zeros around it.
        weights: As the host keeps them, or in pairs (see `pair_packing`).
        shape: What is computed.
        in_pairs: True if factors are bfloat16, summed up in pairs.
        name: Of the stage.
        depth_name: Of its loops over what is summed up, before `$x`, `$y`, ...
    """
    is_dense = is_thinned(shape, _precision(in_pairs=in_pairs))
    strides = (1, 1) if is_dense else shape.strides
    extents = depth_extents(shape, in_pairs=in_pairs)
    r = hl.RDom([(0, extent) for extent in extents], depth_name)
    depth = [r[at] for at in range(len(extents))]
    if in_pairs:
        first = PAIR * depth[1] + depth[0]
        taken = [first, *depth[2:]]
    else:
        first, taken = depth[0], depth
    if shape.is_depthwise:
        pixel = [v.o, *tap(shape, strides, (v.w, v.h), taken[0], taken[1]), v.b, v.n]
    elif shape.is_stem:
        pixel = [*tap(shape, strides, (v.w, v.h), taken[0], taken[1]), taken[2], v.n]
    else:
        (above, _), (left, _) = met_taps(shape)
        taken[1], taken[2] = taken[1] + left, taken[2] + above
        depth[-3:-1] = taken[1:3]
        block = taken[3]
        if shape.groups > 1:
            block = block + v.b // shape.blocks_together * shape.blocks_summed
        pixel = [taken[0], *tap(shape, strides, (v.w, v.h), taken[1], taken[2]), block, v.n]
    place_of_weight = [v.o, *depth, v.b]
    if in_pairs:
        place_of_weight[:2] = depth[0], v.o
    products, place = hl.Func(name), (v.o, v.w, v.h, v.b, v.n)
    products[place] = constant(0.0)
    products[place] += hl.f32(read[tuple(pixel)]) * hl.f32(weights[tuple(place_of_weight)])
    if in_pairs:
        products.update().atomic()  # lets the schedule vectorise a pair
    return products


def tap(
    shape: ConvolutionShape,
    strides: tuple[int, int],
    result: tuple[hl.Var, hl.Var],
    column: hl.Expr,
    row: hl.Expr,
) -> tuple[hl.Expr, hl.Expr]:
    """Return the column and the row of the padded image a value of the filter meets.

    Args:
        shape: What is computed.
        strides: Rows and columns of the image that is read from one result to the next.
        result: Column and row of the result.
        column: Of the value of the filter.
        row: Of the value of the filter.
    """
    (down, along), (rows_apart, columns_apart) = strides, shape.dilations
    return result[0] * along + column * columns_apart, result[1] * down + row * rows_apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Direct(TiledAlgorithm[ConvolutionPlan]):
    """Every product once; in float32 for chains, groups and small images."""

    precision: Precision

    def supports(self, plan: ConvolutionPlan) -> Support:
        shape, is_lower = plan.shape, self.precision.is_lower
        if shape.is_depthwise:
            return Support("a depthwise Conv has one product for each value of a filter")
        if is_lower and shape.is_stem and shape.dilations[1] > 1:
            return Support("Conv of a plain image with dilated filters has no pairs")
        is_small = shape.rows * shape.columns <= _SMALL and prod(shape.kernel) > 1
        spares_reorders = plan.prologue is not None and plan.prologue.has_reorders
        does_less = is_lower or plan.epilogue.cycles or spares_reorders or shape.groups > 1
        if does_less or is_small or _is_left_over(shape):
            return SUPPORTED
        return Support("a direct convolution without a chain behind it gains nothing")

    def is_available(self, target: KernelTarget) -> bool:
        return target.bf16_dot or not self.precision.is_lower

    def pipeline(self, plan: ConvolutionPlan) -> Pipeline:
        return direct_pipeline(plan, self.precision)

    def tiles(self, plan: ConvolutionPlan, target: KernelTarget) -> Sequence[Tile]:
        return sorted(best_tiles(plan.shape, target.registers))

    def rows(self, plan: ConvolutionPlan, target: KernelTarget) -> tuple[int, ...]:
        return tuple(n for n in _GROUPS if n <= plan.shape.rows)

    def fits(self, values: Values, plan: ConvolutionPlan, target: KernelTarget) -> bool:
        tile = tile_of(values)
        is_offered = tile in best_tiles(plan.shape, target.registers)
        return is_offered and groups_fit(values, -(-plan.shape.rows // tile[2]))

    def cost(self, values: Values, plan: ConvolutionPlan, target: KernelTarget) -> float:
        """Return the estimated cycles: products, traffic, tasks, idle threads."""
        shape, precision = plan.shape, self.precision
        blocks, wide, high = tile_of(values)
        size, pairs = (2, 2) if precision is Precision.BFLOAT16 else (4, 1)
        taps = prod(count for _, count in met_taps(shape))
        filters = shape.channels_in // shape.groups * shape.channels_out * taps
        products = filters / target.vector_lanes / pairs * shape.rows * shape.columns
        cycles = products * tile_cost((blocks, wide, high), shape)
        rows = shape.rows
        if values[SCOPE] == GROUP:
            rows = min(rows, int(values[TILE_ROWS]) * high)
        groups = -(-shape.rows // rows)
        held = _held(shape, rows, precision)
        if needs_copy(shape, precision):
            cycles += 3 * held * groups / target.vector_lanes
        cycles += groups * _run_cycles(shape, target)
        panel = filters // shape.channels_out * blocks * shape.block * size
        if held * size + panel > 0.8 * target.l2_bytes:  # pixels are read again for each panel
            panels = shape.blocks_out // blocks
            cycles += (panels * held + filters) * size * groups / _FAR_BYTES_PER_CYCLE
        if panel > 0.6 * target.l2_bytes:  # read again for each register tile
            tiles = -(-shape.rows // high) * -(-shape.columns // wide)
            cycles += filters * size * tiles / _FAR_BYTES_PER_CYCLE
        if values[SCOPE] == GROUP:  # every thread reads all weights, the first one from memory
            cycles += (target.threads - 1) * filters * size / _SHARED_BYTES_PER_CYCLE
        has_own_copy = values[SCOPE] == IMAGE and needs_copy(shape, precision)
        tasks, idle = _tasks(values, shape, target)
        waiting = _waiting_cycles(cycles * shape.batch / tasks, target, sections=1 + has_own_copy)
        return cycles * idle + (_TASK_CYCLES * tasks + waiting) / shape.batch

    def steps(self, values: Values, plan: ConvolutionPlan) -> Iterator[Step]:
        is_heavy = plan.epilogue.is_heavy
        yield from _result_steps(values, plan.shape, is_heavy=is_heavy)
        yield from _copy_steps(values, plan.shape, self.precision)
        yield from product_steps(values, plan.shape, self.precision, is_heavy=is_heavy)


def _is_left_over(shape: ConvolutionShape) -> bool:
    """Return True for pointwise convolutions whose blocks the host computes below the roof."""
    is_pointwise = shape.kernel == shape.strides == (1, 1) and not shape.is_stem
    is_large = shape.rows * shape.columns >= _LEAST_PIXELS
    has_rest = shape.block == _BLOCK_OF_AVX2 and shape.blocks_out % _BLOCKS_OF_HOST != 0
    return is_pointwise and is_large and has_rest


@cache
def best_tiles(shape: ConvolutionShape, registers: int) -> tuple[Tile, ...]:
    """Return blocks, columns and rows of the best register tiles, best first."""
    blocks = (*_BLOCKS, _MOST_BLOCKS) if has_few(registers) else _BLOCKS
    found = [
        tile
        for tile in product(blocks, _ACROSS, _DOWN)
        if registers_of(tile) <= registers
        and shape.blocks_together % tile[0] == 0
        and tile[1] <= shape.columns
        and tile[2] <= shape.rows
    ]
    return tuple(sorted(found, key=lambda tile: (tile_cost(tile, shape), tile))[:_BEST_TILES])


def has_few(registers: int) -> bool:
    """Return True for the register files of AVX2 and before."""
    return registers <= _FEW_REGISTERS


def registers_of(tile: Tile) -> int:
    """Return the sums, weights of `blocks` vectors, and the broadcast values that meet them.

    LLVM loads values ahead, the fewer the more weights meet one. Without registers for the values,
    14 sums of AVX2 put 26 values to memory for each 112 products and take 1.4 times as long (Zen 5,
    2026-11-26). Tiles of 3x4 and 5x2, which fill its 16 registers, put none there.
    """
    blocks, wide, high = tile
    return blocks * wide * high + blocks + max(1, 4 - blocks)


def tile_cost(tile: Tile, shape: ConvolutionShape) -> float:
    """Return cycles per product and vector: two a cycle, results computed twice, waits.

    Many sums hide that a result of the vector unit takes four cycles and that weights and pixels
    are loaded. Measured with 64 channels of 56x56 on AVX-512: tiles of (2, 14, 1) are fastest,
    (2, 7, 2) take 1.05, (4, 3, 2) 1.1 times as long; of 160x160, where both leave columns over,
    (2, 7, 2) take 1.25 times as long.
    """
    blocks, wide, high = tile
    sums = blocks * wide * high
    repeated = -(-shape.columns // wide) * wide * -(-shape.rows // high) * high
    waiting = max(1.0, 10 / sums) + 0.3 * max(0.0, 1 - sums / 28) + 0.05 * (high - 1)
    waiting *= 1.15 if high > 1 and shape.columns % wide else 1.0
    loads = (blocks + wide * high) / sums
    return repeated / (shape.columns * shape.rows) * waiting * max(0.5, 0.55 * loads)


def _held(shape: ConvolutionShape, rows: int, precision: Precision) -> int:
    """Return the elements of the image that so many rows of results are made of."""
    if is_thinned(shape, precision):
        return rows * shape.columns * shape.channels_in
    read = (rows - 1) * shape.strides[0] + shape.kernel[0]
    return (read if rows < shape.rows else shape.height) * shape.width * shape.channels_in


def _run_cycles(shape: ConvolutionShape, target: KernelTarget) -> float:
    """Return the cycles of reading and writing a group of rows in pieces without a gap."""
    read = shape.channels_in if shape.is_stem else shape.blocks_in
    touched = 4 * (prod(shape.image_extents) + prod(shape.result_extents))
    is_near = touched <= target.l2_bytes // 2
    return (_NEAR_RUN_CYCLES if is_near else _RUN_CYCLES) * (read + 0.5 * shape.blocks_out)


def _tasks(values: Values, shape: ConvolutionShape, target: KernelTarget) -> tuple[int, float]:
    """Return the number of tasks, and the busiest thread's work over the mean of all threads."""
    rows = shape.rows
    size = int(values[TILE_ROWS]) * int(values[DOWN])
    if values[SCOPE] == IMAGE:
        rows, size = shape.blocks_out, int(values[BLOCKS])
    tasks = shape.batch * -(-rows // size)
    busiest = min(-(-tasks // target.threads) * size, shape.batch * rows)
    return tasks, busiest * target.threads / (shape.batch * rows)


def _waiting_cycles(task: float, target: KernelTarget, *, sections: int) -> float:
    """Return the cycles threads wait for each other: long tasks are not shared out again."""
    if target.threads == 1:
        return 0.0
    late = _LATE_CYCLES * task / (task + _SHORT_TASK_CYCLES)
    return target.threads * (late + _SECTION_CYCLES * (sections - 1))


def _result_steps(values: Values, shape: ConvolutionShape, *, is_heavy: bool) -> Iterator[Step]:
    blocks, wide, high = tile_of(values)
    # the last tile overlaps the one before: no guard stands between sums and stores
    yield sch.Split(RESULT, "h", "h", "in_h", high, sch.Tail.SHIFT_INWARDS)
    yield sch.Split(RESULT, "b", "b", "in_b", blocks, sch.Tail.GUARD)
    inner: tuple[str, ...] = ("o", "w", "in_h", "in_b", "h")  # the chain walks rows of tiles
    # a short chain is applied to the sums while they are in registers
    if not is_heavy:
        yield sch.Split(RESULT, "w", "w", "in_w", wide, sch.Tail.SHIFT_INWARDS)
        inner = ("o", "in_w", "in_h", "in_b", "w", "h")
    if high == 1:  # taller tiles get slower by it, flat ones faster
        yield sch.NeverPartition(RESULT, "w")
    # blocks of channels inside a group: the rows it has copied serve all of them
    yield from group_steps(values, (*inner, "b"))
    tile = {} if is_heavy else {"in_w": wide, "in_h": high, "in_b": blocks}
    yield from register_steps((RESULT,), ("o", shape.block), tile)
    yield from task_steps(values)


def _copy_steps(values: Values, shape: ConvolutionShape, precision: Precision) -> Iterator[Step]:
    if not needs_copy(shape, precision):
        return
    yield from copy_steps(values, PADDED, "c" if shape.is_stem else "b")
    if shape.is_stem:
        yield sch.Split(PADDED, "w", "w", "in_w", shape.block, sch.Tail.GUARD)
        yield sch.Vectorize(PADDED, "in_w", shape.block)
    else:
        yield sch.Vectorize(PADDED, "c", shape.block)


def product_steps(
    values: Values, shape: ConvolutionShape, precision: Precision, *, is_heavy: bool
) -> Iterator[Step]:
    blocks, wide, high = tile_of(values)
    tile = {"b": blocks, "w": wide, "h": high}
    # a long chain reads sums from memory: its own constants need the registers
    if is_heavy:
        yield from finished_steps(values, shape)
    else:
        yield sch.ComputeAt(PRODUCTS, RESULT, "w")
    in_pairs = precision is Precision.BFLOAT16
    extents = depth_extents(shape, in_pairs=in_pairs)
    pair, depth = REDUCED[: int(in_pairs)], REDUCED[int(in_pairs) : len(extents)]
    # each step of the depth adds to every sum of a tile once: none waits for itself
    yield sch.Reorder(SUMMED, (*pair, "o", "b", "w", "h", *depth, "n"))
    # one instruction adds both products of a pair to a sum
    if in_pairs:
        yield sch.Vectorize(SUMMED, "r$x", PAIR)
    yield from register_steps((PRODUCTS, SUMMED), ("o", shape.block), tile)
    if not shape.is_stem:  # columns of a filter that share pixels would keep them in registers
        yield sch.Unroll(SUMMED, depth[0], extents[int(in_pairs)])


def finished_steps(values: Values, shape: ConvolutionShape) -> Iterator[Step]:
    """Yield the steps that store a row of tiles for a long chain, which then walks it.

    Inside the loop of the tiles, LLVM would give the chain's constants the registers of depthwise
    sums: 144 channels of 56x56 by 3x3 with SiLU take 1.5 times as long then with AVX2. Few vectors
    at a time would wait for each other, too: pointwise ones with SiLU take 1.03 times as long.
    """
    blocks, wide, high = tile_of(values)
    yield sch.ComputeAt(FINISHED, RESULT, "h")
    yield sch.Split(FINISHED, "w", "w", "in_w", wide, sch.Tail.SHIFT_INWARDS)
    yield sch.Reorder(FINISHED, ("o", "b", "in_w", "h", "w", "n"))
    tile = {"b": blocks, "in_w": wide, "h": high}
    yield from register_steps((FINISHED,), ("o", shape.block), tile)
    yield sch.ComputeAt(PRODUCTS, FINISHED, "w")
