"""What all algorithms for matrix products share: buffers read, and the chain behind the sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import halide as hl

from aoe.kernels.family import UPDATE, PackedInput, Pipeline
from aoe.kernels.halide.chain import Operands, chain_pipeline, read_operands
from aoe.kernels.matmul.shape import MatrixProduct

SUMS, FINISHED, PACKED = "sums", "finished", "packed"
SUMMED = f"{SUMS}{UPDATE}"
LANE, BLOCK = "l", "b"
PANEL = 16
"""Columns of a panel: a vector with AVX-512, two with AVX2, four with NEON."""


_ELEMENTS = {"float32": hl.Float(32), "bfloat16": hl.BFloat(16), "int8": hl.Int(8)}
Finish = Callable[[hl.Expr, Sequence[hl.Expr]], hl.Expr]
"""Makes a number of a sum, given where it is: (column of its panel, panel, rows...)."""


def panels_of(product: MatrixProduct) -> int:
    """Return the number of panels of the weights."""
    return -(-product.columns.extent // PANEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductArguments:
    """What a kernel reads.

    Attributes:
        operands: Of the chain, and the loops of the result.
        left: The left matrix.
        right: The right one, packed where it is a constant.
        right_extents: Its extents, innermost first.
        packing: What packs it.
    """

    operands: Operands
    left: hl.ImageParam
    right: hl.ImageParam
    right_extents: tuple[int, ...]
    packing: PackedInput

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
    return arguments.packing.output[(*place, *_batch_place(product, arguments))]


def right_element(
    product: MatrixProduct, arguments: ProductArguments, k: hl.Expr, column: hl.Expr
) -> hl.Expr:
    """Return an element of a computed right matrix as it lies, of the batch the row belongs to."""
    place = (k, column) if product.right_turned else (column, k)
    return arguments.right[(*place, *_batch_place(product, arguments))]


def _batch_place(product: MatrixProduct, arguments: ProductArguments) -> list[hl.Expr]:
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
    """Return depth and columns: numbers, or where they are open those of the right matrix."""
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
    return replace(chained, padded=frozenset({SUMS, FINISHED}))


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
