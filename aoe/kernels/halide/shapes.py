"""Shapes of everything inside a workload, and what part each input plays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aoe.workload import NCHWC_DOMAIN, Operation, Workload

REORDERS = frozenset({(NCHWC_DOMAIN, "ReorderInput"), (NCHWC_DOMAIN, "ReorderOutput")})
"""Operators that change the layout and no value."""

SHAPE_KEEPING = REORDERS | frozenset(
    {
        (NCHWC_DOMAIN, "Conv"),  # only depthwise 1x1 is ever accepted
        ("", "BatchNormalization"),
        ("", "Dropout"),
        ("", "LRN"),
        ("", "LogSoftmax"),
        ("", "Softmax"),
    }
)
"""Operators whose result has the shape of their first input, whatever the others have."""

PER_CHANNEL = {
    ("", "BatchNormalization"): range(1, 5),
    (NCHWC_DOMAIN, "Conv"): range(1, 3),
}
"""Inputs that hold one value per channel of the first input and do not broadcast."""

Shape = tuple[int, ...]


def op_key(operation: Operation) -> tuple[str, str]:
    """Return (domain, op_type), by which operators are looked up."""
    return operation.domain, operation.op_type


def find_broadcast(shapes: Sequence[Shape]) -> Shape | None:
    """Return the shape of a multidirectional broadcast, None if the shapes do not fit.

    >>> find_broadcast([(64, 1, 1), (1, 64, 7, 7), ()])
    (1, 64, 7, 7)
    """
    rank = max((len(shape) for shape in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for at, extent in enumerate(shape, start=rank - len(shape)):
            if extent != 1 and result[at] not in (1, extent):
                return None
            result[at] = max(result[at], extent)
    return tuple(result)


def infer_shapes(workload: Workload) -> Mapping[str, Shape] | str:
    """Return the shape of every reference of `workload`, or why they contradict each other."""
    shapes: dict[str, Shape] = {f"s{i}": () for i in range(len(workload.scalars))}
    shapes |= {f"x{i}": spec.shape for i, spec in enumerate(workload.inputs)}
    for operation in workload.operations:
        given = [shapes[ref] for ref in operation.inputs if ref]
        if not given:
            return f"{operation.op_type} has no input"
        if op_key(operation) in SHAPE_KEEPING:
            shapes[operation.output] = given[0]
            continue
        found = find_broadcast(given)
        if found is None:
            return f"{operation.op_type} cannot broadcast {' with '.join(map(str, given))}"
        shapes[operation.output] = found
    if shapes[workload.result] != workload.output.shape:
        return f"the result has shape {shapes[workload.result]}, not {workload.output.shape}"
    return shapes


def channel_axes(workload: Workload, shapes: Mapping[str, Shape]) -> Mapping[str, int] | str:
    """Return, for each per-channel parameter, the dimension of the result its values run over.

    Returns:
        Reference -> dimension counted from the back (negative), or why that is not possible.
    """
    axes: dict[str, int] = {}
    broadcast: set[str] = set()
    for operation in workload.operations:
        parameters = PER_CHANNEL.get(op_key(operation), range(0))
        for position, ref in enumerate(operation.inputs):
            if not ref:
                continue
            if position not in parameters:
                broadcast.add(ref)
                continue
            data = shapes[operation.inputs[0]]
            if len(data) < 2:
                return f"{operation.op_type} of rank {len(data)} has no channels"
            if not ref.startswith("x") or shapes[ref] not in ((data[1],), (data[1], 1, 1, 1)):
                return f"{operation.op_type} needs {ref} per channel, got shape {shapes[ref]}"
            axis = 1 - len(data)
            if axes.setdefault(ref, axis) != axis:
                return f"{ref} is per channel of tensors of different rank"
    both = [ref for ref in axes if ref in broadcast and shapes[ref] != (1,)]
    return f"{both[0]} is a channel parameter and broadcast too" if both else axes
