"""Which results of a workload a NaN among its inputs may reach.

There ONNX Runtime may make a number of a NaN, as releases and even places of one operator do
(`Max`, `Clip`), so a kernel may make either; but a NaN that ONNX Runtime keeps, it keeps too. What
only copies values leaves no such choice: all of its results are compared. docs/kernels.md has a
table of what each operator makes of a NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aoe.operators import OperatorKind, facts_of
from aoe.workload import Operation, Workload

Array = np.ndarray[Any, Any]

_COPYING = frozenset({OperatorKind.MOVEMENT, OperatorKind.REORDER})
_CHOOSING = frozenset({"max", "min"})
"""Reductions of ScatterElements that choose between values, which may be NaN."""


def reached_by_nan(workload: Workload, feed: Mapping[str, Array]) -> Array:
    """Return a mask of results that may depend on a NaN; all of them if that is unknown.

    Args:
        workload: What is computed.
        feed: Its variable inputs `x0`, `x1`, ...

    Returns:
        Booleans of the result's shape.
    """
    shape = workload.output.shape
    if all(map(_keeps_nan, workload.operations)):
        return np.zeros(shape, bool)
    masks = {name: np.isnan(array) for name, array in feed.items()}
    first = workload.operations[0]
    if facts_of(first).indices and all(name in feed for name in first.inputs):
        masks = _through_indices(first, masks, [feed[name] for name in first.inputs])
    facts = [facts_of(operation) for operation in workload.operations]
    per_channel = any(one.per_channel for one in facts)
    # results of the image's own extents are no element-wise ones: each has a window of elements
    has_windows = any(one.kind is OperatorKind.WINDOW for one in facts)
    reached = np.zeros(shape, bool)
    for nan in masks.values():
        if has_windows:
            reached |= nan.any()
        elif nan.shape == shape:
            reached |= nan
        elif workload.blocked or per_channel:  # not aligned with the last dims
            reached |= nan.any()
        else:
            reached |= _broadcast(nan, shape)
    return reached


def _keeps_nan(operation: Operation) -> bool:
    """Return True if every NaN comes out of an operator where its value would."""
    facts = facts_of(operation)
    if facts.indices:
        return operation.attributes.get("reduction", "none") not in _CHOOSING
    return facts.kind in _COPYING


def _through_indices(
    operation: Operation, masks: Mapping[str, Array], inputs: Sequence[Array]
) -> dict[str, Array]:
    """Return masks in which that of the operator's result stands for those of its inputs."""
    data, indices = np.isnan(inputs[0]), inputs[1]
    axis = int(str(operation.attributes.get("axis", 0)))
    places: list[Array] = list(np.indices(indices.shape, sparse=True))
    places[axis] = indices % data.shape[axis]
    if len(inputs) > 2:
        np.logical_or.at(data, tuple(places), np.isnan(inputs[2]))
    else:
        data = data[tuple(places)]
    rest = {name: nan for name, nan in masks.items() if name not in operation.inputs}
    return {**rest, operation.output: data}


def _broadcast(nan: Array, shape: tuple[int, ...]) -> Array:
    """Return which results a NaN reaches: elements, rows of a matrix product, or else all."""
    for part in (nan, nan.any(axis=-1, keepdims=True)):
        try:
            return np.broadcast_to(part, shape)
        except ValueError:
            continue
    return np.full(shape, nan.any())
