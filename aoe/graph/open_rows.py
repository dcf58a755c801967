"""Regions whose leading dimensions are open: a computation that is the same for every row.

Where all open dimensions of a region come first and every operator treats what they count apart,
the region computes rows: `(batch, sequence, 256)` is `(rows, 256)`, for any number of rows. The
proof is symbolic: each open dimension has a name, equal names mean equal extents in every run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from aoe.graph.extents import OpenShape, find_shape_at, is_closed, shape_at
from aoe.graph.model_graph import ModelGraph
from aoe.graph.open_images import LEAST_OPEN
from aoe.graph.regions import Region
from aoe.kernels.halide.open_extents import extent_relations
from aoe.kernels.halide.shapes import infer_shapes, shapes_of
from aoe.kernels.matmul.open_rows import read_open_rows
from aoe.kernels.registry import classify
from aoe.operators import (
    MICROSOFT_DOMAIN,
    SOFTMAX_ONE_AXIS_SINCE,
    OperatorKind,
    Shape,
    facts_of,
    number,
    op_key,
)
from aoe.operators.axes import normalized_axis, reduced_axes, softmax_axis
from aoe.operators.movement import RESHAPE, listed, padding, permutation
from aoe.operators.quantised import BLOCKWISE_PRODUCT, DYNAMIC_PRODUCT, RIGHT_MATRIX
from aoe.workload import Layout, Operation, TensorSpec, Workload, workload_to_json

_LAST_AXES = frozenset(
    {
        ("", "LayerNormalization"),
        ("", "RMSNormalization"),
        ("", "SimplifiedLayerNormalization"),
        (MICROSOFT_DOMAIN, "SkipLayerNormalization"),
        (MICROSOFT_DOMAIN, "SkipSimplifiedLayerNormalization"),
    }
)
"""They walk the axes from the attribute `axis`, the last by default, to the end."""
_SOFTMAX = frozenset({("", "Softmax"), ("", "LogSoftmax")})
_REDUCTIONS = frozenset(
    ("", f"Reduce{name}")
    for name in (
        *("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"),
    )
)
_TURNED = ("transA", "transBatchA", "transBatchB")
"""Attributes under which the rows of a product are not those of its first factor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRows:
    """A region as a computation of rows."""

    region: Region  # The region; its workload has one of the shapes the region may have
    open_rank: int  # Leading dimensions of the open tensors that together count the rows
    open_inputs: tuple[bool, ...]  # For each input, whether it has these dimensions
    lead: OpenShape  # What the leading dimensions are
    workload: Workload  # The same of one row

    def of(self, rows: int) -> Workload | None:
        """Return the workload of a number of rows, with its kernel family; None if it has none."""
        made = replace(
            self.workload,
            inputs=tuple(
                replace(spec, shape=(rows, *spec.shape[1:])) if is_open else spec
                for spec, is_open in zip(self.workload.inputs, self.open_inputs, strict=True)
            ),
            operations=tuple(_of_rows(one, rows) for one in self.workload.operations),
            output=replace(self.workload.output, shape=(rows, *self.workload.output.shape[1:])),
        )
        found = classify(made)
        return None if isinstance(found, str) else found

    @property
    def are_apart(self) -> bool:
        """True where each row is computed for itself; else no part of the rows is.

        A matrix that is quantised by the range of all of its rows has levels of its own for every
        number of them: one call takes them all.
        """
        return all(op_key(one) != DYNAMIC_PRODUCT for one in self.workload.operations)

    @property
    def opened(self) -> Workload | None:
        """The product by one matrix in its own shapes with open axes, None for anything else.

        What is no product is as fast in blocks of rows: it has no weights to read again.
        """
        axes = tuple(at for at, extent in enumerate(self.lead) if isinstance(extent, str))
        given = self.region.workload
        if any(given.output.shape[at] < LEAST_OPEN for at in axes):
            return None
        made = replace(
            given,
            inputs=tuple(
                replace(spec, open=axes) if is_open else spec
                for spec, is_open in zip(given.inputs, self.open_inputs, strict=True)
            ),
            output=replace(given.output, open=axes),
        )
        if read_open_rows(made) is None or isinstance(extent_relations(made), str):
            return None
        return made

    @property
    def facts(self) -> object:
        """JSON that is the same for equal operators: a row, and which inputs are open."""
        ranks = [len(spec.shape) for spec in self.region.workload.inputs]
        return [self.open_rank, self.open_inputs, ranks, workload_to_json(self.workload)]

    def follows_from(self, extents: Mapping[str, int]) -> bool:
        """True if the number of rows is known where open extents are these."""
        return find_shape_at(self.lead, extents) is not None

    def rows(self, extents: Mapping[str, int]) -> int:
        """Return the number of rows where open dimensions have these extents."""
        return prod(shape_at(self.lead, extents))


