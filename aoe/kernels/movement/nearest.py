"""Nearest-neighbour resizing by whole factors, where a place is divided and nothing is rounded."""

from __future__ import annotations

from typing import Any

import numpy as np

from aoe.kernels.movement.access_maps import Index, NoPlaceError, Variables
from aoe.operators import Shape
from aoe.operators.movement import resize_scales, resized
from aoe.workload import Operation

Elements = np.ndarray[Any, np.dtype[np.int64]]


def nearest_places(operation: Operation, index: Index, shape: Shape, variables: Variables) -> Index:
    """Return the indices a resize takes its elements from.

    Raises:
        NoPlaceError: the factor along a dimension is not whole, or elements are not simply
            repeated so often.
        CutLoop: see `Variables.divided`.
    """
    if operation.attributes.get("mode", "nearest") != "nearest":
        raise NoPlaceError("interpolates")
    made, scales = resized(operation, [shape]), resize_scales(operation, shape)
    places = []
    for at, place in enumerate(index):
        factor = made[at] // shape[at]
        if shape[at] * factor != made[at]:
            raise NoPlaceError(f"resizes {shape[at]} to {made[at]}, no whole factor")
        if shape[at] > 1 and factor > 1:
            taken = nearest_elements(operation, shape[at], made[at], scales[at])
            if not np.array_equal(taken, np.arange(made[at]) // factor):
                raise NoPlaceError("elements are not repeated equally often")
        places.append(variables.divided(place, factor)[0])
    return tuple(places)


def nearest_elements(operation: Operation, extent: int, made: int, scale: float) -> Elements:
    """Return the element each place along a dimension takes, in float32 as ONNX Runtime does."""
    attributes = operation.attributes
    how = str(attributes.get("coordinate_transformation_mode", "half_pixel"))
    x, one = np.arange(made, dtype=np.float32), np.float32(scale)
    if how == "asymmetric":
        at = x / one
    elif how == "align_corners":
        at = x * np.float32(extent - 1) / np.float32(max(made - 1, 1))
    elif how == "half_pixel" or (how == "pytorch_half_pixel" and made > 1):
        at = (x + np.float32(0.5)) / one - np.float32(0.5)
    else:
        raise NoPlaceError(f"coordinates: {how}")
    default = "floor" if operation.domain else "round_prefer_floor"
    rounding = str(attributes.get("nearest_mode", default))
    rounded = {
        "round_prefer_floor": np.ceil(at - np.float32(0.5)),
        "round_prefer_ceil": np.floor(at + np.float32(0.5)),
        "floor": np.floor(at),
        "ceil": np.ceil(at),
    }
    if rounding not in rounded:
        raise NoPlaceError(f"rounds {rounding}")
    taken: Elements = np.clip(rounded[rounding], 0, extent - 1).astype(np.int64)
    return taken
