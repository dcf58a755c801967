"""A matrix product with its chain in numbers and loops; buffers and results of all algorithms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import halide as hl

from aoe.kernels.family import (
    SUPPORTED,
    UPDATE,
    KernelTarget,
    PackedInput,
    Pipeline,
    Support,
    TiledExtent,
)
from aoe.kernels.halide.anchored import Anchored, split_at_anchor
from aoe.kernels.halide.chain import (
    RESULT,
    Operands,
    chain_pipeline,
    check_chain,
    read_operands,
)
from aoe.kernels.halide.iteration import Axis, Iteration, axis_names, plan_iteration
from aoe.kernels.halide.shapes import infer_shapes
from aoe.kernels.halide.tile_sums import LevelReads, level_sums
from aoe.kernels.matmul.row_tiles import MostPanels, PanelTile, RowTiles
from aoe.operators import KERNEL_DTYPES, MICROSOFT_DOMAIN, OperatorKey, Shape, number, turned
from aoe.operators.element_types import BOOLEAN, element_types
from aoe.workload import AttributeValue, Operation, TensorSpec, Workload

MATRIX_PRODUCTS: frozenset[OperatorKey] = frozenset(
    {
        ("", "MatMul"),
        ("", "Gemm"),
        (MICROSOFT_DOMAIN, "FusedMatMul"),
        (MICROSOFT_DOMAIN, "FusedGemm"),
    }
)
_ACTIVATION = "activation"
_ELEMENTWISE_VERSION = 13
"""Version in which the operators a product is taken apart into have today's meaning."""
FEW_ROWS = 4
"""Rows up to which memory is the bound."""
MOST_ROW_LOOPS = 3
"""Loops over rows the glue's functions for matrix tiles run through."""
SUMS, FINISHED, PACKED = "sums", "finished", "packed"
SUMMED = f"{SUMS}{UPDATE}"
LANE, BLOCK = "l", "b"
PANEL = 16
"""Columns of a panel: a vector with AVX-512, two with AVX2, four with NEON."""
_MOST_PANELS = 9
"""Panels of a register tile end below it: each is a stream of weights that is read."""
_ELEMENTS = {
    "float32": hl.Float(32),
    "bfloat16": hl.BFloat(16),
    "int8": hl.Int(8),
    "uint8": hl.UInt(8),
    "int32": hl.Int(32),
}
Finish = Callable[[hl.Expr, Sequence[hl.Expr]], hl.Expr]
"""Makes a number of a sum, given where it is: (column of its panel, panel, rows...)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixProduct:
    """One matrix product and the element-wise operations around it.

    For the loops of the result a matrix product is an outer product: the left matrix without its
    columns times the right one without its rows, broadcast. `chain` is the workload written so.
    """

    workload: Workload  # All of it, as it was given
    # The same with `left` and `right` as its last two inputs, summed axis of extent 1; factor,
    # summand and activation of a Gemm are operations of their own.
    chain: Workload
    product: str  # Reference of the bare product in `chain`
    iteration: Iteration  # Loops of `chain`; the last axis runs over the columns
    left: int  # Number of the input whose rows are multiplied
    right: int  # Number of the input whose columns they are multiplied with
    depth: int  # Elements summed up
    left_turned: bool  # True if the left matrix is stored column by column
    right_turned: bool  # True if the right matrix is stored column by column
    open_depth: bool = False  # True if the depth is what the right matrix has when the kernel runs
    open_columns: bool = False  # True for the columns

    @property
    def columns(self) -> Axis:
        """Loop over the columns of the result."""
        return self.iteration.axes[-1]

    @property
    def rows(self) -> tuple[Axis, ...]:
        """Loops over its rows, outermost first; none for a single row."""
        return self.iteration.axes[:-1]

    @property
    def left_axes(self) -> tuple[int, ...]:
        """Row loops the left matrix has, outermost first, as indices into the axes."""
        return self._without_columns(self.iteration.operands[-2])

    @property
    def right_axes(self) -> tuple[int, ...]:
        """Row loops the right matrix has: loops over a batch of matrices."""
        return self._without_columns(self.iteration.operands[-1])

    @property
    def has_weights(self) -> bool:
        """True if the right matrix is one constant."""
        return self.workload.inputs[self.right].constant and not self.right_axes

    def _without_columns(self, axes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(at for at in axes if at != len(self.iteration.axes) - 1)


def read_product(workload: Workload, *, apart: bool = False) -> MatrixProduct | Support:
    """Return the parts of a workload that is one matrix product with a chain, or why it is none.

    Args:
        workload: What to compute.
        apart: True if every dimension of the result is to be a loop of its own.
    """
    parts = split_at_anchor(workload, MATRIX_PRODUCTS)
    if isinstance(parts, Support):
        return parts
    refused = _refusal(parts)
    if refused:
        return Support(refused)
    anchor, right = parts.anchor, int(parts.anchor.inputs[1][1:])
    chain, product = _as_outer_product(parts, right)
    behind = [item for item in chain.operations if item.output != product]
    checked = check_chain(behind, element_types(chain))
    if not checked:
        return checked
    shapes = infer_shapes(workload)
    if isinstance(shapes, str):
        return Support(shapes)
    if shapes[anchor.output] != workload.output.shape:
        return Support(f"the result of {anchor.op_type} is broadcast by what follows")
    names = axis_names(workload)
    left_turned = bool(anchor.attributes.get("transA", 0))
    keep = names if apart else names[-2:] if left_turned else names[-1:]
    iteration = plan_iteration(chain, keep, stored={BOOLEAN})
    if isinstance(iteration, Support):
        return iteration
    found = MatrixProduct(
        workload=workload,
        chain=chain,
        product=product,
        iteration=iteration,
        left=parts.source,
        right=right,
        depth=turned(workload.inputs[parts.source].shape, left_turned)[-1],
        left_turned=left_turned,
        right_turned=bool(anchor.attributes.get("transB", 0)),
    )
    return _check_rereads(found) and found


def _refusal(parts: Anchored) -> str:
    """Return the reason why the anchor is no product of two inputs; "" if it is one."""
    anchor, inputs = parts.anchor, parts.workload.inputs
    name, right = anchor.op_type, anchor.inputs[1]
    if parts.workload.blocked:
        return f"{name} in the blocked layout"
    if not right.startswith("x"):
        return f"{name} by a computed value or a scalar"
    if any(anchor.attributes.get(f"transBatch{side}", 0) for side in "AB"):
        return f"{name} with its batch axis inside the matrix"
    if int(right[1:]) == parts.source:
        return f"{name} of a tensor with itself"
    if len(inputs[int(right[1:])].shape) < 2:
        return f"{name} by a vector"
    others = {inputs[number].dtype for number in (parts.source, int(right[1:]))} - KERNEL_DTYPES
    if others:
        return f"{name} of {' and '.join(sorted(others))}"
    if len(anchor.inputs) > 2 and number(anchor.attributes, "beta", 1.0) == 0.0:
        return f"{name} with a summand it does not read"
    return ""


def _check_rereads(found: MatrixProduct) -> Support:
    """A factor the chain reads too has to be read with the same loops."""
    read = _read_by_chain(found.chain)
    if found.right in read:
        return Support("the chain reads the right matrix again")
    if found.left not in read:
        return SUPPORTED
    whole = (*found.left_axes, len(found.iteration.axes) - 1)
    is_square = found.depth == found.columns.extent and not found.left_turned
    if is_square and found.iteration.operands[found.left] == whole:
        return SUPPORTED
    return Support("the chain reads the left matrix again, in another shape")


def _read_by_chain(chain: Workload) -> frozenset[int]:
    """Return the numbers of the inputs that are read outside the product."""
    last = len(chain.inputs) - 2
    references = {ref for operation in chain.operations for ref in operation.inputs}
    return frozenset(at for at in range(last) if f"x{at}" in references)


def _as_outer_product(parts: Anchored, right: int) -> tuple[Workload, str]:
    """Return the chain of a `MatrixProduct`, and the reference of the product in it."""
    workload, anchor = parts.workload, parts.anchor
    count, scalars = len(workload.inputs), list(workload.scalars)
    behind = _unfused(anchor, scalars)
    product = f"{anchor.output}_0" if behind else anchor.output
    outer = Operation(
        op_type="Mul",
        version=_ELEMENTWISE_VERSION,
        inputs=(f"x{count}", f"x{count + 1}"),
        output=product,
    )
    operations = (*parts.before, outer, *behind, *parts.after)
    shapes = _outer_shapes(
        *(
            turned(workload.inputs[at].shape, anchor.attributes.get(name, 0))
            for at, name in ((parts.source, "transA"), (right, "transB"))
        )
    )
    read = {ref for operation in operations for ref in operation.inputs}
    inputs = [
        spec if f"x{at}" in read else TensorSpec(shape=())
        for at, spec in enumerate(workload.inputs)
    ]
    chain = replace(
        workload,
        inputs=(*inputs, *(TensorSpec(shape=shape) for shape in shapes)),
        scalars=tuple(scalars),
        operations=operations,
    )
    return chain, product


def _outer_shapes(left: Shape, right: Shape) -> tuple[Shape, Shape]:
    if len(left) == 1:
        return (1,), (*right[:-2], right[-1])
    return (*left[:-1], 1), (*right[:-2], 1, right[-1])


def _unfused(anchor: Operation, scalars: list[float]) -> tuple[Operation, ...]:
    """Return the parts of a Gemm behind its product: factors, summand, activation.

    The last one makes the anchor's result; constants are added to `scalars`.
    """
    result, attributes = anchor.output, anchor.attributes
    steps: list[Operation] = []

    def then(op_type: str, *refs: str, **given: AttributeValue) -> str:
        output = f"{result}_{len(steps) + 1}"
        steps.append(
            Operation(
                op_type=op_type,
                version=_ELEMENTWISE_VERSION,
                inputs=refs,
                output=output,
                attributes=given,
            )
        )
        return output

    def scaled(name: str, ref: str) -> str:
        factor = number(attributes, name, 1.0)
        if factor == 1.0:
            return ref
        scalars.append(factor)
        return then("Mul", ref, f"s{len(scalars) - 1}")

    value = scaled("alpha", f"{result}_0")
    if len(anchor.inputs) > 2 and anchor.inputs[2]:
        value = then("Add", value, scaled("beta", anchor.inputs[2]))
    activation = str(attributes.get(_ACTIVATION, ""))
    if activation:
        prefix = f"{_ACTIVATION}_"
        given = {
            name.removeprefix(prefix): item
            for name, item in attributes.items()
            if name.startswith(prefix)
        }
        then(activation, value, **given)
    return (*steps[:-1], *(replace(step, output=result) for step in steps[-1:]))


def panels_of(product: MatrixProduct) -> int:
    """Return the number of panels of the weights."""
    return -(-product.columns.extent // PANEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductArguments:
    """Buffers a kernel reads."""

    operands: Operands  # Of the chain, and the loops of the result
    left: hl.ImageParam  # The left matrix
    right: hl.ImageParam  # The right one, packed where it is a constant
    right_extents: tuple[int, ...]  # Its extents, innermost first
    packing: PackedInput  # What packs it

    @property
    def rows(self) -> tuple[hl.Var, ...]:
        """Loop variables of the rows, innermost first."""
        return tuple(self.operands.variables[1:])


def read_arguments(
    product: MatrixProduct, packing: PackedInput, packed_extents: tuple[int, ...]
) -> ProductArguments:
    """Return the buffers of a kernel whose right matrix is packed so.

    Weights are packed when the kernel is created, a computed matrix in every run.
    """
    operands = read_operands(product.chain, product.iteration)
    once = hl.ImageParam(_ELEMENTS[packing.dtype], len(packed_extents), f"x{product.right}")
    return ProductArguments(
        operands=operands,
        left=left_argument(product, operands.arguments[product.left]),
        right=once if product.has_weights else packing.argument,
        right_extents=packed_extents if product.has_weights else packing.argument_extents,
        packing=packing,
    )


def packed_element(
    product: MatrixProduct, arguments: ProductArguments, place: Sequence[hl.Expr]
) -> hl.Expr:
    """Return an element of the packed right matrix, of the batch the row belongs to."""
    if product.has_weights:
        return arguments.right[tuple(place)]
    return arguments.packing.output[(*place, *batch_place(product, arguments))]


def right_element(
    product: MatrixProduct, arguments: ProductArguments, k: hl.Expr, column: hl.Expr
) -> hl.Expr:
    """Return an element of a computed right matrix as it lies, of the batch the row belongs to."""
    place = (k, column) if product.right_turned else (column, k)
    return arguments.right[(*place, *batch_place(product, arguments))]


def batch_place(product: MatrixProduct, arguments: ProductArguments) -> list[hl.Expr]:
    """Return the index of a row's right matrix in a batch, innermost first."""
    outermost_first = tuple(reversed(arguments.rows))
    return [outermost_first[at] for at in reversed(product.right_axes)]


