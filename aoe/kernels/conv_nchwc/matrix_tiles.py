"""Direct convolution in bfloat16, summed in the CPU's matrix tiles (AMX).

The stages:

    padded    the image with its zeros around it, rounded to bfloat16, in blocks of 32 channels
    sums      sums of products, by `aoe_sum_tiles` of the glue, float32
    y         bias, the tensor added, activation, the chain
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import halide as hl

from aoe import schedule as sch
from aoe.kernels.conv_nchwc.shape import (
    WEIGHTS,
    ConvolutionPlan,
    ConvolutionShape,
    finished_result,
    kernel_arguments,
    padded_image,
)
from aoe.kernels.family import SUPPORTED, KernelTarget, PackedInput, Pipeline, Support
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.tile_sums import BYTES_PER_US, OPERATIONS_PER_US, REDUCED, tile_sums
from aoe.kernels.math.functions import constant, to_bfloat16
from aoe.kernels.tiled_products import (
    BLOCKS,
    GROUP,
    SCOPE,
    TILE_ROWS,
    Tile,
    TiledAlgorithm,
    parts_in_matrix_tiles,
    rows_in_matrix_tiles,
    tile_of,
)
from aoe.schedule import Step, Values

PADDED, SUMS = "padded", "sums"
_LANES = 16
"""Channels of a block, and results of a tile's row: 64 bytes of float32."""


