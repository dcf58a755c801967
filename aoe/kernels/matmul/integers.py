"""Matrix products of quantised models: the model's own integers, summed exactly in 32 bits.

    extremes         lowest and highest value of each part of a row, then of the whole matrix
    levels           scale and zero point of the matrix, as DynamicQuantizeLinear defines them
    quantised        the left matrix in 8 bits, without a sign; zeros behind its depth
    row_parts        sums of the integers of a row, which the zero point of the weights needs
    column_sums      the same of a column, made in each run where the right matrix is computed
    sums             sums of products, in registers
    finished, y      float32 numbers, and the chain behind them; or integers of 8 bits again

Weights, and a right matrix that is computed, lie in panels of 16 columns as int8. Those that have
no sign have 128 taken off, and so has their zero point: their differences stay what they are. The
same holds for a left matrix with a sign, to which 128 is added. So any pair of types is a product
of one kind, u8 by s8, which one instruction sums up in fours (`panels_vnni`), or whole tiles of
(`panels_amx`; these read a left matrix of the model's own levels where it lies, signed or not).
Where the CPU has none, factors are widened to 16 bits, which no sum of two products leaves
(`panels_widened`): nothing ever saturates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import halide as hl

from aoe.kernels.family import SUPPORTED, UPDATE, PackedInput, Pipeline, Support
from aoe.kernels.halide.tile_sums import LevelReads
from aoe.kernels.math.elements import element_type, measured_levels, nearest_level, widened
from aoe.kernels.math.functions import constant, strict
from aoe.kernels.matmul.panels import right_extents
from aoe.kernels.matmul.quantised import extreme_lanes
from aoe.kernels.matmul.shape import (
    BLOCK,
    FEW_ROWS,
    LANE,
    PACKED,
    PANEL,
    SUMS,
    MatrixProduct,
    ProductArguments,
    batch_place,
    batch_variables,
    finished_pipeline,
    last_panel_at_most,
    left_place,
    packed_element,
    panels_of,
    read_arguments,
    read_product,
    tiles_pipeline,
)
from aoe.operators import OperatorKey, number, op_key
from aoe.operators.element_types import LEVELS
from aoe.operators.quantised import (
    DYNAMIC_PRODUCT,
    GENERAL_PRODUCT,
    LINEAR_PRODUCT,
    SCALED_PRODUCT,
    WEIGHT_ZERO_POINT,
)
from aoe.target import AMX, VNNI, WIDENED
from aoe.workload import Operation, Precision, TensorSpec, Workload

INTEGER_PRODUCTS: frozenset[OperatorKey] = frozenset(
    {DYNAMIC_PRODUCT, SCALED_PRODUCT, GENERAL_PRODUCT, LINEAR_PRODUCT}
)
PANELS_AMX, PANELS_VNNI, PANELS_WIDENED = (f"panels_{name}" for name in (AMX, VNNI, WIDENED))
GROUPS = {PANELS_AMX: 4, PANELS_VNNI: 4, PANELS_WIDENED: 2}
"""Products one instruction sums up."""
EXTREMES, WHOLE, LEVELS_OF_MATRIX = "extremes", "whole", "levels"
EXTREMES_UPDATE, WHOLE_UPDATE = f"{EXTREMES}{UPDATE}", f"{WHOLE}{UPDATE}"
QUANTISED, QUANTISED_DEPTH = "quantised", "k"
ROW_PARTS, COLUMN_SUMS = "row_parts", "column_sums"
ROW_PARTS_UPDATE, COLUMN_SUMS_UPDATE = f"{ROW_PARTS}{UPDATE}", f"{COLUMN_SUMS}{UPDATE}"
LANES = 16
"""Parts of a row that are summed up, or quantised, at once."""
_Reduction = tuple[hl.Func, tuple[tuple[str, int], ...]]
"""A function whose lanes are reduced, and the loops it is reduced over."""
_SCALE, _ZERO = 0, 1
_HIGHEST = 255
_SIGN = 128
_DEPTH_MAX = (1 << 31) // (_HIGHEST * _HIGHEST)
"""Most products of two integers of 8 bits that 32 bits hold, whatever the zero points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operands:
    """References of what a product reads; empty for what it does not."""

    left: str
    right: str
    right_scale: str
    left_scale: str = ""
    left_zero: str = ""
    right_zero: str = ""
    bias: str = ""  # float32 numbers, added to the result
    summand: str = ""  # int32, added to the sums
    made_scale: str = ""
    made_zero: str = ""

    @property
    def of_matrices(self) -> tuple[str, ...]:
        """Scales and zero points of one value."""
        return self.left_scale, self.left_zero, self.made_scale, self.made_zero

    @property
    def of_columns(self) -> tuple[str, ...]:
        """Values of columns, or one for all of them."""
        return self.right_scale, self.right_zero, self.summand