def find_open_rows(
    graph: ModelGraph, region: Region, shapes: Mapping[str, OpenShape]
) -> OpenRows | str:
    """Return a region as a computation of rows, or why it is none.

    Args:
        graph: The model in one of its shapes.
        region: Of it.
        shapes: Of the tensors of the model, as far as they are proven; constants may be left out.
    """
    workload = region.workload
    result = shapes.get(region.output)
    if result is None or is_closed(result):
        return "no open extent of the result is proven"
    if any(spec.layout is not Layout.PLAIN for spec in (*workload.inputs, workload.output)):
        return "blocked layouts are for fixed shapes"
    rank = 1 + max(at for at, extent in enumerate(result) if isinstance(extent, str))
    lead = result[:rank]
    given = zip(region.inputs, workload.inputs, strict=True)
    places = [_is_open(spec, shapes.get(name), lead) for name, spec in given]
    if any(place is None for place in places):
        return "an input has other open extents than the result"
    is_open = tuple(place is True for place in places)
    made = (shapes.get(graph.nodes[index].output[0], ()) for index in region.nodes)
    keeping = {
        f"t{at}"
        for at, shape in enumerate(made)
        if shape[:rank] == lead and is_closed(shape[rank:])
    }
    folded = _one_row(workload, is_open, rank, keeping)
    if isinstance(folded, str):
        return folded
    found = OpenRows(region=region, open_rank=rank, open_inputs=is_open, lead=lead, workload=folded)
    if found.of(3) is None:
        return "no kernel family computes its rows"
    return found


def one_row(workload: Workload, rank: int) -> Workload | None:
    """Return the workload of one row of a workload of fixed shape; None where rows are mixed.

    Args:
        workload: Of fixed shape.
        rank: Leading dimensions of the result that together count the rows.
    """
    shapes, lead = shapes_of(workload), workload.output.shape[:rank]
    specs = (*workload.inputs, workload.output)
    if isinstance(shapes, str) or any(spec.layout is not Layout.PLAIN for spec in specs):
        return None
    is_open = [not spec.constant and spec.shape[:rank] == lead for spec in workload.inputs]
    keeping = {ref for ref, shape in shapes.items() if shape[:rank] == lead}
    found = _one_row(workload, is_open, rank, keeping)
    return None if isinstance(found, str) else found


def _one_row(
    workload: Workload, is_open: Sequence[bool], rank: int, keeping: Collection[str]
) -> Workload | str:
    """Return the workload of one row, or why rows are not apart; arguments as of `_folded`."""
    operations = _folded(workload, is_open, rank, keeping)
    if isinstance(operations, str):
        return operations
    inner = len(workload.output.shape) - rank
    folded = replace(
        workload,
        inputs=tuple(
            replace(spec, shape=(1, *spec.shape[rank:])) if open_ else _stripped(spec, inner)
            for spec, open_ in zip(workload.inputs, is_open, strict=True)
        ),
        operations=operations,
        output=replace(workload.output, shape=(1, *workload.output.shape[rank:])),
    )
    problem = infer_shapes(folded)
    return problem if isinstance(problem, str) else folded


def _is_open(spec: TensorSpec, shape: OpenShape | None, lead: OpenShape) -> bool | None:
    """Return True for an input with the open dimensions, False for one with none, else None."""
    if shape is None:
        return False if spec.constant else None
    if is_closed(shape):
        return False
    return True if shape[: len(lead)] == lead and is_closed(shape[len(lead) :]) else None


def _stripped(spec: TensorSpec, inner: int) -> TensorSpec:
    """Return a closed tensor without the leading extents of 1 that one row does not have."""
    shape = spec.shape
    while len(shape) > inner + 1 and shape[0] == 1:
        shape = shape[1:]
    return replace(spec, shape=shape)


def _folded(
    workload: Workload, is_open: Sequence[bool], rank: int, keeping: Collection[str]
) -> tuple[Operation, ...] | str:
    """Return the operations for rows, axes counted from the back; or which one mixes rows.

    Args:
        workload: In one of its shapes.
        is_open: For each input, whether it has rows.
        rank: Leading dimensions that count them.
        keeping: References with these dimensions in front and no other open ones, by their names.
    """
    shapes = shapes_of(workload)
    if isinstance(shapes, str):
        return shapes
    has_rows = {f"x{number}" for number, one in enumerate(is_open) if one}
    made = []
    for operation in workload.operations:
        read = [ref for ref in operation.inputs if ref in has_rows]
        if not read:
            return f"{operation.op_type} reads no rows"
        folded = _row_wise(operation, shapes, has_rows, rank)
        is_proven = op_key(operation) != RESHAPE or operation.output in keeping
        if folded is None or not is_proven:
            return f"{operation.op_type} does not compute each row for itself"
        made.append(folded)
        has_rows.add(operation.output)
    return tuple(made)


