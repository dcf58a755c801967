"""A convolution in groups with the pointwise one in front of it, as one kernel.

    rounded        the image that is read, rounded to bfloat16, where factors are
    made sums      sums over the channels of the image that is read, in registers
    made finished  the same put down, for chains too long to be written out for each of them
    made           bias, activation, the chain between: the image of the second convolution
    padded         that image with the zeros around it, where there are any
    products, finished, y   as in `aoe.kernels.conv_nchwc.direct`

The intermediate image is there for some blocks of channels at a time, of all its rows or of the
rows a group of results needs: it never leaves the second-level cache. Zeros around it are zeros
behind the chain, as in the host.

A task makes some blocks of channels of the whole image (scope `image`), or all of them for a group
of rows of results (`group`). Where it can, it is the former: no row of the image between is made
twice, and weights are read once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import prod

import halide as hl

from aoe import schedule as sch
from aoe.kernels.conv_nchwc import depthwise, direct
from aoe.kernels.conv_nchwc.direct import (
    FINISHED,
    PADDED,
    PAIR,
    PRODUCTS,
    REDUCED,
    SUMMED,
    depth_extents,
    direct_sums,
    has_few,
    pair_extents,
    pair_packing,
    registers_of,
)
from aoe.kernels.conv_nchwc.shape import (
    WEIGHTS,
    ConvolutionShape,
    KernelArguments,
    X,
    buffers_of,
    finished_pipeline,
    finished_result,
    finished_sum,
)
from aoe.kernels.family import UPDATE, KernelTarget, Pipeline, PlannedFamily, Support
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.loops import v
from aoe.kernels.halide.tiling import AGAIN, KEEP
from aoe.kernels.inverted_bottleneck.shape import BottleneckShape, read_expansion
from aoe.kernels.math.functions import constant, to_bfloat16
from aoe.kernels.tiled_products import (
    ACROSS,
    BLOCKS,
    DOWN,
    GROUP,
    IMAGE,
    SCOPE,
    TILE_ROWS,
    cheapest_first,
    copy_steps,
    group_steps,
    groups_fit,
    register_steps,
    task_steps,
    tile_of,
)
from aoe.operators import BLOCKED_CONVOLUTION
from aoe.schedule import Choice, Knob, Schedule, Space, Step, Values
from aoe.workload import Precision, Workload

COPY = "padded"
"""The intermediate image is copied with the zeros around it (keep), or they are made where it is
read (again)."""
_BLOCKS, _BLOCKS_OF_FEW, _GROUPS = (1, 2, 4), (1, 2, 3, 4, 5), (1, 4, 7, 14, 28)
_MADE_ROWS = (1, 2)
"""Rows of a register tile of what is made between, where registers are few: 14 columns by 4 waste
two, 2 columns of 2 rows none."""
_ACROSS = range(1, 29)
_NEAR_BYTES_PER_CYCLE, _FAR_BYTES_PER_CYCLE = 32, 12
"""Traffic of a core with its second-level cache, and beyond it. Assumed: 100 and 40 GB/s at
3 GHz."""
_WAITED = 0.3
"""Share of reading the image that products do not hide. Assumed."""
_LEAST_SUMS = 8
"""Sums that hide how long a product takes: four cycles, two a cycle."""
_FULL_SUMS, _UNHIDDEN = 12, 0.27
"""Sums of few registers from which on loads are hidden, and what a tile without any would take
longer. With AVX2 tiles of 3x4 take 0.93 of the time of 2x4, and these 0.89 of that of 1x8, for 144
channels of 56x56 and 192 of 28x28, filter and all (one thread of a Zen 4 with other work, CPU time,
2026-11-28)."""
_ZEROS_MADE = 1.3
"""Time, relative to a copy, of filters of stride 1 that make zeros where they read. Both together,
in float32 and with a copy: 144 channels of 56 x 56 204 and 214 us, 192 of 28 x 28 57 and 63, 384 of
14 x 14 46 and 48, in groups of rows of 56 x 56 222 and 202 (one thread of a Zen 5 with other work,
CPU time, 2026-11-23)."""
_ROUNDING_CYCLES = 3
"""Of a vector of the image that is read. Source: `aoe.kernels.conv_nchwc.direct`."""
_L2_SHARE = 0.7
"""Of the second-level cache that what is made between may take: the image read is there, too."""
ROUNDED, MADE, MADE_SUMS, MADE_FINISHED = "rounded", "made", "made_sums", "made_finished"
MADE_SUMMED = f"{MADE_SUMS}{UPDATE}"
MADE_DEPTH = ("k$x", "k$y", "k$z", "k$w", "k$4")
"""Loops over what the first convolution sums up, innermost first; the last is there for pairs."""


class InvertedBottleneck(PlannedFamily[BottleneckShape]):
    """y = chain(grouped(chain(x * w + bias)) + bias), blocked: an inverted residual's first half.

    Mobile networks expand the channels, filter each of them, and project them back. What is between
    is several times larger than what is read; ONNX Runtime writes it to memory and reads it again.
    Here some blocks of its channels are made, and filtered while they are in the caches.
    """

    name = "expanded_convolution"
    anchors = frozenset({BLOCKED_CONVOLUTION})

    def plan(self, workload: Workload) -> BottleneckShape | Support:
        """Plan a pointwise convolution and one in groups behind it, or tell why not."""
        return read_expansion(workload)

    def pipeline_of(self, plan: BottleneckShape, algorithm: str) -> Pipeline:
        """Return the algorithm of the workload's precision.

        Raises:
            ValueError: it is asked for by another name.
        """
        expected = _algorithm(plan)
        if algorithm not in ("", expected):
            raise ValueError(
                f"expanded_convolution: no such algorithm (got {algorithm}, expected {expected!r})"
            )
        return expansion_pipeline(plan)

    def space_of(self, plan: BottleneckShape, target: KernelTarget) -> Space:
        """Return register tiles, and what a task and what is kept between the stages are."""
        offered = _choices(plan, target)
        knobs = (
            *(Knob(name, numbers) for name, numbers in offered.items()),
            Knob(COPY, _copies(plan)),
            Knob(SCOPE, (GROUP, IMAGE)),
        )

        def legal(values: Values) -> bool:
            return _fits(values, plan, target)

        best: dict[tuple[Choice, Choice], dict[str, Choice]] = {}
        for guess in _ranked(plan, target):
            best.setdefault((guess[SCOPE], guess[COPY]), guess)
        return Space(knobs=knobs, constraint=legal, first_guesses=tuple(best.values()))

    def schedule_of(self, plan: BottleneckShape, values: Values, target: KernelTarget) -> Schedule:
        steps = _steps(values, plan, target)
        return Schedule(tuple(steps), algorithm=_algorithm(plan))


def _algorithm(expansion: BottleneckShape) -> str:
    """Return the name schedules have: that of the products of the first convolution."""
    return "direct_bf16" if expansion.in_pairs else ""


def _choices(expansion: BottleneckShape, target: KernelTarget) -> dict[str, tuple[int, ...]]:
    """Return the choices for the numbers of a configuration, ascending."""
    shape = expansion.second.shape
    tiles = _result_tiles(shape, target)
    offered = _BLOCKS_OF_FEW if has_few(target.registers) else _BLOCKS
    return {
        BLOCKS: tuple(n for n in offered if shape.blocks_out % n == 0),
        ACROSS: tuple(sorted({wide for wide, _ in tiles})),
        DOWN: tuple(sorted({high for _, high in tiles})),
        TILE_ROWS: tuple(n for n in _GROUPS if n <= shape.rows),
    }


def _copies(expansion: BottleneckShape) -> tuple[str, ...]:
    """Return the choices for the copy of the intermediate image with the zeros around it.

    Zeros that are made where they are read cost nothing only where the filter is written out.
    """
    shape = expansion.second.shape
    if not any(shape.pads):
        return (AGAIN,)
    return (KEEP, AGAIN) if shape.is_depthwise else (KEEP,)


def _fits(values: Values, expansion: BottleneckShape, target: KernelTarget) -> bool:
    """Return True for the register tiles a shape is offered, in groups inside the image."""
    shape = expansion.second.shape
    blocks, wide, high = tile_of(values)
    if (wide, high) not in _result_tiles(shape, target):
        return False
    if shape.blocks_out % blocks or values[COPY] not in _copies(expansion):
        return False
    return groups_fit(values, -(-shape.rows // high))


def _ranked(expansion: BottleneckShape, target: KernelTarget) -> Iterator[dict[str, Choice]]:
    """Yield legal configurations, the most promising first."""
    offered = _choices(expansion, target)
    found: Iterator[dict[str, Choice]] = (
        {**dict(zip(offered, numbers, strict=True)), COPY: copy, SCOPE: scope}
        for scope, copy in product((IMAGE, GROUP), _copies(expansion))
        for numbers in product(*offered.values())
    )
    for _, values in cheapest_first(
        found,
        lambda values: _fits(values, expansion, target),
        lambda values: _cycles(values, expansion, target),
    ):
        yield values


def _result_tiles(shape: ConvolutionShape, target: KernelTarget) -> tuple[tuple[int, int], ...]:
    """Return columns and rows of the best register tiles of results, best first."""
    if shape.is_depthwise:
        return depthwise.best_tiles(shape, target.registers)
    found = direct.best_tiles(shape, target.registers)
    return tuple((wide, high) for blocks, wide, high in found if blocks == 1)


def _made_tile(
    expansion: BottleneckShape, blocks: int, scope: Choice, target: KernelTarget
) -> tuple[int, int]:
    """Return the columns and rows of a register tile of what is made between.

    Args:
        expansion: What is computed.
        blocks: Of channels in the tile.
        scope: What a task makes; a group may need a single row.
        target: Says how many registers there are.
    """
    shape, registers = expansion.first.shape, target.registers
    most_rows, most_columns = expansion.needed
    several = _MADE_ROWS if has_few(registers) and scope == IMAGE else (1,)
    fitting = [
        (wide, high)
        for wide, high in product(_ACROSS, several)
        if wide <= most_columns
        and high <= most_rows
        and registers_of((blocks, wide, high)) <= registers
    ]
    cycles = {tile: _made_cycles(blocks, tile, shape, registers) for tile in fitting}
    return min(fitting, key=lambda tile: (cycles[tile], tile[1], -tile[0]))


def _cycles(values: Values, expansion: BottleneckShape, target: KernelTarget) -> float:
    """Return the estimated cycles of a configuration: products, traffic, idle threads."""
    first, second = expansion.first.shape, expansion.second.shape
    blocks, wide, high = tile_of(values)
    size, together = (2, PAIR) if expansion.in_pairs else (4, 1)
    is_whole = values[SCOPE] == IMAGE
    rows = second.rows if is_whole else min(second.rows, int(values[TILE_ROWS]) * high)
    groups = -(-second.rows // rows)
    pixels = expansion.read_rows(rows) * second.width
    tile = _made_tile(expansion, blocks, values[SCOPE], target)
    summing = first.channels_in / together * _made_cycles(blocks, tile, first, target.registers)
    made = pixels * (summing + expansion.first.epilogue.cycles)
    results = rows * second.columns * _result_cycles((wide, high), second, target)
    if values[COPY] == AGAIN and any(second.pads) and second.strides == (1, 1):
        results *= _ZEROS_MADE
    vector = 4 * target.vector_lanes
    is_copied = values[COPY] == KEEP
    held, image = pixels * vector * (blocks + is_copied), size * pixels * first.channels_in
    is_near = held <= _L2_SHARE * target.l2_bytes
    moved = (2 + 2 * is_copied) * pixels * vector
    between = moved / (_NEAR_BYTES_PER_CYCLE if is_near else _FAR_BYTES_PER_CYCLE)
    is_kept = held + image <= target.l2_bytes
    read = _WAITED * image / blocks
    read /= _NEAR_BYTES_PER_CYCLE if is_kept else _FAR_BYTES_PER_CYCLE
    vectors = size * target.vector_lanes
    weights = 0.0 if is_whole else vectors * first.channels_in / _FAR_BYTES_PER_CYCLE
    cycles = (made + results + between + read + weights) * second.blocks_out * groups
    cycles += _rounding_cycles(expansion, pixels, target) * groups
    tasks = second.batch * (second.blocks_out // blocks if is_whole else groups)
    return cycles * target.idle_ratio(tasks)


def _rounding_cycles(expansion: BottleneckShape, pixels: int, target: KernelTarget) -> float:
    """Return the cycles of rounding pixels of the image that is read; 0 in float32."""
    if not expansion.in_pairs:
        return 0.0
    return _ROUNDING_CYCLES * pixels * expansion.first.shape.channels_in / target.vector_lanes


def _made_cycles(
    blocks: int, tile: tuple[int, int], shape: ConvolutionShape, registers: int
) -> float:
    """Return cycles per product and vector of a register tile: two a cycle, waits, done twice.

    Pixels that meet one block are read where they are added, so with many registers more blocks
    spare no reads: 144 to 960 channels of 56x56 to 7x7 were as fast by one block as by two and
    four, or faster (one thread of a Zen 5 with other work, CPU time, 2026-11-23).
    """
    wide, high = tile
    sums = blocks * wide * high
    waiting = max(1.0, _LEAST_SUMS / sums)
    if has_few(registers):
        waiting += _UNHIDDEN * max(0.0, 1 - sums / _FULL_SUMS)
        waiting *= max(1.0, (blocks + wide * high) / sums)
    else:
        waiting += 0.02 * (blocks - 1)
    columns, rows = -(-shape.width // wide) * wide, -(-shape.height // high) * high
    return 0.5 * waiting * columns / shape.width * rows / shape.height


def _result_cycles(tile: tuple[int, int], shape: ConvolutionShape, target: KernelTarget) -> float:
    """Return the estimated cycles of one vector of results."""
    taps = prod(shape.kernel)
    if shape.is_depthwise:
        return 0.5 * taps * depthwise.tile_cost(tile, shape, target.registers)
    return taps * shape.block * direct.tile_cost((1, *tile), shape)


def _steps(values: Values, expansion: BottleneckShape, target: KernelTarget) -> Iterator[Step]:
    """Yield the steps of a configuration."""
    yield from _result_steps(values, expansion)
    yield from _rounded_steps(values, expansion)
    yield from _made_steps(values, expansion, target)
    yield from _product_steps(values, expansion)


def _result_steps(values: Values, expansion: BottleneckShape) -> Iterator[Step]:
    blocks, wide, high = tile_of(values)
    yield sch.Split(RESULT, "w", "w", "in_w", wide, sch.Tail.SHIFT_INWARDS)
    yield sch.Split(RESULT, "h", "h", "in_h", high, sch.Tail.SHIFT_INWARDS)
    yield sch.Split(RESULT, "b", "b", "in_b", blocks, sch.Tail.GUARD)
    inner = ("o", "in_w", "in_h", "w", "h", "in_b", "b")
    yield from group_steps(values, inner)
    is_heavy = expansion.second.epilogue.is_heavy
    tile = {} if is_heavy else {"in_w": wide, "in_h": high}
    yield from register_steps((RESULT,), ("o", expansion.second.shape.block), tile)
    yield from task_steps(values)


def _rounded_steps(values: Values, expansion: BottleneckShape) -> Iterator[Step]:
    """Yield the steps that round the image: for each group, or at once for all blocks."""
    if not expansion.in_pairs:
        return
    yield from copy_steps(values, ROUNDED, "b")
    yield sch.Vectorize(ROUNDED, "c", expansion.first.shape.block)


def _made_steps(values: Values, expansion: BottleneckShape, target: KernelTarget) -> Iterator[Step]:
    """Yield the steps that make the intermediate image: row after row, tile by tile."""
    block, blocks = expansion.first.shape.block, int(values[BLOCKS])
    wide, high = _made_tile(expansion, blocks, values[SCOPE], target)
    rows = {"in_h": high} if high > 1 else {}
    # some blocks of channels, filtered while the caches still hold them
    yield sch.ComputeAt(MADE, RESULT, "b")
    yield sch.Split(MADE, "w", "w", "in_w", wide, sch.Tail.SHIFT_INWARDS)
    if rows:
        yield sch.Split(MADE, "h", "h", "in_h", high, sch.Tail.SHIFT_INWARDS)
    yield sch.Reorder(MADE, ("o", "in_w", *rows, "b", "w", "h", "n"))
    yield sch.Vectorize(MADE, "o", block)
    stages = [MADE_SUMS, MADE_SUMMED]
    if expansion.first.epilogue.is_heavy:
        stages.append(MADE_FINISHED)
        yield sch.ComputeAt(MADE_FINISHED, MADE, "w")
        yield sch.Reorder(MADE_FINISHED, ("o", "b", "w", "h", "n"))
        yield sch.ComputeAt(MADE_SUMS, MADE_FINISHED, "n")
    else:
        for loop, factor in ({"in_w": wide} | rows | {"b": blocks}).items():
            yield sch.Unroll(MADE, loop, factor)
        yield sch.ComputeAt(MADE_SUMS, MADE, "w")
    pair, extents = MADE_DEPTH[: int(expansion.in_pairs)], made_depth(expansion)
    depth = MADE_DEPTH[len(pair) : len(extents)]
    yield sch.Reorder(MADE_SUMMED, (*pair, "o", "b", "w", "h", *depth, "n"))
    for loop in pair:
        yield sch.Vectorize(MADE_SUMMED, loop, PAIR)
    tile = {"b": blocks, "w": wide} | ({"h": high} if rows else {})
    yield from register_steps(stages, ("o", block), tile)
    yield sch.Unroll(MADE_SUMMED, depth[0], extents[len(pair)])


def _product_steps(values: Values, expansion: BottleneckShape) -> Iterator[Step]:
    shape = expansion.second.shape
    if values[COPY] == KEEP:
        yield sch.ComputeAt(PADDED, RESULT, "in_b")
        yield sch.Vectorize(PADDED, "c", shape.block)
    is_heavy = expansion.second.epilogue.is_heavy
    alone = {**values, BLOCKS: 1}
    if shape.is_depthwise:
        yield from depthwise.product_steps(alone, shape, is_heavy=is_heavy)
    else:
        yield from direct.product_steps(alone, shape, Precision.FLOAT32, is_heavy=is_heavy)


def expansion_pipeline(expansion: BottleneckShape) -> Pipeline:
    """Return the algorithm; the arguments are the workload's inputs.

    In bfloat16 the weights of the first convolution are packed once: see `pair_packing`.
    """
    first, second = expansion.first, expansion.second
    known = dict(enumerate(expansion.extents))
    if expansion.in_pairs:
        known[first.inputs[WEIGHTS]] = pair_extents(first.shape)
    kind = hl.BFloat(16) if expansion.in_pairs else hl.Float(32)
    of_first = buffers_of(known, first.inputs, kind)
    of_second = replace(of_first, places=second.inputs)
    place = (v.o, v.w, v.h, v.b, v.n)
    stages = _made(expansion, of_first)
    read = _padded(stages[MADE], second.shape)
    if read is not stages[MADE]:
        stages[PADDED] = read
    products = direct_sums(read, of_second.at(WEIGHTS), second.shape, in_pairs=False)
    finished, result = hl.Func(FINISHED), hl.Func(RESULT)
    finished[place] = products[place]
    result[place] = finished_result(second, of_second, finished[place], place)
    stages |= {PRODUCTS: products, SUMMED: products.update(), FINISHED: finished}
    return finished_pipeline(
        of_first,
        stages,
        result,
        extents=second.shape.result_extents,
        known={"o": second.shape.block, "c": second.shape.block},
        reduced={
            SUMMED: zip(REDUCED, depth_extents(second.shape, in_pairs=False), strict=False),
            MADE_SUMMED: zip(MADE_DEPTH, made_depth(expansion), strict=False),
        },
        packing=pair_packing(first.shape) if expansion.in_pairs else None,
        inlined=(FINISHED, MADE_FINISHED, PADDED),
    )


def _made(expansion: BottleneckShape, arguments: KernelArguments) -> dict[str, hl.Func]:
    """Return the stages of the first convolution."""
    first, place = expansion.first, (v.o, v.w, v.h, v.b, v.n)
    rounded = _rounded(arguments.at(X)) if expansion.in_pairs else None
    sums = direct_sums(
        arguments.at(X) if rounded is None else rounded,
        arguments.at(WEIGHTS),
        first.shape,
        in_pairs=expansion.in_pairs,
        name=MADE_SUMS,
        depth_name=MADE_DEPTH[0].partition("$")[0],
    )
    finished, made = hl.Func(MADE_FINISHED), hl.Func(MADE)
    finished[place] = sums[place]
    made[place] = finished_sum(first.epilogue, arguments, finished[place], place, (v.o, v.b))
    stages = {MADE_SUMS: sums, MADE_SUMMED: sums.update(), MADE_FINISHED: finished, MADE: made}
    return stages if rounded is None else {ROUNDED: rounded, **stages}


def _rounded(image: hl.ImageParam) -> hl.Func:
    """Return the image as bfloat16."""
    rounded, place = hl.Func(ROUNDED), (v.c, v.w, v.h, v.b, v.n)
    rounded[place] = to_bfloat16(image[place])
    return rounded


def _padded(made: hl.Func, shape: ConvolutionShape) -> hl.Func:
    """Return the image with its zeros around it; as it is where there are none."""
    if not any(shape.pads):
        return made
    anywhere = (hl.Expr(), hl.Expr())
    bounds = [anywhere, (0, shape.width), (0, shape.height), anywhere, anywhere]
    exterior = hl.BoundaryConditions.constant_exterior(made, constant(0.0), bounds)
    top, left = shape.pads[:2]
    padded = hl.Func(PADDED)
    padded[v.c, v.w, v.h, v.b, v.n] = exterior[v.c, v.w - left, v.h - top, v.b, v.n]
    return padded


def made_depth(expansion: BottleneckShape) -> tuple[int, ...]:
    """Return the extents of `MADE_DEPTH`; in pairs the first loop is over a pair."""
    return depth_extents(expansion.first.shape, in_pairs=expansion.in_pairs)