_POSITIONS: Mapping[OperatorKey, str] = {
    DYNAMIC_PRODUCT: "left right right_scale right_zero bias",
    SCALED_PRODUCT: "left right left_scale right_scale left_zero right_zero bias",
    GENERAL_PRODUCT: "left left_scale left_zero right right_scale right_zero summand "
    "made_scale made_zero",
    LINEAR_PRODUCT: "left left_scale left_zero right right_scale right_zero made_scale made_zero",
}
"""Names of the inputs of each operator, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerProduct:
    """One product of quantised matrices and the chain behind it."""

    workload: Workload  # As it was given
    # The same with a float32 product in place of the integer one: loops, tiles and chain are alike.
    product: MatrixProduct
    anchor: Operation
    operands: _Operands

    @property
    def sums_rows(self) -> bool:
        """True unless the weights are known to be symmetric, so that they have no zero point."""
        zero = number(self.anchor.attributes, WEIGHT_ZERO_POINT, 0)
        return bool(self.operands.right_zero) or zero != _sign_of(self.right_spec)

    @property
    def makes_levels(self) -> bool:
        """True if its result is integers of 8 bits."""
        return bool(self.operands.made_scale)

    @property
    def left_spec(self) -> TensorSpec:
        """The left matrix."""
        return self.workload.inputs[self.product.left]

    @property
    def right_spec(self) -> TensorSpec:
        """The weights."""
        return self.workload.inputs[self.product.right]

    @property
    def is_dynamic(self) -> bool:
        """True if the left matrix is float32, and quantised by its own range."""
        return self.left_spec.dtype not in LEVELS


def read_integer_product(workload: Workload) -> IntegerProduct | Support:
    """Return the parts of a workload that is one product of integers, or why it is none."""
    found = [item for item in workload.operations if op_key(item) in INTEGER_PRODUCTS]
    if not found:
        return Support("no operator of this family")
    anchor = found[0]
    named = dict(zip(_POSITIONS[op_key(anchor)].split(), anchor.inputs, strict=False))
    operands = _Operands(**named)
    refused = _refusal(workload, anchor, operands)
    if refused:
        return Support(refused)
    product = read_product(_in_float32(workload, anchor, operands))
    if isinstance(product, Support):
        return product
    if product.depth > _DEPTH_MAX:
        return Support(f"sums of {product.depth} products of integers")
    few = not product.rows or product.rows[-1].extent <= FEW_ROWS
    if few and not product.has_weights:
        return Support("a few rows by a computed matrix")
    made = IntegerProduct(workload=workload, product=product, anchor=anchor, operands=operands)
    return _check_shapes(made) and made


def _refusal(workload: Workload, anchor: Operation, operands: _Operands) -> str:
    """Return the reason why the operands of an anchor do not fit; "" if they do."""
    left, right = operands.left, operands.right
    name, inputs = anchor.op_type, workload.inputs
    if not left.startswith("x") or not right.startswith("x"):
        return f"{name} of a computed value"
    spec = inputs[int(right[1:])]
    of_two = op_key(anchor) == LINEAR_PRODUCT and not spec.constant
    if spec.dtype not in LEVELS or not (of_two or (spec.constant and len(spec.shape) == 2)):
        return f"{name} by a matrix that is no constant of 8 bits"
    wanted = {"float32"} if op_key(anchor) == DYNAMIC_PRODUCT else LEVELS
    if inputs[int(left[1:])].dtype not in wanted:
        return f"{name} of {inputs[int(left[1:])].dtype}"
    if any(ref.startswith("t") for ref in (*operands.of_matrices, *operands.of_columns)):
        return f"{name} with a computed scale or zero point"
    if number(anchor.attributes, "alpha", 1.0) != 1.0:
        return f"{name} with a factor"
    if operands.made_scale and anchor.output != workload.result:
        return f"{name} to integers, with a chain behind it"
    own = {ref for ref in (*operands.of_matrices, *operands.of_columns) if ref.startswith("x")}
    own |= {left} if wanted is LEVELS else set()
    behind = [item.inputs for item in workload.operations if item is not anchor]
    if own.intersection((operands.bias, *(ref for refs in behind for ref in refs))):
        return f"what {name} reads is read again behind it"
    return ""


def _check_shapes(made: IntegerProduct) -> Support:
    """Check that scales, zero points and summands are one value, or one for each column."""
    columns = made.product.columns.extent
    sizes = dict.fromkeys(made.operands.of_matrices, 1)
    sizes |= dict.fromkeys(made.operands.of_columns, columns)
    for ref, most in sizes.items():
        spec = _spec_of(made.workload, ref)
        if spec is None:
            continue
        # a summand of each row has as many elements as one of each column in a square
        of_each = spec.size == most and spec.shape[-1:] == (most,)
        if spec.size > 1 and not (of_each and spec.constant):
            return Support(f"scales, zero points or summands of shape {spec.shape}")
    return SUPPORTED


def _spec_of(workload: Workload, ref: str) -> TensorSpec | None:
    """Return type and shape of an input tensor; None for a scalar constant or no input at all."""
    return workload.inputs[int(ref[1:])] if ref.startswith("x") else None


def _in_float32(workload: Workload, anchor: Operation, operands: _Operands) -> Workload:
    """Return a workload with the same loops and chain, whose product is of float32 matrices."""
    bias, matrices = operands.bias, (operands.left, operands.right)
    turned = {
        name: anchor.attributes[name] for name in ("transA", "transB") if name in anchor.attributes
    }
    product = Operation(
        op_type="Gemm" if turned else "MatMul",
        version=13,
        inputs=matrices,
        output=f"{anchor.output}_product" if bias else anchor.output,
        attributes=turned,
    )
    added = Operation(
        op_type="Add", version=14, inputs=(product.output, bias), output=anchor.output
    )
    behind = (added,) if bias else ()
    operations: list[Operation] = []
    for item in workload.operations:
        operations += [product, *behind] if item is anchor else [item]
    numbers = {int(ref[1:]) for ref in matrices}
    read = {ref for item in operations for ref in item.inputs}
    return replace(
        workload,
        inputs=tuple(
            replace(spec, dtype="float32")
            if at in numbers
            else spec
            if f"x{at}" in read
            else TensorSpec(shape=())
            for at, spec in enumerate(workload.inputs)
        ),
        operations=tuple(operations),
        output=replace(workload.output, dtype="float32")
        if operands.made_scale
        else workload.output,
        precision=Precision.INT8,  # tiles are those of products in integers
    )


def padded_depth(product: MatrixProduct, algorithm: str) -> int:
    """Return the depth of quantised rows: filled up to whole vectors."""
    depth = packed_depth(product, algorithm) if algorithm == PANELS_AMX else product.depth
    return -(-depth // LANES) * LANES


def packed_depth(product: MatrixProduct, algorithm: str) -> int:
    """Return the depth of panels: filled up to whole vectors, or to the reads of matrix tiles."""
    if algorithm == PANELS_AMX:
        return _reads(product).run
    return padded_depth(product, algorithm)


def _reads(product: MatrixProduct) -> LevelReads:
    return LevelReads(depth=product.depth)


def reads_in_place(of: IntegerProduct, algorithm: str) -> bool:
    """Return True if levels of the left matrix are summed up where they lie, with their sign."""
    product = of.product
    is_whole = len(product.left_axes) == len(product.rows) and not product.left_turned
    is_alone = not (of.is_dynamic or of.sums_rows) and _reads(product).run == product.depth
    return algorithm == PANELS_AMX and is_whole and is_alone


def integer_pipeline(of: IntegerProduct, algorithm: str) -> Pipeline:
    """Return the algorithm.

    Arguments are the workload's inputs, weights replaced by their panels: int8, from the innermost
    (group of the depth, PANEL columns, groups, panels). Scales and zero points of columns are
    filled up to whole panels; behind them come the sums of columns: int32, (PANEL, panels).
    """
    product, group = of.product, GROUPS[algorithm]
    groups, depth = packed_depth(product, algorithm) // group, padded_depth(product, algorithm)
    extents = (group, PANEL, groups, panels_of(product))
    arguments = read_arguments(product, _packed_weights(of, group), extents)
    parameters = _Parameters(of)
    if not of.is_dynamic:
        left = hl.ImageParam(element_type(of.left_spec.dtype), len(product.left_axes) + 1)
        arguments = replace(arguments, left=left)
    extremes, whole, levels = _levels(of, arguments) if of.is_dynamic else (None, None, None)
    in_place = reads_in_place(of, algorithm)
    scale, zero = _scale_and_zero(of, levels, parameters, shifted=not in_place)
    wide = hl.Int(16) if algorithm == PANELS_WIDENED else hl.UInt(8)
    quantised = None if in_place else _quantised(of, arguments, scale, zero, wide, depth)
    row_parts = None
    if of.sums_rows and quantised is not None:
        row_parts = _row_parts(arguments, quantised, depth)
    row_sums = _row_sums(arguments, row_parts) if row_parts is not None else None
    column_sums = None if product.has_weights else _sums_of_panels(of, arguments, group, groups)

    def finish(total: hl.Expr, place: Sequence[hl.Expr]) -> hl.Expr:
        lane, panel = place[0], last_panel_at_most(product, place[1])
        if column_sums is None:
            column_sum = parameters.column_sums[lane, panel]
        else:
            column_sum = column_sums[(lane, panel, *batch_place(product, arguments))]
        centred = total - zero * column_sum
        if row_sums is not None:
            in_row = row_sums[tuple(arguments.rows)] - product.depth * zero
            centred -= parameters.right_zero(lane, panel) * in_row
        factor = scale * parameters.right_scale(lane, panel)
        if of.operands.summand:
            centred += parameters.of_column(of.operands.summand, lane, panel)
        if not of.makes_levels:
            return strict(hl.f32(centred) * factor)
        # the scales first, as ONNX Runtime does
        made = strict(hl.f32(centred) * (factor / parameters.one(of.operands.made_scale)))
        return _level_of(of, made, parameters)

    named = ((ROW_PARTS, row_parts), (LEVELS_OF_MATRIX, levels), (COLUMN_SUMS, column_sums))
    possible = ((QUANTISED, quantised), *named)
    stages = {name: stage for name, stage in possible if stage is not None}
    left = arguments.left if quantised is None else quantised
    if algorithm == PANELS_AMX:
        found = tiles_pipeline(product, arguments, left, _reads(product), stages, finish=finish)
    else:
        sums, depths = _sums(product, arguments, left, group, groups)
        found = finished_pipeline(product, arguments, sums, depths, stages, finish=finish)
    updates: dict[str, _Reduction] = {}
    if column_sums is not None:
        updates[COLUMN_SUMS] = column_sums, (("c$x", group), ("c$y", groups))
    if row_parts is not None:
        updates[ROW_PARTS] = row_parts, (("p$x", depth // LANES),)
    if extremes is not None and whole is not None:
        lanes = extreme_lanes(product)
        known = [0 if of.left_spec.open else axis.extent for axis in reversed(product.rows)]
        rows = [(f"w${'xyzw'[at]}", extent) for at, extent in enumerate(known)]
        updates[EXTREMES] = (extremes, (("e$x", -(-product.depth // lanes)),))
        updates[WHOLE] = (whole, tuple(rows))
    return parameters.read_by(_with_updates(found, product, updates))


def _level_of(of: IntegerProduct, made: hl.Expr, parameters: _Parameters) -> hl.Expr:
    """Return the integer a result is stored as: saturated, rounded, then its zero point added."""
    dtype, zero_made = of.workload.output.dtype, of.operands.made_zero
    zero = hl.i32(parameters.one(zero_made)) if zero_made else hl.i32(0)
    least, most = (-_SIGN, _SIGN - 1) if dtype == "int8" else (0, _HIGHEST)
    limited = hl.max(hl.min(made, hl.f32(most - zero)), hl.f32(least - zero))
    return nearest_level(limited, zero, dtype)


def _with_updates(
    pipeline: Pipeline,
    product: MatrixProduct,
    updates: Mapping[str, _Reduction],
) -> Pipeline:
    """Return the pipeline with reductions over lanes as stages of their own."""
    stages, loops = dict(pipeline.stages), dict(pipeline.loops)
    for name, (function, reduced) in updates.items():
        if not reduced:  # of a single row
            continue
        lanes = LANES if name in (ROW_PARTS, COLUMN_SUMS) else extreme_lanes(product)
        first, *others = (var.name() for var in function.args())
        pure = ((first, lanes), *((var, 0) for var in others))
        stages |= {name: function, f"{name}{UPDATE}": function.update()}
        loops |= {name: pure, f"{name}{UPDATE}": (*pure, *reduced)}
    return replace(pipeline, stages=stages, loops=loops)


# ---- the left matrix ----


def _levels(of: IntegerProduct, arguments: ProductArguments) -> tuple[hl.Func, hl.Func, hl.Func]:
    """Return (extremes of parts of rows, of parts, scale and zero point of the whole matrix).

    A NaN counts for nothing, as in ONNX Runtime.
    """
    product, rows = of.product, arguments.rows
    lanes, part = extreme_lanes(product), hl.Var("part")
    r = hl.RDom([(0, -(-product.depth // lanes))], "e")
    extremes, place = hl.Func(EXTREMES), (part, *rows)
    first = hl.min(r.x * lanes, product.depth - lanes)
    value = arguments.left[left_place(product, rows, first + part)]
    extremes[place] = (constant(0.0), constant(0.0))
    low, high = (extremes[place][at] for at in range(2))
    extremes[place] = widened(low, high, value, value)
    extremes.bound(part, 0, lanes).compute_root()
    whole = hl.Func(WHOLE)
    if rows:
        w = hl.RDom([(0, extent) for extent in _row_extents(of, arguments)], "w")
        coordinates = [w[at] for at in range(len(rows))]
        whole[part] = (constant(0.0), constant(0.0))
        known, found = whole[part], extremes[(part, *coordinates)]
        whole[part] = widened(known[0], known[1], found[0], found[1])
    else:
        whole[part] = (extremes[part][0], extremes[part][1])
    whole.bound(part, 0, lanes).compute_root()
    every = hl.RDom([(0, lanes)], "l")
    lowest, highest = hl.minimum(whole[every.x][0]), hl.maximum(whole[every.x][1])
    which, levels = hl.Var("which"), hl.Func(LEVELS_OF_MATRIX)
    scale, zero = measured_levels(lowest, highest)
    levels[which] = hl.select(which == _SCALE, scale, zero)
    levels.bound(which, 0, 2).unroll(which).compute_root()
    return extremes, whole, levels


def _row_extents(of: IntegerProduct, arguments: ProductArguments) -> list[hl.Expr | int]:
    """Return the extents of the loops over rows, innermost first; an open one is the buffer's."""
    if of.left_spec.open:
        return [arguments.left.dim(at).extent() for at in range(1, arguments.left.dimensions())]
    return [axis.extent for axis in reversed(of.product.rows)]