def batch_variables(product: MatrixProduct) -> tuple[hl.Var, ...]:
    """Return loop variables over the batch of right matrices, innermost first."""
    axes = product.iteration.axes
    return tuple(hl.Var(axes[at].name) for at in reversed(product.right_axes))


def left_place(product: MatrixProduct, rows: Sequence[hl.Var], k: hl.Expr) -> tuple[hl.Expr, ...]:
    """Return the index of element `k` of a row in the left matrix."""
    outermost_first = tuple(reversed(rows))
    place: list[hl.Expr] = [outermost_first[at] for at in reversed(product.left_axes)]
    place.insert(1 if product.left_turned else 0, k)
    return tuple(place)


def last_panel_at_most(
    product: MatrixProduct, block: hl.Expr, right: hl.ImageParam | None = None
) -> hl.Expr:
    """Return the panel a block of sums reads; one that pads a tile reads the last.

    Args:
        product: What is computed.
        block: Number of the block.
        right: The right matrix as the model has it, where its columns may be open.
    """
    if right is None or not product.open_columns:
        return hl.clamp(block, 0, panels_of(product) - 1)
    _, columns = right_sizes(product, right)
    return hl.clamp(block, 0, (columns + PANEL - 1) // PANEL - 1)


def right_sizes(product: MatrixProduct, right: hl.ImageParam) -> tuple[hl.Expr, hl.Expr]:
    """Return depth and columns: numbers, or extents of the right matrix where they are open."""
    columns, depth = (right.dim(at).extent() for at in (0, 1)[:: -1 if product.right_turned else 1])
    return (
        depth if product.open_depth else hl.Expr(product.depth),
        columns if product.open_columns else hl.Expr(product.columns.extent),
    )


def nearest(index: hl.Expr, extent: hl.Expr) -> hl.Expr:
    """Return an index within an open extent; loops are cut apart where it is that already."""
    return hl.clamp(hl.likely(index), 0, extent - 1)


def finished_pipeline(
    product: MatrixProduct,
    arguments: ProductArguments,
    sums: hl.Func,
    depths: tuple[tuple[str, int], ...],
    stages: Mapping[str, hl.Func] = MappingProxyType({}),
    *,
    finish: Finish | None = None,
) -> Pipeline:
    """Return the pipeline of a product's sums with the chain behind them.

    Args:
        product: What is computed.
        arguments: What is read.
        sums: Over (PANEL columns, panels, rows...); may be computed past the last panel.
        depths: Loops of its reduction, innermost first.
        stages: What the sums read, by name.
        finish: What is done to a sum before the chain; None for nothing.
    """
    operands = arguments.operands
    finished, place = hl.Func(FINISHED), sums.args()
    finished[place] = sums[place] if finish is None else finish(sums[place], place)
    column = operands.variables[0]
    made = finished[(column % PANEL, column // PANEL, *arguments.rows)]
    pure = ((LANE, PANEL), (BLOCK, 0), *((axis.name, 0) for axis in reversed(product.rows)))
    if not product.has_weights:
        stages = {**stages, PACKED: arguments.packing.output}
    loops = {name: tuple((v.name(), 0) for v in stage.args()) for name, stage in stages.items()}
    chained = chained_pipeline(
        product,
        arguments,
        made,
        {SUMS: sums, SUMMED: sums.update(), FINISHED: finished, **stages},
        {SUMS: pure, FINISHED: pure, SUMMED: (*pure, *depths), **loops},
    )
    tiled = tiled_rows(product, most_panels)
    return replace(chained, padded=frozenset({SUMS, FINISHED}), tiled=tiled)


def tiled_rows(product: MatrixProduct, most: MostPanels) -> TiledExtent | None:
    """Return the rows of a product as an extent tiles cut, None where they are no single loop.

    Args:
        product: What is computed.
        most: Panels of a tile.
    """
    if len(product.rows) != 1 or not product.has_weights:
        return None
    tile = PanelTile(
        stage=RESULT, columns=product.columns.name, panel=PANEL, sums=None, panels=BLOCK
    )
    rows = product.rows[-1].name
    return RowTiles(rows=rows, panels=panels_of(product), tile=tile, most=most).extent


def most_panels(rows: int, target: KernelTarget) -> int:
    """Return the panels registers hold in a tile of so many rows; 0 where they do not hold one."""
    return max(
        (n for n in range(1, _MOST_PANELS) if stays_in_registers(n, rows, target)), default=0
    )


def stays_in_registers(blocks: int, rows: int, target: KernelTarget) -> bool:
    """Return True if sums, weights of all blocks and one broadcast value have registers."""
    wide = blocks * vectors_of_panel(target)
    weights = wide if rows > 1 else 0  # of a single row they are read once, from memory
    return wide * rows + weights + 1 <= target.registers


def vectors_of_panel(target: KernelTarget) -> int:
    """Return the registers a panel of one row takes."""
    return max(1, PANEL // target.vector_lanes)


def tiles_pipeline(
    product: MatrixProduct,
    arguments: ProductArguments,
    left: hl.Func | hl.ImageParam,
    reads: LevelReads,
    stages: Mapping[str, hl.Func],
    *,
    finish: Finish,
) -> Pipeline:
    """Return the pipeline of levels that are summed up in matrix tiles (AMX), and a chain.

    Args:
        product: What is computed.
        arguments: What is read.
        left: Levels of the left matrix, over (depth, rows...).
        reads: How these are read.
        stages: What the sums read, by name.
        finish: What is done to a sum before the chain.
    """
    packed = {} if product.has_weights else {PACKED: arguments.packing.output}
    sums = level_sums(SUMS, left, packed.get(PACKED, arguments.right), reads)
    column = arguments.operands.variables[0]
    place, stages = (column % PANEL, column // PANEL), {**stages, **packed}
    loops = {name: tuple((v.name(), 0) for v in stage.args()) for name, stage in stages.items()}
    return chained_pipeline(
        product,
        arguments,
        finish(sums[(*place, *three_loops(arguments.rows))], place),
        {SUMS: sums, **stages},
        {SUMS: (("o", PANEL), ("b", 0), ("w", 0), ("h", 0), ("n", 0)), **loops},
    )


def three_loops(rows: Sequence[hl.Var]) -> tuple[hl.Expr, ...]:
    """Return the row loops of the glue's functions for matrix tiles, innermost first."""
    return tuple(hl.Expr(row) for row in rows) + (hl.Expr(0),) * (MOST_ROW_LOOPS - len(rows))


def chained_pipeline(
    product: MatrixProduct,
    arguments: ProductArguments,
    made: hl.Expr,
    stages: Mapping[str, Any],
    loops: Mapping[str, tuple[tuple[str, int], ...]],
) -> Pipeline:
    """Return the pipeline of a product with the chain behind it.

    Args:
        product: What is computed.
        arguments: What is read.
        made: The product, for one iteration of the result.
        stages: What it reads, by name.
        loops: Their loops.
    """
    operands = arguments.operands
    chain = chain_pipeline(
        product.chain,
        replace(operands, values={**operands.values, product.product: made}),
        [item for item in product.chain.operations if item.output != product.product],
        stages,
        loops,
    )
    buffers, extents = list(operands.arguments[:-2]), list(chain.argument_extents[:-2])
    buffers[product.left], buffers[product.right] = arguments.left, arguments.right
    extents[product.left] = left_extents(product)
    extents[product.right] = arguments.right_extents
    return replace(
        chain,
        arguments=tuple(buffers),
        argument_extents=tuple(extents),
        packings={product.right: arguments.packing} if product.has_weights else {},
    )


def left_extents(product: MatrixProduct) -> tuple[int, ...]:
    """Return the extents of the left matrix, innermost first."""
    axes = [product.iteration.axes[at].extent for at in reversed(product.left_axes)]
    axes.insert(1 if product.left_turned else 0, product.depth)
    return tuple(axes)


def left_argument(product: MatrixProduct, read_by_chain: hl.ImageParam) -> hl.ImageParam:
    """Return the buffer of the left matrix: the chain's own, where it reads the matrix again."""
    rank = len(product.left_axes) + 1
    if product.iteration.operands[product.left] and read_by_chain.dimensions() == rank:
        return read_by_chain
    return hl.ImageParam(hl.Float(32), rank, f"x{product.left}")
