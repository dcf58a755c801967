"""The numbers and loops of an attention, and the moves of heads around it.

Exporters split `(batch, tokens, heads * size)` into heads by Slice, Reshape and Transpose, and join
the heads of the result. A kernel that reads and writes with the strides of the stored tensors moves
nothing: keys and values are packed anyway, and queries are read once. ViT-S takes 0.975 of the time
it takes with the moves as kernels of their own (one thread with AVX2 of a busy Zen 4, CPU time,
2026-11-28).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from aoe.kernels.family import BufferView, Pipeline, Support
from aoe.kernels.halide.anchored import feeding
from aoe.kernels.halide.iteration import Axis
from aoe.kernels.halide.shapes import infer_shapes
from aoe.kernels.matmul.shape import FEW_ROWS, MATRIX_PRODUCTS, MatrixProduct, read_product
from aoe.kernels.movement.access_maps import (
    CutLoop,
    NoPlaceError,
    Position,
    Variables,
    variable,
)
from aoe.kernels.movement.moves import Read, Tracer, moves_of
from aoe.operators import OperatorKind, Shape, facts_of, op_key, softmax_axis
from aoe.operators.movement import permutation
from aoe.workload import Operation, Precision, TensorSpec, Workload

_TRANSPOSE = ("", "Transpose")


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedAttention:
    """An attention with the moves around it."""

    workload: Workload  # The attention without them
    # Of its inputs, then of its result, with all dimensions of the tensors.
    views: tuple[BufferView, ...]


def without_moves(workload: Workload) -> MovedAttention | Support | None:
    """Return an attention and where its tensors lie, None where nothing is moved around it.

    It says why instead where moves are no strides, or the result is not written in rows.
    """
    operations = list(workload.operations)
    if not any(facts_of(item).kind is OperatorKind.MOVEMENT for item in operations):
        return None
    shapes = infer_shapes(workload)
    if isinstance(shapes, str):
        return Support(shapes)
    back = operations.pop() if op_key(operations[-1]) == _TRANSPOSE else None
    moves = moves_of(workload)
    kept = [item for item in operations if item.output not in moves]
    if not kept or any(facts_of(item).kind is OperatorKind.MOVEMENT for item in kept):
        return Support("moves between the products of an attention")
    made = {item.output for item in kept}
    refs = (ref for item in kept for ref in item.inputs if ref and not ref.startswith("s"))
    read = tuple(dict.fromkeys(ref for ref in refs if ref not in made))
    inside = kept[-1].output
    written = _written(back, shapes[inside], workload)
    if isinstance(written, Support):
        return written
    groups = Groups(rank=len(shapes[inside]))
    try:
        seen = _seen(workload, read, shapes, groups)
    except CutLoop as cut:
        # heads that share the keys and values of their group: groups and heads are two dimensions
        groups = replace(groups, axis=int(cut.loop[1:]), size=cut.inner)
        if groups.axis >= groups.rank - 2:
            return Support(_MORE_THAN_STRIDES)
        try:
            seen = _seen(workload, read, shapes, groups)
        except CutLoop:
            return Support(_MORE_THAN_STRIDES)
    if isinstance(seen, Support):
        return seen
    views = tuple(view for view, _ in seen)
    if {view.tensor for view in views} != set(range(len(workload.inputs))):
        return Support("an input that is not read")
    tensors = dict(zip(read, (spec for _, spec in seen), strict=True))
    return MovedAttention(
        workload=_renumbered(workload, kept, tensors, groups, groups.of(shapes[inside])),
        views=(*views, replace(written, strides=groups.strides(written.strides))),
    )


_MORE_THAN_STRIDES = "moves that are more than strides"


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The dimension of the heads as two: groups, and the heads of a group."""

    rank: int  # Of the products, with heads in one dimension
    axis: int = 0  # The dimension that is divided, counted from the outermost
    size: int = 1  # Heads of a group; 1 where nothing is divided

    def of(self, shape: Shape) -> Shape:
        """Return a shape with the dimension divided; it may have fewer dimensions."""
        at = self.axis - (self.rank - len(shape))
        if self.size == 1 or at < 0:
            return shape
        pair = (shape[at] // self.size, self.size) if shape[at] > 1 else (1, 1)
        return (*shape[:at], *pair, *shape[at + 1 :])

    def index(self, shape: Shape) -> tuple[Variables, tuple[Position, ...]]:
        """Return the loops over a shape, one for each of its dimensions, and their place in it."""
        divided = self.of(shape)
        offset = self.rank - len(shape)
        names = [f"d{at + offset}" for at in range(len(divided))]
        index = [*map(variable, names, divided)]
        at = self.axis - offset
        if len(divided) > len(shape):
            index[at : at + 2] = [index[at].times(self.size).plus(index[at + 1])]
        return Variables(dict(zip(names, divided, strict=True))), tuple(index)

    def strides(self, strides: Sequence[int]) -> tuple[int, ...]:
        """Return the strides of a dense tensor, innermost first, with the dimension divided."""
        if self.size == 1:
            return tuple(strides)
        at = self.rank - 1 - self.axis
        return (*strides[: at + 1], strides[at] * self.size, *strides[at + 1 :])


def _seen(
    workload: Workload, read: Sequence[str], shapes: Mapping[str, Shape], groups: Groups
) -> list[tuple[BufferView, TensorSpec]] | Support:
    """Return, for each tensor that operations read, the view of an input it is, and its shape.

    Raises:
        CutLoop: there is a view where a dimension is two.
    """
    seen = []
    for ref in read:
        one = _view_of(workload, ref, shapes, groups)
        if isinstance(one, Support):
            return one
        seen.append(one)
    return seen


def _view_of(
    workload: Workload, ref: str, shapes: Mapping[str, Shape], groups: Groups
) -> tuple[BufferView, TensorSpec] | Support:
    """Return the view, of an input, that an operation reads as a tensor, and that tensor.

    What is the same for all heads of a group is read once: its extent there is 1.

    Raises:
        CutLoop: see `_seen`.
    """
    variables, index = groups.index(shapes[ref])
    loops = tuple(variables.extents)
    try:
        found = Tracer(workload, shapes, variables).trace(ref, index)
    except NoPlaceError:
        return Support(_MORE_THAN_STRIDES)
    if not isinstance(found, Read) or found.image or variables.made:
        return Support(_MORE_THAN_STRIDES)
    spec = workload.inputs[found.number] if ref.startswith("x") else TensorSpec(shape=shapes[ref])
    if ref.startswith("t") and workload.inputs[found.number].dtype != "float32":
        return Support("moves of another type than float32")
    shape = list(groups.of(shapes[ref]))
    # where there is one element, any stride serves; 0 repeats elements, as Expand does
    strides = [
        found.address.coefficient(name) if extent > 1 else 1
        for name, extent in zip(loops, shape, strict=True)
    ]
    inner = groups.axis - (groups.rank - len(shapes[ref])) + 1
    if groups.size > 1 and inner > 0 and strides[inner] == 0:
        shape[inner], strides[inner] = 1, 1
    view = BufferView(
        tensor=found.number, strides=tuple(reversed(strides)), offset=found.address.offset
    )
    return view, replace(spec, shape=tuple(shape))


def _written(back: Operation | None, made: Shape, workload: Workload) -> BufferView | Support:
    """Return the view of the result of an attention, whose dimensions a Transpose permutes."""
    order = tuple(range(len(made))) if back is None else permutation(back, len(made))
    if order[-1] != len(made) - 1:
        return Support("columns of the result that are written apart")
    stored = workload.output.shape
    strides = [prod(stored[order.index(at) + 1 :]) for at in reversed(range(len(made)))]
    return BufferView(tensor=len(workload.inputs), strides=tuple(strides))


def _renumbered(
    workload: Workload,
    kept: Sequence[Operation],
    read: Mapping[str, TensorSpec],
    groups: Groups,
    made: Shape,
) -> Workload:
    """Return a workload of some operations, whose inputs are what the operations read.

    Args:
        workload: With all operations.
        kept: Those that stay.
        read: Tensors they read, by their references.
        groups: Dimensions of these tensors.
        made: Shape of the result.
    """
    names = {ref: f"x{number}" for number, ref in enumerate(read)}
    operations = []
    for item in kept:
        attributes = item.attributes
        if item.op_type == "Softmax" and softmax_axis(item) == groups.rank - 1:
            attributes = {**attributes, "axis": -1}
        inputs = tuple(names.get(ref, ref) for ref in item.inputs)
        operations.append(replace(item, inputs=inputs, attributes=attributes))
    return replace(
        workload,
        inputs=tuple(read.values()),
        operations=tuple(operations),
        output=replace(workload.output, shape=made),
    )


def with_views(
    pipeline: Pipeline,
    tensors: Sequence[BufferView],
    dimensions: Sequence[Sequence[int]],
) -> Pipeline:
    """Return a pipeline that reads and writes where the tensors lie.

    Args:
        pipeline: Of the attention alone.
        tensors: Views of its inputs and its result, with all dimensions of the tensors.
        dimensions: Of its buffers: for each dimension, innermost first, that of the tensor, below 0
            where the tensor has none.
    """
    views = [
        # dimensions count from the outermost, strides from the innermost
        replace(view, strides=tuple(view.strides[~at] if at >= 0 else 1 for at in of_buffer))
        for view, of_buffer in zip(tensors, dimensions, strict=True)
    ]
    # the first view of each input takes its place, further ones follow
    first = {view.tensor: number for number, view in reversed([*enumerate(views[:-1])])}
    order = [first[number] for number in range(len(first))]
    order += [number for number in range(len(views) - 1) if number not in order]
    return replace(
        pipeline,
        arguments=tuple(pipeline.arguments[number] for number in order),
        argument_extents=tuple(pipeline.argument_extents[number] for number in order),
        views={at: views[number] for at, number in enumerate((*order, len(views) - 1))},
    )


_KEYS_BY_COLUMNS = 512
"""Keys stored column by column, of a few queries, at most: of ONNX Runtime's time 1 query by 1024
such keys, a page apart, takes 1.8 (12 heads of 64, a thread of a busy Zen 5, CPU time)."""
_SUMMED_AT_ONCE = 4096
"""Sums of so many columns stay on the stack of a thread, four vectors for each panel of 16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """An attention in terms of its products.

    Both have the same loops but for the last: every dimension is one, batches first, then the
    queries.
    """

    # Queries times keys, and the chain behind: scale, mask. Its columns are the keys.
    scores: MatrixProduct
    # Weights of the keys times the values; its left matrix is no input of the workload.
    values: MatrixProduct
    # True if a query whose weights are no numbers, because all its keys are masked, has weights of
    # zero instead.
    is_guarded: bool = False
    # Of its inputs and its result, of a workload with moves around it; else ().
    views: tuple[BufferView, ...] = ()
    # True if batches, queries and keys are as many as its inputs have when it runs.
    is_open: bool = False

    @property
    def in_pairs(self) -> bool:
        """True if factors are rounded to bfloat16."""
        return self.scores.workload.precision is Precision.BFLOAT16

    @property
    def is_few(self) -> bool:
        """True for so few queries that packing keys and values would not pay."""
        return self.queries.extent <= FEW_ROWS

    @property
    def keys(self) -> Axis:
        """Loop over the keys."""
        return self.scores.columns

    @property
    def queries(self) -> Axis:
        """Loop over the queries of a batch."""
        return self.values.rows[-1]

    @property
    def batch(self) -> tuple[Axis, ...]:
        """Loops around the queries, outermost first."""
        return self.values.rows[:-1]

    def dimensions(self, number: int) -> tuple[int, ...]:
        """Return the dimensions of an input its buffer has, innermost first.

        Below 0 stand loops it has no dimension for: matrices of a single query have one over
        queries that says nothing. Queries are stored row by row.
        """
        scores, rank = self.scores, len(self.scores.iteration.axes)
        missing = rank - len(scores.workload.inputs[number].shape)
        if number == scores.left:
            axes: tuple[int, ...] = (rank - 1, *reversed(scores.left_axes))
        elif number in (scores.right, self.values.right):
            product = scores if number == scores.right else self.values
            around = reversed(product.right_axes)
            axes = (rank - 1, rank - 2, *(-1 if at == rank - 2 else at for at in around))
        else:
            axes = tuple(reversed(scores.iteration.operands[number]))
        return tuple(at - missing if at >= 0 else -1 for at in axes)


def read_attention(workload: Workload) -> Attention | Support:
    """Return the products of a workload that is one attention, or why it is none."""
    moved = without_moves(workload)
    if moved is None:
        return _read_plain(workload)
    found = moved if isinstance(moved, Support) else _read_plain(moved.workload)
    if isinstance(moved, Support) or isinstance(found, Support):
        return found
    if found.scores.left_turned:
        return Support("queries column by column, with moves around them")
    return replace(found, views=moved.views)


def _read_plain(workload: Workload) -> Attention | Support:
    """Return the same for a workload without moves."""
    parts = _parts(workload)
    if isinstance(parts, Support):
        return parts
    chain, softmax, last = parts
    shapes = infer_shapes(workload)
    if isinstance(shapes, str):
        return Support(shapes)
    scored = shapes[softmax.inputs[0]]
    refused = _shape_refusal(softmax, scored, workload.output.shape)
    if refused:
        return Support(refused)
    inputs = tuple(replace(spec, constant=False) for spec in workload.inputs)
    front = replace(
        workload, inputs=inputs, operations=chain, output=replace(workload.output, shape=scored)
    )
    weights = f"x{len(inputs)}"
    back = replace(
        workload,
        inputs=(*inputs, TensorSpec(shape=scored)),
        operations=(replace(last, inputs=(weights, last.inputs[1])),),
    )
    scores = read_product(front, apart=True)
    if isinstance(scores, Support):
        return scores
    values = read_product(back, apart=True)
    if isinstance(values, Support):
        return values
    guarded = last.inputs[0] != softmax.output
    return _checked(Attention(scores=scores, values=values, is_guarded=guarded), chain)


def _parts(workload: Workload) -> tuple[tuple[Operation, ...], Operation, Operation] | Support:
    """Return the operations of the scores, of the softmax, and the product with the values."""
    *_, last = operations = workload.operations
    products = [item for item in operations if op_key(item) in MATRIX_PRODUCTS]
    found = [item for item in operations if op_key(item) == ("", "Softmax")]
    if len(products) != 2 or len(found) != 1:
        return Support("no softmax between two matrix products")
    softmax = found[0]
    guard = _guard(workload, softmax)
    weights = guard[-1].output if guard else softmax.output
    if last is not products[1] or last.inputs[0] != weights or len(last.inputs) > 2:
        return Support(f"{last.op_type} is no product of a softmax")
    if last.attributes.get("transA", 0):
        return Support(f"{last.op_type} of a softmax by columns")
    chain = feeding(softmax.inputs[0], operations)
    if len(chain) != len(operations) - 2 - len(guard) or products[0] not in chain:
        return Support("the scores are read by more than their softmax")
    return chain, softmax, last


def _guard(workload: Workload, softmax: Operation) -> tuple[Operation, ...]:
    """Return the operations that zero weights that are no numbers, () if there are none.

    PyTorch writes it behind the softmax of every attention with a mask.
    """
    of_weights = [item for item in workload.operations if softmax.output in item.inputs]
    if [op_key(item) for item in of_weights] != [("", "IsNaN"), ("", "Where")]:
        return ()
    asked, chosen = of_weights
    condition, zero, weights = chosen.inputs
    if (condition, weights) != (asked.output, softmax.output) or not zero.startswith("s"):
        return ()
    return (asked, chosen) if workload.scalars[int(zero[1:])] == 0 else ()


def _shape_refusal(softmax: Operation, scored: Shape, made: Shape) -> str:
    """Return why a shape is none of the scores of an attention, "" if it is one."""
    rank = len(scored)
    if softmax_axis(softmax) not in (rank - 1, -1):
        return "softmax over an axis that is not the last"
    if rank < 2 or scored[:-1] != made[:-1]:
        return "the values have a batch of their own"
    return "a single key" if scored[-1] == 1 else ""


def _checked(found: Attention, chain: tuple[Operation, ...]) -> Attention | Support:
    """Return an attention if no other part of it reads what a product reads, else why not."""
    if found.is_few and (refused := _few_queries_refusal(found)):
        return Support(refused)
    read = [ref for item in chain for ref in item.inputs]
    numbers = (found.scores.left, found.scores.right, found.values.right)
    queries, keys, values = (f"x{number}" for number in numbers)
    if read.count(queries) > 1 or read.count(keys) > 1 or values in read:
        return Support("queries, keys or values are read twice")
    return found


def _few_queries_refusal(found: Attention) -> str:
    """Return why an attention of a few queries is not computed, "" if it is."""
    keys = found.keys.extent
    if found.in_pairs:
        return "a few queries in bfloat16, which save no reading"
    if keys > _KEYS_BY_COLUMNS and not found.scores.right_turned:
        return f"{keys} keys, stored column by column, of a few queries"
    columns = found.values.columns.extent
    return f"{columns} columns of a few queries" if columns > _SUMMED_AT_ONCE else ""
