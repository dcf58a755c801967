"""Matrix products by weights of 4 or 8 bits with a scale for each block of the depth (MatMulNBits).

    largest, quantised   where the model allows it (accuracy level 4): bits of the largest magnitude
                         of each block of a row, and the row in 8 bits, with a sign
    block_sums           of integers, sums of the blocks of a row: zero points are taken off by them
    parts, sums          sums of one block of the depth, then parts times their scales, in registers
    dequantised          many rows in float32: weights of a task as numbers, in the caches
    y                    the chain behind the product

Weights stay in memory as the model has them, 16 columns of a panel side by side: reading them is
what takes the time of a single row. In integers, weights count from 0, as their levels are stored,
and a zero point is taken off by the sum of the row's block. All of this is exact: one instruction
sums up four products u8 by s8 in 32 bits (`blocks_vnni`), or two of 16 bits where the CPU has none
(`blocks_widened`), and a block's sum is below 2**24, a float32.

A block of a row is rounded as ONNX Runtime does: its largest magnitude is 127 levels. A block with
a NaN or an infinity in it makes the row NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import halide as hl

from aoe import schedule as sch
from aoe.kernels.algorithms import KNOB
from aoe.kernels.family import UPDATE, KernelTarget, PackedInput, Pipeline, Support
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.tiling import TASK
from aoe.kernels.math.functions import constant, strict
from aoe.kernels.matmul.panels import DEPTH, panel_sums
from aoe.kernels.matmul.quantised import (
    PARTS,
    PARTS_UPDATE,
    QUANTISED,
    is_finite,
    magnitude_bits,
)
from aoe.kernels.matmul.shape import (
    BLOCK,
    FEW_ROWS,
    LANE,
    PACKED,
    PANEL,
    SUMMED,
    SUMS,
    MatrixProduct,
    ProductArguments,
    finished_pipeline,
    last_panel_at_most,
    left_place,
    packed_element,
    panels_of,
    read_arguments,
    read_product,
    tiled_rows,
    vectors_of_panel,
)
from aoe.kernels.matmul.tiles import (
    BLOCKS,
    COLUMNS_FIRST,
    ROUNDED_ROWS,
    ROWS,
    WALK,
    depth_loop,
    product_space,
    result_steps,
    sum_steps,
)
from aoe.kernels.tiled_products import cheapest_first, combinations, register_steps
from aoe.operators import number, op_key
from aoe.operators.quantised import BLOCKWISE_PRODUCT, ROWS_IN_INTEGERS
from aoe.schedule import Choice, Knob, Space, Step, Values
from aoe.workload import Operation, TensorSpec, Workload

BLOCKS_VNNI, BLOCKS_WIDENED = "blocks_vnni", "blocks_widened"
BLOCKS_FLOAT, PANELS_DEQUANTISED = "blocks", "panels_dequantised"
_GROUPS = {BLOCKS_VNNI: 4, BLOCKS_WIDENED: 2}
"""Products one instruction sums up."""
BLOCKWISE_ALGORITHMS = (BLOCKS_VNNI, BLOCKS_WIDENED, BLOCKS_FLOAT, PANELS_DEQUANTISED)
LARGEST, DISTANCES, BLOCK_SUMS = "largest", "distances", "block_sums"
DEQUANTISED, PADDED = "dequantised", "padded"
_PART_OF = "_parts"
"""End of the names of stages that hold one value for each lane, before those are put together."""
_BITS = (4, 8)
_BLOCK_SIZES = (16, 32, 64, 128, 256)
"""Products of a block: the sum of 256 of 255 times 127 is below 2**24, which float32 holds."""
_LEVELS = 127
_QUIET_NAN = 0x7FC00000
_WORD = 32
_FRACTION, _ONE = 23, 0x3F800000
"""Bits behind the point of a float32, and the bits of 1."""
_LANES = 16
"""Values of a block of a row that are looked through at once."""
_BLOCKS, _ROWS = (1, 2, 3, 4, 6, 8), (1, 2, 3, 4, 5, 6, 7, 8, 10, 12)
_GUESSES = 4
_LEAST_SUMS = 4
_UNROLLED = 8
"""Steps through a block that are written out: one of 32 weights of 8 bits, or of 64 of 4 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockwiseProduct:
    """One product by weights in blocks, and the chain behind it."""

    # The same with float32 weights (columns, depth): loops, tiles and chain are alike.
    product: MatrixProduct
    bits: int  # Of a weight
    block_size: int  # Products that share a scale
    scales: int  # Number of the input
    zero: int | None  # The same of the zero points; None where all are in the middle
    in_integers: bool  # True if rows are rounded to 8 bits

    @property
    def blocks(self) -> int:
        """Blocks of the depth; the last one may be filled up."""
        return -(-self.product.depth // self.block_size)

    @property
    def block_bytes(self) -> int:
        """Bytes of the weights of a block of one column."""
        return self.block_size * self.bits // 8

    @property
    def in_byte(self) -> int:
        """Weights in a byte, the first one in its lower bits."""
        return 8 // self.bits

    @property
    def has_many_rows(self) -> bool:
        """True where computing takes the time, not reading the weights."""
        rows = self.product.rows
        return bool(rows) and rows[-1].extent > FEW_ROWS

    def algorithms(self, target: KernelTarget) -> tuple[str, ...]:
        """Return the algorithm for the accuracy asked for and a CPU."""
        if self.in_integers:
            return (BLOCKS_VNNI if target.int8_dot else BLOCKS_WIDENED,)
        return (PANELS_DEQUANTISED if self.has_many_rows else BLOCKS_FLOAT,)


def read_blockwise(workload: Workload) -> BlockwiseProduct | Support:
    """Return the product by weights in blocks of a workload, or why there is none."""
    anchor = next(item for item in workload.operations if op_key(item) == BLOCKWISE_PRODUCT)
    left, right, scales, zero, indices, bias = (*anchor.inputs, "", "", "")[:6]
    sizes = {name: int(number(anchor.attributes, name, 0)) for name in ("K", "N")}
    bits = int(number(anchor.attributes, "bits", 4))
    block = int(number(anchor.attributes, "block_size", 0))
    if bits not in _BITS or block not in _BLOCK_SIZES:
        return Support(f"{anchor.op_type} of {bits} bits in blocks of {block}")
    if indices:
        return Support(f"{anchor.op_type} with its depth in another order")
    if number(anchor.attributes, "weight_prepacked", 0):
        return Support(f"{anchor.op_type} by weights that are packed for another device")
    blocks = -(-sizes["K"] // block)
    wanted = {
        right: ("uint8", sizes["N"] * blocks * block * bits // 8),
        scales: ("float32", sizes["N"] * blocks),
        zero: ("uint8", sizes["N"] * -(-blocks * bits // 8)),
    }
    for ref, (dtype, size) in wanted.items():
        spec = workload.inputs[int(ref[1:])] if ref.startswith("x") else None
        if ref and (spec is None or not spec.constant or (spec.dtype, spec.size) != (dtype, size)):
            return Support(f"{anchor.op_type} with {ref} other than {size} constants {dtype}")
    if not left.startswith("x"):
        return Support(f"{anchor.op_type} of a computed value")
    behind = [item.inputs for item in workload.operations if item is not anchor]
    if scales in (bias, *(ref for refs in behind for ref in refs)):
        return Support(f"the scales {anchor.op_type} reads are read again behind it")
    product = read_product(_in_float32(workload, anchor, sizes, bias))
    if isinstance(product, Support):
        return product
    return BlockwiseProduct(
        product=product,
        bits=bits,
        block_size=block,
        scales=int(scales[1:]),
        zero=int(zero[1:]) if zero else None,
        in_integers=number(anchor.attributes, "accuracy_level", 0) >= ROWS_IN_INTEGERS,
    )


def _in_float32(
    workload: Workload, anchor: Operation, sizes: Mapping[str, int], bias: str
) -> Workload:
    """Return a workload with the same loops and chain, whose weights are float32."""
    matrices = anchor.inputs[:2]
    product = Operation(
        op_type="Gemm",
        version=13,
        inputs=matrices,
        output=f"{anchor.output}_product" if bias else anchor.output,
        attributes={"transB": 1},
    )
    added = Operation(
        op_type="Add", version=14, inputs=(product.output, bias), output=anchor.output
    )
    behind = (added,) if bias else ()
    operations: list[Operation] = []
    for item in workload.operations:
        operations += [product, *behind] if item is anchor else [item]
    weights = TensorSpec(shape=(sizes["N"], sizes["K"]), constant=True)
    read = {ref for item in operations for ref in item.inputs}
    inputs = [
        spec if f"x{at}" in read else TensorSpec(shape=())
        for at, spec in enumerate(workload.inputs)
    ]
    inputs[int(matrices[1][1:])] = weights
    return replace(workload, inputs=tuple(inputs), operations=tuple(operations))


# ---- algorithms ----


def blockwise_pipeline(of: BlockwiseProduct, algorithm: str) -> Pipeline:
    """Return an algorithm.

    Arguments are the workload's inputs. Weights are replaced by their bytes: in integers uint8,
    from the innermost (group of bytes, PANEL columns, groups of a block, blocks, panels), else
    int32, (PANEL, words of 4 bytes, blocks, panels). Scales and zero points are over (PANEL,
    blocks, panels); a zero point has a byte of its own.
    """
    made = _Arguments(of, _GROUPS.get(algorithm, 0))
    make = _dequantised_pipeline if algorithm == PANELS_DEQUANTISED else _parts_pipeline
    return made.read_by(make(of, made))


class _Arguments:
    """Buffers of a product, and what weights stand for."""

    def __init__(self, of: BlockwiseProduct, group: int) -> None:
        self.of, self.group = of, group
        panels, blocks = panels_of(of.product), of.blocks
        in_group = (group, PANEL, of.block_bytes // group) if group else ()
        extents = (*(in_group or (PANEL, of.block_bytes // (_WORD // 8))), blocks, panels)
        self.read = read_arguments(of.product, _packed_weights(of, group), extents)
        self._scales = hl.ImageParam(hl.Float(32), 3, "scales")
        self._zeros = hl.ImageParam(hl.UInt(8), 3, "zeros")

    def scale(self, lane: hl.Expr, block: hl.Expr, panel: hl.Expr) -> hl.Expr:
        """Return the scale of a block of a column."""
        return self._scales[lane, block, panel]

    def zero(self, lane: hl.Expr, block: hl.Expr, panel: hl.Expr) -> hl.Expr:
        """Return its zero point, float32."""
        if self.of.zero is None:
            return constant(float(1 << (self.of.bits - 1)))
        return hl.f32(hl.i32(self._zeros[lane, block, panel]))

    def share(
        self, at: hl.Expr, word: hl.Expr, lane: hl.Expr, block: hl.Expr, panel: hl.Expr
    ) -> hl.Expr:
        """Return 1 + the share of all levels that weight `at` of a word is, float32.

        Levels become the first bits behind the point of a number from 1 to 2: a conversion of
        integers is one instruction more for each vector.
        """
        of = self.of
        word_bits = hl.u32(packed_element(of.product, self.read, (lane, word, block, panel)))
        shift = _FRACTION - of.bits - at * of.bits
        shifted = hl.select(shift > 0, word_bits << hl.u32(shift), word_bits >> hl.u32(-shift))
        mask = ((1 << of.bits) - 1) << (_FRACTION - of.bits)
        return hl.reinterpret(hl.Float(32), (shifted & hl.u32(mask)) | hl.u32(_ONE))

    def zero_share(self, lane: hl.Expr, block: hl.Expr, panel: hl.Expr) -> hl.Expr:
        """Return the same of a zero point."""
        zero = self.zero(lane, block, panel)
        return zero * constant(2.0**-self.of.bits) + constant(1.0)

    def scale_of_shares(self, lane: hl.Expr, block: hl.Expr, panel: hl.Expr) -> hl.Expr:
        """Return the factor from the distance of two shares to the product.

        It is the scale times a power of 2, which rounds nothing.
        """
        return self.scale(lane, block, panel) * constant(2.0**self.of.bits)

    def read_by(self, pipeline: Pipeline) -> Pipeline:
        """Return a pipeline that has these arguments, too."""
        of = self.of
        arguments, extents = list(pipeline.arguments), list(pipeline.argument_extents)
        packings = dict(pipeline.packings)
        given = {of.scales: (self._scales, _packed_scales(of))}
        if of.zero is not None:
            given[of.zero] = (self._zeros, _packed_zeros(of))
        for at, (buffer, packing) in given.items():
            arguments[at], packings[at] = buffer, packing
            extents[at] = (PANEL, of.blocks, panels_of(of.product))
        return replace(
            pipeline,
            arguments=tuple(arguments),
            argument_extents=tuple(extents),
            packings=packings,
        )


def _dequantised_pipeline(of: BlockwiseProduct, made: _Arguments) -> Pipeline:
    """Return sums of float32 products by weights that a task makes numbers of."""
    product, arguments = of.product, made.read
    lane, k, panel = hl.Var("lane"), hl.Var("k"), hl.Var("panel")
    in_word = _WORD // of.bits
    inside = last_panel_at_most(product, panel)
    block, word = k // of.block_size, k % of.block_size // in_word
    share = made.share(k % in_word, word, lane, block, inside)
    numbers = hl.Func(DEQUANTISED)
    centred = share - made.zero_share(lane, block, inside)
    numbers[lane, k, panel] = strict(centred * made.scale_of_shares(lane, block, inside))
    numbers.bound_extent(lane, PANEL).compute_root()  # steps place it closer

    def left(k: hl.Expr) -> hl.Expr:
        return arguments.left[left_place(product, arguments.rows, k)]

    sums = panel_sums(product, arguments, left, lambda place: numbers[place])
    found = finished_pipeline(
        product, arguments, sums, ((DEPTH, product.depth),), {DEQUANTISED: numbers}
    )
    loops = (("lane", PANEL), ("k", of.blocks * of.block_size), ("panel", 0))
    return replace(
        found,
        loops={**found.loops, DEQUANTISED: loops},
        padded=found.padded | {DEQUANTISED},
    )


def _parts_pipeline(of: BlockwiseProduct, made: _Arguments) -> Pipeline:
    """Return sums of the parts that blocks of the depth make."""
    product, arguments = of.product, made.read
    rows, lane, block, group = arguments.rows, hl.Var(LANE), hl.Var(BLOCK), hl.Var("g")
    panel = last_panel_at_most(product, block)
    stages: dict[str, hl.Func] = {}
    loops_of: dict[str, tuple[tuple[str, int], ...]] = {}
    loops: tuple[int, ...]
    # factors of one instruction; a conversion of each value of a row would be another
    kinds = (hl.UInt(8), hl.Int(8)) if made.group == _GROUPS[BLOCKS_VNNI] else (hl.Int(16),) * 2
    if made.group:
        left, distances = _quantised(of, arguments, stages, loops_of, kinds[1])
        loops = (made.group, of.block_bytes // made.group, of.in_byte)
    else:
        left, distances = _left(of, arguments, stages), None
        loops = (_WORD // of.bits, of.block_bytes // (_WORD // 8))
    p = hl.RDom([(0, extent) for extent in loops], "p")
    if made.group:
        byte = packed_element(product, arguments, (p.x, lane, p.y, group, panel))
        weight = _sixteenfold(byte, p.z) if of.in_byte > 1 else byte
        given = left(made.group * p.y + p.x, p.z, group)
        term = hl.i32(hl.cast(kinds[0], weight)) * hl.i32(given)
    else:
        k = loops[0] * p.y + p.x
        share = made.share(hl.Expr(p.x), p.y, lane, group, panel)
        # taken off here: behind the sum, one of positive values would lose digits
        term = (share - made.zero_share(lane, group, panel)) * left(
            k // of.in_byte, k % of.in_byte, group
        )
    parts, place = hl.Func(PARTS), (lane, block, group, *rows)
    parts[place] = hl.cast(term.type(), 0)
    parts[place] += term
    parts.bound_extent(lane, PANEL).compute_root()  # steps place it closer
    r = hl.RDom([(0, of.blocks)], "r")
    sums = hl.Func(SUMS)
    sums[(lane, block, *rows)] = constant(0.0)
    here, part = (lane, r.x, panel), hl.f32(parts[(lane, block, r.x, *rows)])
    if distances is None:
        sums[(lane, block, *rows)] += part * made.scale_of_shares(*here)
    else:
        in_block = _of_blocks(of, rows, left, BLOCK_SUMS, stages, loops_of)[(r.x, *rows)]
        scale = made.scale(*here) * distances[(r.x, *rows)]
        sums[(lane, block, *rows)] += (part - made.zero(*here) * in_block) * scale
    sums.bound_extent(lane, PANEL).compute_root()
    found = finished_pipeline(
        product, arguments, sums, ((r.x.name(), of.blocks),), {**stages, PARTS: parts}
    )
    pure = ((LANE, PANEL), *found.loops[PARTS][1:])
    names = [f"p${axis}" for axis in "xyz"]
    of_parts = tuple((name, extent) for name, extent in zip(names, loops, strict=False))
    known, ways = {PARTS_UPDATE: parts.update()}, {PARTS: pure, PARTS_UPDATE: (*pure, *of_parts)}
    known |= {name: stages[name.removesuffix(UPDATE)].update() for name in loops_of}
    return replace(
        found,
        stages={**found.stages, **known},
        loops={**found.loops, **ways, **loops_of},
        padded=found.padded | {PARTS},
        tiled=tiled_rows(product, _most_blocks),
    )


_Left = Callable[[hl.Expr, hl.Expr, hl.Expr], hl.Expr]
"""An element of a row: (byte of its block of weights, which weight of the byte, block)."""


def _left(of: BlockwiseProduct, arguments: ProductArguments, stages: dict[str, hl.Func]) -> _Left:
    """Return the elements of a row as they are, zeros behind its depth."""
    product, rows = of.product, arguments.rows

    def given(k: hl.Expr) -> hl.Expr:
        return arguments.left[left_place(product, rows, k)]

    if product.depth % of.block_size:
        k, padded = hl.Var("k"), hl.Func(PADDED)
        value = given(hl.clamp(k, 0, product.depth - 1))
        padded[(k, *rows)] = hl.select(k < product.depth, value, constant(0.0))
        padded.compute_root()
        stages[PADDED] = padded

        def element(byte: hl.Expr, at: hl.Expr, block: hl.Expr) -> hl.Expr:
            return hl.Expr(padded[(_depth_of(of, byte, at, block), *rows)])

        return element
    return lambda byte, at, block: given(_depth_of(of, byte, at, block))


def _depth_of(of: BlockwiseProduct, byte: hl.Expr, at: hl.Expr, block: hl.Expr) -> hl.Expr:
    return of.block_size * block + of.in_byte * byte + at


def _quantised(
    of: BlockwiseProduct,
    arguments: ProductArguments,
    stages: dict[str, hl.Func],
    loops_of: dict[str, tuple[tuple[str, int], ...]],
    kept: hl.Type,
) -> tuple[_Left, hl.Func]:
    """Return the elements of a row as levels with a sign, and the distance of those of its blocks.

    The first weights of all bytes lie side by side, then the second ones: as they meet weights.
    """
    rows = arguments.rows
    value = _left(of, arguments, stages)
    byte, at, block = hl.Var("b"), hl.Var("h"), hl.Var("g")

    def magnitude(byte: hl.Expr, at: hl.Expr, block: hl.Expr) -> hl.Expr:
        return magnitude_bits(value(byte, at, block))

    largest = _of_blocks(of, rows, magnitude, LARGEST, stages, loops_of)
    bits = largest[(block, *rows)]
    most = hl.reinterpret(hl.Float(32), bits)
    # as ONNX Runtime does: times a reciprocal, half to even; nothing is left of a block of zeros
    factor = hl.select(bits > 0, strict(constant(float(_LEVELS)) / most), constant(0.0))
    level = hl.round(strict(value(byte, at, block) * factor))
    quantised = hl.Func(QUANTISED)
    quantised[(byte, at, block, *rows)] = hl.cast(kept, hl.i8_sat(level))
    quantised.bound(byte, 0, of.block_bytes).bound(at, 0, of.in_byte).compute_root()
    stages[QUANTISED] = quantised

    distances = hl.Func(DISTANCES)
    kept = hl.reinterpret(hl.Float(32), hl.select(is_finite(bits), bits, hl.i32(_QUIET_NAN)))
    distances[(block, *rows)] = kept * constant(1 / _LEVELS) * constant(1 / _times(of))
    stages[DISTANCES] = distances.compute_root()
    return (lambda byte, at, block: hl.Expr(quantised[(byte, at, block, *rows)])), distances


def _of_blocks(
    of: BlockwiseProduct,
    rows: Sequence[hl.Var],
    value: _Left,
    name: str,
    stages: dict[str, hl.Func],
    loops_of: dict[str, tuple[tuple[str, int], ...]],
) -> hl.Func:
    """Return the sum of each block of a row, of `LARGEST` the largest value: over (block, rows).

    Lanes first, each for itself, so that a block is walked in vectors.
    """
    lanes = min(_LANES, of.block_bytes)
    lane, block = hl.Var("lane"), hl.Var("g")
    r = hl.RDom([(0, of.block_bytes // lanes), (0, of.in_byte)], f"{name}_r")
    term = value(r.x * lanes + lane, hl.Expr(r.y), block)
    parts, place = hl.Func(f"{name}{_PART_OF}"), (lane, block, *rows)
    parts[place] = hl.i32(0)
    known, more = parts[place], hl.i32(term)
    parts[place] = hl.max(known, more) if name == LARGEST else known + more
    parts.bound(lane, 0, lanes).compute_root()
    every, whole = hl.RDom([(0, lanes)], f"{name}_l"), hl.Func(name)
    put_together = hl.maximum if name == LARGEST else hl.sum
    total = put_together(parts[(every.x, block, *rows)])
    whole[(block, *rows)] = total if name == LARGEST else hl.f32(total) * constant(_times(of))
    stages |= {f"{name}{_PART_OF}": parts, name: whole.compute_root()}
    pure = (("lane", lanes), ("g", of.blocks), *((row.name(), 0) for row in rows))
    walked = ((r.x.name(), of.block_bytes // lanes), (r.y.name(), of.in_byte))
    loops_of[f"{name}{_PART_OF}{UPDATE}"] = (*pure, *walked)
    return whole


def _times(of: BlockwiseProduct) -> float:
    """Return the factor that 4-bit weights carry in integers (see `_sixteenfold`), else 1."""
    return 16.0 if of.in_byte > 1 else 1.0


def _sixteenfold(byte: hl.Expr, at: hl.Expr) -> hl.Expr:
    """Return one of the two weights in a byte, times 16.

    Halide reads a weight of 0 to 15 as a number with a sign, by which no instruction multiplies one
    without: 10.6 ms for 128 x 2048 x 2048, and 4.5 ms so.
    """
    return hl.select(at == 0, byte << hl.u8(4), byte & hl.u8(0xF0))


def _part_of(of: BlockwiseProduct, byte: hl.Expr, at: hl.Expr) -> hl.Expr:
    """Return one of the weights in a byte."""
    if of.in_byte == 1:
        return byte
    return hl.select(at == 0, byte & hl.u8(15), byte >> hl.u8(4))


# ---- weights ----


def _column(of: BlockwiseProduct, lane: hl.Expr, panel: hl.Expr) -> hl.Expr:
    """Return a column; behind the last one the last, whose results nobody reads."""
    return hl.clamp(panel * PANEL + lane, 0, of.product.columns.extent - 1)


def _packed_weights(of: BlockwiseProduct, group: int) -> PackedInput:
    part, lane, word, block, panel = (
        hl.Var(name) for name in ("part", "lane", "word", "block", "panel")
    )
    right, packed = hl.ImageParam(hl.UInt(8), 3, "weights"), hl.Func(PACKED)
    column = _column(of, lane, panel)
    if group:
        packed[part, lane, word, block, panel] = right[word * group + part, block, column]
        packed.bound(part, 0, group).unroll(part)
    else:
        size = _WORD // 8
        found = hl.u32(right[word * size, block, column])
        for at in range(1, size):
            found |= hl.u32(right[word * size + at, block, column]) << hl.u32(8 * at)
        packed[lane, word, block, panel] = hl.reinterpret(hl.Int(32), found)
    packed.bound(lane, 0, PANEL).vectorize(lane, PANEL)
    return PackedInput(
        output=packed,
        argument=right,
        argument_extents=(of.block_bytes, of.blocks, of.product.columns.extent),
        dtype="uint8" if group else "int32",
    )


def _packed_scales(of: BlockwiseProduct) -> PackedInput:
    given = hl.ImageParam(hl.Float(32), 2, "given")
    return _in_panels(of, given, of.blocks, lambda block, column: given[block, column])


def _packed_zeros(of: BlockwiseProduct) -> PackedInput:
    given = hl.ImageParam(hl.UInt(8), 2, "given")

    def zero(block: hl.Expr, column: hl.Expr) -> hl.Expr:
        return _part_of(of, given[block // of.in_byte, column], block % of.in_byte)

    return _in_panels(of, given, -(-of.blocks // of.in_byte), zero)


def _in_panels(
    of: BlockwiseProduct,
    given: hl.ImageParam,
    extent: int,
    value: Callable[[hl.Expr, hl.Expr], hl.Expr],
) -> PackedInput:
    """Return a number for each block of each column over (PANEL, blocks, panels)."""
    lane, block, panel = hl.Var("lane"), hl.Var("block"), hl.Var("panel")
    found = hl.Func("in_panels")
    found[lane, block, panel] = value(block, _column(of, lane, panel))
    found.bound(lane, 0, PANEL).vectorize(lane, PANEL)
    return PackedInput(
        output=found,
        argument=given,
        argument_extents=(extent, of.product.columns.extent),
        dtype="float32" if given.type().is_float() else "uint8",
    )


# ---- schedules ----


def blockwise_space(of: BlockwiseProduct, target: KernelTarget) -> Space:
    """Return register tile and order of the tiles; the best tiles first."""
    product, (name,) = of.product, of.algorithms(target)
    if name == PANELS_DEQUANTISED:
        # the weights of a task are dequantised once, for all rows
        return _walked_by_columns(product_space(product, target), name)
    rows = product.rows[-1].extent if product.rows else 1
    knobs = (
        Knob(KNOB, (name,)),
        Knob(BLOCKS, tuple(n for n in _BLOCKS if n <= panels_of(product))),
        Knob(ROWS, tuple(n for n in _ROWS if n <= rows)),
        Knob(WALK, (COLUMNS_FIRST,)),
    )

    def legal(values: Values) -> bool:
        return _fits_registers(int(values[BLOCKS]), int(values[ROWS]), target)

    ranked = cheapest_first(combinations(knobs), legal, lambda values: _cost(of, values, target))
    return Space(
        knobs=knobs,
        constraint=legal,
        first_guesses=tuple(values for _, values in ranked[:_GUESSES]),
    )


def _walked_by_columns(space: Space, name: str) -> Space:
    fixed: Mapping[str, Choice] = {KNOB: name, WALK: COLUMNS_FIRST}
    known = next(knob.choices[0] for knob in space.knobs if knob.name == KNOB)

    def legal(values: Values) -> bool:
        return space.constraint({**values, KNOB: known})

    guesses: list[dict[str, Choice]] = []
    for guess in space.first_guesses:
        changed = {**guess, **fixed}
        guesses += [changed] if changed not in guesses else []
    return Space(
        knobs=tuple(
            replace(knob, choices=(fixed[knob.name],)) if knob.name in fixed else knob
            for knob in space.knobs
        ),
        constraint=legal,
        first_guesses=tuple(guesses),
    )


def _most_blocks(rows: int, target: KernelTarget) -> int:
    """Return the blocks of a tile of so many rows at most; 0 where registers do not hold one."""
    return max((n for n in _BLOCKS if _fits_registers(n, rows, target)), default=0)


def _fits_registers(blocks: int, rows: int, target: KernelTarget) -> bool:
    """Return True if the parts of a tile stay in registers, beside weights and what ends a block.

    Sums are touched once for each block and may be in the first-level cache. 2 x 8 and 4 x 5 take
    2.6 ms for 128 x 2048 x 2048 in 4 bits, 4 x 6 takes 3.9.
    """
    return vectors_of_panel(target) * blocks * rows <= target.registers * 5 // 8


def _cost(of: BlockwiseProduct, values: Values, target: KernelTarget) -> float:
    """Return the estimated instructions of a configuration."""
    blocks, rows = int(values[BLOCKS]), int(values[ROWS])
    axes = of.product.rows
    down = -(-(axes[-1].extent if axes else 1) // rows)
    across = -(-panels_of(of.product) // blocks)
    in_one = _GROUPS.get(str(values[KNOB]), 1)
    vectors = of.block_size / in_one
    unpacked = blocks * vectors * (1.5 if of.bits < 8 or in_one == 1 else 1.0)
    summed = blocks * rows * vectors
    # a row's values are loaded for each vector, and a block ends with its scales
    scaled = blocks * rows * 6
    # a sum waits for the one before it; more blocks than hide that are more streams to read
    latency = max(1.0, _LEAST_SUMS / (blocks * rows * vectors_of_panel(target)))
    loaded = 0.5 * rows * vectors
    tile = unpacked + summed * latency + scaled + loaded
    return tile * across * down * target.idle_ratio(across)


def blockwise_steps(values: Values, of: BlockwiseProduct, target: KernelTarget) -> Iterator[Step]:
    """Yield the steps of a configuration."""
    product = of.product
    yield from result_steps(values, product, target)
    yield from sum_steps(values, product, 1)
    if values[KNOB] == PANELS_DEQUANTISED:
        yield from _dequantising_steps(of)
    else:
        yield from _part_steps(values, of)


def _dequantising_steps(of: BlockwiseProduct) -> Iterator[Step]:
    in_word = _WORD // of.bits
    yield sch.ComputeAt(DEQUANTISED, RESULT, "panel")
    yield sch.Split(DEQUANTISED, "k", "k", "in_block", of.block_size, sch.Tail.ROUND_UP)
    yield sch.Split(DEQUANTISED, "in_block", "word", "at", in_word, sch.Tail.ROUND_UP)
    yield sch.Reorder(DEQUANTISED, ("lane", "at", "word", "k", "panel"))
    yield sch.Vectorize(DEQUANTISED, "lane", PANEL)
    yield sch.Unroll(DEQUANTISED, "at", in_word)


def _part_steps(values: Values, of: BlockwiseProduct) -> Iterator[Step]:
    """Yield the steps of the sums of a block, which stay in registers, and of the rows."""
    product, blocks, rows = of.product, int(values[BLOCKS]), int(values[ROWS])
    names = [axis.name for axis in reversed(product.rows)]
    group = _GROUPS.get(str(values[KNOB]), 0)
    yield sch.ComputeAt(PARTS, SUMMED, depth_loop(product))
    for stage in (PARTS, PARTS_UPDATE):
        yield sch.Split(stage, BLOCK, BLOCK, "in_block", blocks, sch.Tail.ROUND_UP)
        tile = {"in_block": blocks, **dict.fromkeys(names[:1], rows)}
        if stage == PARTS_UPDATE and group:
            inner = ("p$x", LANE, *names[:1], "in_block", "p$z", "p$y", BLOCK)
            yield sch.Reorder(stage, inner)
            yield sch.Atomic(stage)
            yield sch.Vectorize(stage, "p$x", group)
        elif stage == PARTS_UPDATE:
            yield sch.Reorder(stage, (LANE, *names[:1], "in_block", "p$x", "p$y", BLOCK))
        yield from register_steps((stage,), (LANE, PANEL), tile)
    steps = of.block_bytes // (group or _WORD // 8)
    yield sch.Unroll(PARTS_UPDATE, *(("p$z", of.in_byte) if group else ("p$x", _WORD // of.bits)))
    if steps * rows * blocks <= _UNROLLED * _UNROLLED and steps <= _UNROLLED:
        yield sch.Unroll(PARTS_UPDATE, "p$y", steps)
    yield from _row_steps(of, in_integers=bool(group))


def _row_steps(of: BlockwiseProduct, *, in_integers: bool) -> Iterator[Step]:
    """Yield the steps of what is made of the rows before their products."""
    product, lanes = of.product, min(_LANES, of.block_bytes)
    row = product.rows[-1].name if of.has_many_rows else ""
    stages = []
    if product.depth % of.block_size:
        yield sch.Vectorize(PADDED, "k", _LANES)
        stages.append(PADDED)
    for name in (LARGEST, BLOCK_SUMS) if in_integers else ():
        parts = f"{name}{_PART_OF}"
        yield sch.Vectorize(parts, "lane", lanes)
        yield sch.Vectorize(f"{parts}{UPDATE}", "lane", lanes)
        if row:
            yield sch.ComputeAt(parts, name, row)
        stages.append(name)
    if in_integers:
        yield sch.Vectorize(QUANTISED, "b", lanes)
        stages += [DISTANCES, QUANTISED]
    for stage in stages if row else ():
        yield sch.Split(stage, row, TASK, row, ROUNDED_ROWS, sch.Tail.GUARD)
        yield sch.Parallel(stage, TASK)