def _scale_and_zero(
    of: IntegerProduct, levels: hl.Func | None, parameters: _Parameters, *, shifted: bool
) -> tuple[hl.Expr, hl.Expr]:
    """Return scale and zero point of the left matrix; if `shifted`, of integers without a sign."""
    if levels is not None:
        return levels[_SCALE], hl.i32(levels[_ZERO])
    operands = of.operands
    scale = parameters.one(operands.left_scale)
    zero = hl.i32(parameters.one(operands.left_zero)) if operands.left_zero else hl.i32(0)
    return scale, zero + hl.i32(_SIGN if shifted and of.left_spec.dtype == "int8" else 0)


def _quantised(
    of: IntegerProduct,
    arguments: ProductArguments,
    scale: hl.Expr,
    zero: hl.Expr,
    kept: hl.Type,
    depth: int,
) -> hl.Func:
    """Return the left matrix over (depth, rows...): integers without a sign, 0 behind its depth."""
    product, rows, k = of.product, arguments.rows, hl.Var(QUANTISED_DEPTH)
    is_padded = depth != product.depth
    inside = hl.clamp(k, 0, product.depth - 1) if is_padded else k
    value = arguments.left[left_place(product, rows, inside)]
    if of.is_dynamic:
        # as ONNX Runtime does: divide, saturate, round; NaN is the lowest
        low, high = hl.f32(-zero), hl.f32(_HIGHEST - zero)
        quotient = strict(value / scale)
        at_least = strict(hl.select(quotient > low, quotient, low))
        at_most = strict(hl.select(at_least < high, at_least, high))
        level = hl.i32(hl.round(at_most)) + zero
    else:
        level = hl.i32(value) + (_SIGN if of.left_spec.dtype == "int8" else 0)
    if is_padded:
        level = hl.select(k < product.depth, level, 0)
    quantised = hl.Func(QUANTISED)
    quantised[(k, *rows)] = hl.cast(kept, level)
    quantised.bound(k, 0, depth).compute_root()
    return quantised