def _row_wise(
    operation: Operation, shapes: Mapping[str, Shape], has_rows: set[str], rank: int
) -> Operation | None:
    """Return an operation that computes rows apart with its axes from the back; None if it mixes.

    What has rows has them in the first `rank` dimensions, and nothing else reaches these. Levels of
    a matrix by its own range count as apart here; see `OpenRows.are_apart`.
    """
    facts, key = facts_of(operation), op_key(operation)
    if facts.per_channel:
        return None
    result = len(shapes[operation.output])
    factor = operation.inputs[RIGHT_MATRIX[key]] if key in RIGHT_MATRIX else ""
    given = (factor, operation.inputs[2]) if key == BLOCKWISE_PRODUCT else (factor,)
    for ref in operation.inputs:
        if ref and ref not in has_rows and ref not in given:
            reaching = len(shapes[ref]) - (result - rank)
            if reaching > 0 and any(extent != 1 for extent in shapes[ref][:reaching]):
                return None
    if facts.kind is OperatorKind.ELEMENTWISE:
        same = all(len(shapes[ref]) == result for ref in operation.inputs if ref in has_rows)
        return operation if same else None
    if facts.kind is OperatorKind.AXIS:
        return _with_axes(operation, len(shapes[operation.inputs[0]]), rank)
    if facts.kind is OperatorKind.MOVEMENT:
        moved = operation.inputs if operation.op_type == "Concat" else operation.inputs[:1]
        is_all = has_rows.issuperset(moved)
        return _moved(operation, shapes[moved[0]], rank) if is_all else None
    if key in RIGHT_MATRIX and operation.inputs[0] in has_rows:
        is_matrix = len(shapes[factor]) == 2 or key == BLOCKWISE_PRODUCT
        others = is_matrix and has_rows.isdisjoint(operation.inputs[RIGHT_MATRIX[key] :])
        turned = any(operation.attributes.get(name, 0) for name in _TURNED)
        return operation if others and not turned else None
    return None


def _with_axes(operation: Operation, rank: int, first: int) -> Operation | None:
    """Return an operator that walks axes, with these counted from the back.

    None where it walks one before `first`, or is not known here.

    Args:
        operation: The operator.
        rank: Of what it reads.
        first: Leading dimensions are those before it.
    """
    key, attributes = op_key(operation), dict(operation.attributes)
    if key in _LAST_AXES or key in _SOFTMAX:
        axis = softmax_axis(operation) if key in _SOFTMAX else normalized_axis(operation)
        reached = axis % rank
        if "axis" in attributes or _is_flattening(operation):
            attributes["axis"] = reached - rank
    elif key in _REDUCTIONS:
        axes = reduced_axes(operation, rank) or (0,)
        attributes["axes"] = tuple(axis - rank for axis in axes)
        reached = min(axes)
    else:
        return None
    return replace(operation, attributes=attributes) if reached >= first else None


def _is_flattening(operation: Operation) -> bool:
    """True for a Softmax over all dimensions from its axis on, by default the second."""
    return op_key(operation) in _SOFTMAX and operation.version < SOFTMAX_ONE_AXIS_SINCE


def _of_rows(operation: Operation, rows: int) -> Operation:
    """Return an operation of one row as that of a number of rows: a Reshape says how many."""
    if op_key(operation) != RESHAPE:
        return operation
    shape = (rows, *listed(operation, "shape")[1:])
    return replace(operation, attributes={**operation.attributes, "shape": shape})


def _moved(operation: Operation, shape: Shape, first: int) -> Operation | None:
    """Return an operator that moves elements within each row.

    None where it moves them to other rows, or is not known here.

    Args:
        operation: The operator.
        shape: Of what it reads.
        first: Leading dimensions are those before it; the result has one instead, of rows.
    """
    rank, attributes = len(shape), dict(operation.attributes)
    reached: Sequence[int]
    match operation.op_type:
        case "Concat" | "Gather":
            reached = [int(number(attributes, "axis", 0)) % rank]
            attributes["axis"] = reached[0] - rank
        case "DepthToSpace" | "SpaceToDepth":
            reached = range(1, rank)  # its attributes name no axis
        case "Pad":  # all its axes are written out: axes are an input of few versions
            around = padding(operation, rank)
            reached = [axis for axis, ends in enumerate(around) if any(ends)]
            before, behind = zip((0, 0), *around[first:], strict=True)
            attributes = {**attributes, "pads": (*before, *behind)}
            attributes.pop("axes", None)
        case "Reshape":  # of what is proven to keep its leading dimensions
            reached = ()
            attributes["shape"] = (1, *listed(operation, "shape")[first:])
        case "Slice":
            given = listed(operation, "axes") or range(len(listed(operation, "starts")))
            reached = [axis % rank for axis in given]
            attributes["axes"] = tuple(axis - rank for axis in reached)
        case "Transpose":
            perm = permutation(operation, rank)
            reached = [axis for at, axis in enumerate(perm) if axis != at]
            attributes["perm"] = (0, *(axis - first + 1 for axis in perm[first:]))
        case _:
            return None
    is_apart = min(reached, default=first) >= first
    return replace(operation, attributes=attributes) if is_apart else None