def matrix_tiles_pipeline(plan: ConvolutionPlan) -> Pipeline:
    """Return the algorithm; weights are rounded and paired once, when the kernel is created.

    The arguments are the workload's inputs, weights replaced: bfloat16, from the innermost
    (2 channels of a pair, 16 o, 16 pairs, columns, rows, blocks of 32 channels in, blocks out).
    """
    shape = plan.shape
    arguments = kernel_arguments(plan, _packed_extents(shape), hl.BFloat(16))
    c, o, w, h, b, n = (hl.Var(name) for name in ("c", "o", "w", "h", "b", "n"))
    padded, result = hl.Func(PADDED), hl.Func(RESULT)
    block = b * (REDUCED // _LANES) + c // _LANES
    pixel = padded_image(plan, arguments, (c % _LANES, w, h, block, n))
    padded[c, w, h, b, n] = to_bfloat16(pixel)
    weights = arguments.at(WEIGHTS)
    sums = tile_sums(SUMS, padded, weights, shape.strides, shape.dilations)
    place = (o, w, h, b, n)
    result[place] = finished_result(plan, arguments, sums[place], place)
    padded.bound(c, 0, REDUCED).compute_root()  # steps place it closer
    blocks = shape.blocks_out
    return Pipeline(
        output=result,
        stages={PADDED: padded, SUMS: sums, RESULT: result},
        arguments=arguments.buffers,
        argument_extents=arguments.extents,
        output_extents=shape.result_extents,
        loops={
            PADDED: (("c", REDUCED), ("w", 0), ("h", 0), ("b", 0), ("n", 0)),
            SUMS: (("o", _LANES), ("w", 0), ("h", 0), ("b", 0), ("n", 0)),
            RESULT: (
                *(("o", _LANES), ("w", shape.columns), ("h", shape.rows)),
                *(("b", blocks), ("n", shape.batch)),
            ),
        },
        packings={plan.inputs[WEIGHTS]: _packing(shape)},
    )


def _packed_extents(shape: ConvolutionShape) -> tuple[int, ...]:
    rows, columns = shape.kernel
    blocks = -(-shape.channels_in // REDUCED)
    return 2, _LANES, REDUCED // 2, columns, rows, blocks, shape.blocks_out


def _packing(shape: ConvolutionShape) -> PackedInput:
    """Return weights as the tiles want them, from "OIhw16i16o"; missing channels are 0."""
    rows, columns = shape.kernel
    extents = (_LANES, _LANES, columns, rows, shape.blocks_in, shape.blocks_out)
    weights = hl.ImageParam(hl.Float(32), len(extents), "weights")
    bounds = tuple(zip((0,) * 6, extents, strict=True))
    exterior = hl.BoundaryConditions.constant_exterior(weights, constant(0.0), bounds)
    q, o, t, x, y, i, b = (hl.Var(name) for name in ("q", "o", "t", "x", "y", "i", "b"))
    packed = hl.Func("packed")
    channel = 2 * t + q
    block = i * (REDUCED // _LANES) + channel // _LANES
    packed[q, o, t, x, y, i, b] = to_bfloat16(exterior[o, channel % _LANES, x, y, block, b])
    packed.bound(q, 0, 2).bound(o, 0, _LANES).unroll(q).vectorize(o, _LANES)
    return PackedInput(output=packed, argument=weights, argument_extents=extents, dtype="bfloat16")


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixTiles(TiledAlgorithm[ConvolutionPlan]):
    """Every product once, in bfloat16, summed in the CPU's matrix tiles, which have one shape."""

    def supports(self, plan: ConvolutionPlan) -> Support:
        shape = plan.shape
        if shape.is_stem:
            return Support("Conv of a plain image has no blocks of channels to sum in tiles")
        if shape.groups > 1:
            return Support("Conv in groups has too few channels to sum in tiles")
        return SUPPORTED if shape.block == _LANES else Support(f"Conv in blocks of {shape.block}")

    def is_available(self, target: KernelTarget) -> bool:
        return target.bf16_tiles

    def pipeline(self, plan: ConvolutionPlan) -> Pipeline:
        return matrix_tiles_pipeline(plan)

    def tiles(self, plan: ConvolutionPlan, target: KernelTarget) -> Sequence[Tile]:
        return parts_in_matrix_tiles(plan.shape.blocks_out)

    def rows(self, plan: ConvolutionPlan, target: KernelTarget) -> tuple[int, ...]:
        return rows_in_matrix_tiles(plan.shape.rows)

    def fits(self, values: Values, plan: ConvolutionPlan, target: KernelTarget) -> bool:
        # what does not divide evenly is cut at the end
        is_offered = tile_of(values) in self.tiles(plan, target)
        return is_offered and values[TILE_ROWS] in self.rows(plan, target)

    def cost(self, values: Values, plan: ConvolutionPlan, target: KernelTarget) -> float:
        """Return the rough time in us: sums, data rounded, weights read, idle cores."""
        shape = plan.shape
        rows, blocks = int(values[TILE_ROWS]), int(values[BLOCKS])
        groups, parts = -(-shape.rows // rows), -(-shape.blocks_out // blocks)
        is_per_task = values[SCOPE] == GROUP
        tasks = shape.batch * groups * (1 if is_per_task else parts)
        taps = shape.kernel[0] * shape.kernel[1]
        filled = shape.columns / (-(-shape.columns // _LANES) * _LANES)
        pairs = -(-min(blocks, shape.blocks_out) // 2) * 2 / min(blocks, shape.blocks_out)
        results = groups * rows * shape.columns * shape.batch * shape.channels_out
        summing = 2 * results * shape.channels_in * taps * pairs / filled / OPERATIONS_PER_US
        window = (rows - 1) * shape.strides[0] + (shape.kernel[0] - 1) * shape.dilations[0] + 1
        read_rows = groups * window if is_per_task else shape.height
        rounded = 6 * read_rows * shape.width * shape.channels_in * shape.batch
        weights = 2 * taps * shape.channels_in * shape.channels_out
        kept = 1.0 if weights <= target.l2_bytes // 2 else float(groups * shape.batch)
        sums = 4 * rows * shape.columns * blocks * _LANES
        spilt = 8 * results if sums > target.l1_bytes else 0
        if sums > target.l2_bytes // 2:
            spilt *= 4
        moved = (rounded + weights * kept + spilt + 4 * results) / BYTES_PER_US
        idle = target.idle_ratio(tasks)
        return (summing + moved) * idle

    def steps(self, values: Values, plan: ConvolutionPlan) -> Iterator[Step]:
        """Yield the steps: the image is padded for each task, or at once."""
        is_per_task = values[SCOPE] == GROUP
        yield sch.Split(RESULT, "h", "group", "h", int(values[TILE_ROWS]), sch.Tail.GUARD)
        yield sch.Split(RESULT, "b", "part", "b", int(values[BLOCKS]), sch.Tail.GUARD)
        yield sch.Reorder(RESULT, ("o", "w", "h", "b", "part", "group", "n"))
        yield sch.Vectorize(RESULT, "o", _LANES)
        if not is_per_task:
            yield sch.Fuse(RESULT, "group", "part", "group")
        # one loop for the threads: a parallel loop inside of another runs on one
        yield sch.Fuse(RESULT, "n", "group", "task")
        yield sch.ComputeAt(SUMS, RESULT, "part" if is_per_task else "task")
        yield sch.ComputeAt(PADDED, RESULT, "task") if is_per_task else sch.ComputeRoot(PADDED)
        yield sch.Split(PADDED, "c", "half", "c", _LANES)
        yield sch.Vectorize(PADDED, "c", _LANES)
        yield sch.Unroll(PADDED, "half", REDUCED // _LANES)
        yield sch.Parallel(RESULT, "task")
        if not is_per_task:
            yield sch.Parallel(PADDED, "b")