def _row_parts(arguments: ProductArguments, quantised: hl.Func, depth: int) -> hl.Func:
    part, rows = hl.Var("part"), arguments.rows
    r = hl.RDom([(0, depth // LANES)], "p")
    parts, place = hl.Func(ROW_PARTS), (part, *rows)
    parts[place] = hl.i32(0)
    parts[place] += hl.i32(quantised[(LANES * r.x + part, *rows)])
    parts.bound(part, 0, LANES).compute_root()
    return parts


def _row_sums(arguments: ProductArguments, parts: hl.Func) -> hl.Func:
    """Return the sums of the rows, once: the results of a row all read its own."""
    r, sums = hl.RDom([(0, LANES)], "rs"), hl.Func("row_sums")
    sums[tuple(arguments.rows)] = hl.sum(parts[(r.x, *arguments.rows)])
    return sums.compute_root()


def _sums(
    product: MatrixProduct,
    arguments: ProductArguments,
    quantised: hl.Func,
    group: int,
    groups: int,
) -> tuple[hl.Func, tuple[tuple[str, int], ...]]:
    """Return the sums over (PANEL columns, panels, rows...), and the loops of their reduction."""
    lane, block, rows = hl.Var(LANE), hl.Var(BLOCK), arguments.rows
    r = hl.RDom([(0, group), (0, groups)], "r")
    sums, place = hl.Func(SUMS), (lane, block, *rows)
    sums[place] = hl.i32(0)
    panel = last_panel_at_most(product, block)
    weight = packed_element(product, arguments, (r.x, lane, r.y, panel))
    left = quantised[(group * r.y + r.x, *rows)]
    narrow = weight if group == GROUPS[PANELS_VNNI] else hl.i16(weight)
    sums[place] += hl.i32(left) * hl.i32(narrow)
    sums.bound_extent(lane, PANEL).compute_root()  # steps place it closer
    return sums, ((r.x.name(), group), (r.y.name(), groups))


# ---- weights, scales and zero points ----


def _right(of: IntegerProduct) -> hl.ImageParam:
    product = of.product
    name = "weights" if product.has_weights else f"x{product.right}"
    return hl.ImageParam(element_type(of.right_spec.dtype), len(right_extents(product)), name)


def _integer(
    of: IntegerProduct,
    right: hl.ImageParam,
    k: hl.Expr,
    column: hl.Expr,
    batch: Sequence[hl.Var] = (),
) -> hl.Expr:
    """Return a weight as a signed integer; 0 behind the last row and column."""
    product = of.product
    depth, columns = product.depth, product.columns.extent
    place = (hl.clamp(column, 0, columns - 1), hl.clamp(k, 0, depth - 1))
    value = hl.i32(right[(*(place[::-1] if product.right_turned else place), *batch)])
    return hl.select((column < columns) & (k < depth), value - _sign_of(of.right_spec), 0)


def _sign_of(spec: TensorSpec) -> int:
    return _SIGN if spec.dtype == "uint8" else 0


def _packed_weights(of: IntegerProduct, group: int) -> PackedInput:
    part, lane, step, panel = (hl.Var(name) for name in ("part", "lane", "step", "panel"))
    right, packed, batch = _right(of), hl.Func(PACKED), batch_variables(of.product)
    value = _integer(of, right, step * group + part, panel * PANEL + lane, batch)
    packed[(part, lane, step, panel, *batch)] = hl.i8(value)
    packed.bound(part, 0, group).compute_root()
    if of.product.has_weights:
        packed.bound(lane, 0, PANEL).unroll(part).vectorize(lane, PANEL)
    return PackedInput(
        output=packed,
        argument=right,
        argument_extents=right_extents(of.product),
        dtype="int8",
    )


def _sums_of_panels(
    of: IntegerProduct, arguments: ProductArguments, group: int, groups: int
) -> hl.Func:
    """Return the sums of the columns of a computed matrix, over (PANEL, panels, batch...)."""
    lane, panel, batch = hl.Var("lane"), hl.Var("panel"), batch_variables(of.product)
    r = hl.RDom([(0, group), (0, groups)], "c")
    sums, place = hl.Func(COLUMN_SUMS), (lane, panel, *batch)
    sums[place] = hl.i32(0)
    sums[place] += hl.i32(arguments.packing.output[(r.x, lane, r.y, panel, *batch)])
    sums.bound(lane, 0, PANEL).compute_root()
    return sums


def _column_sums(of: IntegerProduct) -> PackedInput:
    lane, panel = hl.Var("lane"), hl.Var("panel")
    right, sums = _right(of), hl.Func("column_sums")
    r = hl.RDom([(0, of.product.depth)], "s")
    sums[lane, panel] = hl.i32(0)
    sums[lane, panel] += _integer(of, right, hl.Expr(r.x), panel * PANEL + lane)
    sums.bound(lane, 0, PANEL).vectorize(lane, PANEL)
    sums.update().reorder(lane, r.x, panel).vectorize(lane, PANEL)
    return PackedInput(
        output=sums,
        argument=right,
        argument_extents=right_extents(of.product),
        dtype="int32",
        source=of.product.right,
    )


def _columns_filled_up(of: IntegerProduct, spec: TensorSpec) -> PackedInput:
    """Return values of columns over (PANEL, panels), zeros behind the last."""
    lane, panel = hl.Var("lane"), hl.Var("panel")
    given = hl.ImageParam(element_type(spec.dtype), 1, "given")
    columns, column = of.product.columns.extent, panel * PANEL + lane
    value = given[hl.clamp(column, 0, columns - 1)]
    filled = hl.Func("filled")
    filled[lane, panel] = hl.select(column < columns, value, hl.cast(value.type(), 0))
    filled.bound(lane, 0, PANEL).vectorize(lane, PANEL)
    return PackedInput(
        output=filled,
        argument=given,
        argument_extents=(columns,),
        dtype=spec.dtype,
    )


class _Parameters:
    """Buffers of scales, zero points and sums of columns."""

    def __init__(self, of: IntegerProduct) -> None:
        self._of = of
        self.column_sums = hl.ImageParam(hl.Int(32), 2, COLUMN_SUMS)
        self._buffers: dict[int, hl.ImageParam] = {}
        for ref in (*of.operands.of_matrices, *of.operands.of_columns):
            spec = _spec_of(of.workload, ref)
            if spec is not None:
                rank = 0 if spec.size == 1 else 2
                self._buffers[int(ref[1:])] = hl.ImageParam(element_type(spec.dtype), rank, ref)

    def one(self, ref: str) -> hl.Expr:
        """Return the only value of an input, or of a constant."""
        if ref.startswith("s"):
            return constant(self._of.workload.scalars[int(ref[1:])])
        return self._buffers[int(ref[1:])][()]

    def right_scale(self, lane: hl.Expr, panel: hl.Expr) -> hl.Expr:
        """Return the scale of a column."""
        return self.of_column(self._of.operands.right_scale, lane, panel)

    def right_zero(self, lane: hl.Expr, panel: hl.Expr) -> hl.Expr:
        """Return the zero point of a column, of signed weights."""
        ref, known = self._of.operands.right_zero, self._of.anchor.attributes
        zero = hl.i32(int(number(known, WEIGHT_ZERO_POINT, 0)))
        if ref:
            zero = hl.i32(self.of_column(ref, lane, panel))
        return zero - _sign_of(self._of.right_spec)

    def of_column(self, ref: str, lane: hl.Expr, panel: hl.Expr) -> hl.Expr:
        """Return the value of a column, or the only one."""
        buffer = self._buffers.get(int(ref[1:])) if ref.startswith("x") else None
        if buffer is None or buffer.dimensions() == 0:
            return self.one(ref)
        return buffer[lane, panel]

    def read_by(self, pipeline: Pipeline) -> Pipeline:
        """Return a pipeline that has these arguments, too."""
        of, panels = self._of, panels_of(self._of.product)
        arguments, extents = list(pipeline.arguments), list(pipeline.argument_extents)
        packings = dict(pipeline.packings)
        for at, buffer in self._buffers.items():
            spec = of.workload.inputs[at]
            arguments[at] = buffer
            extents[at] = () if spec.size == 1 else (PANEL, panels)
            if spec.size > 1:
                packings[at] = _columns_filled_up(of, spec)
        if of.product.has_weights:
            packings[len(arguments)] = _column_sums(of)
            arguments.append(self.column_sums)
            extents.append((PANEL, panels))
        return replace(
            pipeline,
            arguments=tuple(arguments),
            argument_extents=tuple(extents),
            packings=packings,
        )
