"""Shapes of everything inside a workload, and what part each input plays."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from aoe.operators import Shape, facts_of, number
from aoe.workload import Workload


def infer_shapes(workload: Workload) -> Mapping[str, Shape] | str:
    """Return the shape of every reference of `workload`, or why they contradict each other."""
    shapes = shapes_of(workload)
    if not isinstance(shapes, str) and shapes[workload.result] != workload.output.shape:
        return f"the result has shape {shapes[workload.result]}, not {workload.output.shape}"
    return shapes


def shapes_of(workload: Workload) -> Mapping[str, Shape] | str:
    """Return the same without comparing the shape of the result."""
    shapes: dict[str, Shape] = {f"s{i}": () for i in range(len(workload.scalars))}
    shapes |= {f"x{i}": spec.shape for i, spec in enumerate(workload.inputs)}
    for operation in workload.operations:
        given = [shapes[ref] for ref in operation.inputs if ref]
        if not given:
            return f"{operation.op_type} has no input"
        found = facts_of(operation).shape(operation, given)
        if found is None:
            return f"{operation.op_type} cannot broadcast {' with '.join(map(str, given))}"
        shapes[operation.output] = found
    return shapes


def channel_axes(workload: Workload, shapes: Mapping[str, Shape]) -> Mapping[str, int] | str:
    """Return, for each per-channel parameter, the dimension of the result its values run over.

    Returns:
        Reference -> dimension counted from the back (negative), or why that is not possible.
    """
    axes: dict[str, int] = {}
    broadcast: set[str] = set()
    for operation in workload.operations:
        parameters = facts_of(operation).per_channel
        for position, ref in enumerate(operation.inputs):
            if not ref:
                continue
            one = facts_of(operation).signature.converts and prod(shapes[ref]) == 1
            if position not in parameters or one:
                broadcast.add(ref)
                continue
            data = shapes[operation.inputs[0]]
            if facts_of(operation).signature.converts:
                axis = int(number(operation.attributes, "axis", 1))
                axis = axis - len(data) if axis >= 0 else axis
                if not -len(data) <= axis < 0 or shapes[ref] != (data[axis],):
                    return f"{operation.op_type} of {data} has {shapes[ref]} as {ref}"
                if axes.setdefault(ref, axis) != axis:
                    return f"{ref} belongs to several axes"
                continue
            if len(data) < 2:
                return f"{operation.op_type} of rank {len(data)} has no channels"
            if not ref.startswith("x") or shapes[ref] not in ((data[1],), (data[1], 1, 1, 1)):
                return f"{operation.op_type} needs {ref} per channel, got shape {shapes[ref]}"
            axis = 1 - len(data)
            if axes.setdefault(ref, axis) != axis:
                return f"{ref} is per channel of tensors of different rank"
    both = [ref for ref in axes if ref in broadcast and shapes[ref] != (1,)]
    return f"{both[0]} is a channel parameter and broadcast too" if both else axes


def reduction_length(workload: Workload) -> int:
    """Return the number of elements summed up into one result, 1 for element-wise work.

    Raises:
        ValueError: the shapes of `workload` contradict each other.
    """
    shapes = infer_shapes(workload)
    if isinstance(shapes, str):
        raise ValueError(f"{workload.op_type}: {shapes}")
    return max(
        facts_of(operation).summed(operation, shapes[operation.inputs[0]])
        for operation in workload.operations
    )
