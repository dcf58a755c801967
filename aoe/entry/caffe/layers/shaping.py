"""Layers that change shapes, orders and sizes.

Source: Caffe, flatten_layer.cpp, reshape_layer.cpp, crop_layer.cpp, tile_layer.cpp,
reduction_layer.cpp, argmax_layer.cpp, softmax_layer.cpp; weiliu89/caffe (branch ssd),
permute_layer.cpp; DeepLab's interp_layer.cpp; farmingyard/ShuffleNet, shuffle_channel_layer.cpp.
"""

from __future__ import annotations

import math

from aoe.entry.caffe.scope import CaffeBlob, LayerScope
from aoe.entry.caffe.text import choice, flag, integer, number, positive, whole
from aoebank import plural


def softmax(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Make what lies along an axis add up to one."""
    axis = layer.axis(layer.param.one("axis", integer, 1))
    return (layer.add("Softmax", layer.bottoms, layer.bottom.shape, axis=axis),)


def flatten(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Join the axes from `axis` to `end_axis` to one."""
    shape = layer.bottom.shape
    first = layer.axis(layer.param.one("axis", integer, 1))
    last = layer.axis(layer.param.one("end_axis", integer, -1))
    if first > last:
        raise layer.error("axis behind end_axis", got=f"{first} and {last}")
    return _reshaped(
        layer, (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :])
    )


def reshape(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Give some axes another form; 0 keeps an extent, -1 is what is left."""
    shape = layer.bottom.shape
    extents = layer.param.message("shape").every("dim", integer)
    start = layer.param.one("axis", integer, 0)
    covered = layer.param.one("num_axes", integer, -1)
    first = start if start >= 0 else len(shape) + start + 1
    last = len(shape) if covered == -1 else first + covered
    if not 0 <= first <= last <= len(shape) or covered < -1:
        raise layer.error(
            "axis and num_axes", got=f"{start} and {covered}", expected=f"within {list(shape)}"
        )
    found = list(extents)
    for position, extent in enumerate(found):
        if extent == 0:
            if first + position >= len(shape):
                raise layer.error("no extent to keep for dim: 0", got=f"position {position}")
            found[position] = shape[first + position]
    rest = math.prod(extent for extent in found if extent != -1)
    inside = math.prod(shape[first:last])
    if any(extent < -1 for extent in found) or found.count(-1) > 1:
        raise layer.error("dim", got=list(extents[:8]), expected="extents, 0, and -1 once")
    if -1 in found and inside % rest == 0:
        found[found.index(-1)] = inside // rest
    if math.prod(found) != inside:
        raise layer.error(
            "another number of elements", got=list(extents[:8]), expected=plural(inside, "element")
        )
    return _reshaped(layer, (*shape[:first], *found, *shape[last:]))


def permute(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Put the axes into another order; those it does not name come last, in their order."""
    shape = layer.bottom.shape
    order = [layer.axis(axis) for axis in layer.param.every("order", whole)]
    order += [axis for axis in range(len(shape)) if axis not in order]
    if len(order) != len(shape):
        raise layer.error("order with an axis twice", got=order[:8])
    result = [shape[axis] for axis in order]
    return (layer.add("Transpose", layer.bottoms, result, perm=order),)


def crop(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Cut the axes from `axis` on to the size of a second bottom, from `offset` on."""
    shape, wanted = layer.bottom.shape, layer.bottoms[1].shape
    axis = layer.axis(layer.param.one("axis", integer, 2))
    offsets = layer.param.every("offset", whole) or (0,)
    if len(wanted) != len(shape):
        raise layer.error("bottoms of several ranks", got=f"{len(shape)} and {len(wanted)}")
    if len(offsets) not in (1, len(shape) - axis):
        raise layer.error(
            "offset", got=plural(len(offsets), "value"), expected=f"1 or {len(shape) - axis}"
        )
    starts = [*offsets] * ((len(shape) - axis) // len(offsets))
    ends = [start + extent for start, extent in zip(starts, wanted[axis:], strict=True)]
    if any(end > extent for end, extent in zip(ends, shape[axis:], strict=True)):
        raise layer.error("cut outside the bottom", got=ends, expected=list(shape[axis:]))
    named = (("first", starts), ("last", ends), ("axes", range(axis, len(shape))))
    bounds = [layer.integers([*values], name) for name, values in named]
    return (layer.add("Slice", (layer.bottom, *bounds), (*shape[:axis], *wanted[axis:])),)


def tile(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Repeat a blob along an axis."""
    shape = layer.bottom.shape
    axis = layer.axis(layer.param.one("axis", integer, 1))
    times = layer.param.one("tiles", positive, 0)
    if not times:
        raise layer.error("no tiles")
    repeats = [times if position == axis else 1 for position in range(len(shape))]
    result = [extent * count for extent, count in zip(shape, repeats, strict=True)]
    return (layer.add("Tile", (layer.bottom, layer.integers(repeats, "repeats")), result),)


def reduction(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Reduce the axes from `axis` on to their sum, mean, or sum of absolutes or squares."""
    shape = layer.bottom.shape
    axis = layer.axis(layer.param.one("axis", integer, 0))
    how = layer.param.one("operation", choice("", "SUM", "ASUM", "SUMSQ", "MEAN"), "SUM")
    factor = layer.param.one("coeff", number, 1.0)
    axes, result = [*range(axis, len(shape))], shape[:axis]
    if how == "SUM":
        inputs = (layer.bottom, layer.integers(axes, "axes"))
        value = layer.add("ReduceSum", inputs, result, keepdims=0)
    else:
        op_type = {"ASUM": "ReduceL1", "SUMSQ": "ReduceSumSquare", "MEAN": "ReduceMean"}[how]
        value = layer.add(op_type, layer.bottoms, result, axes=axes, keepdims=0)
    if factor != 1:
        value = layer.add("Mul", (value, layer.numbers(factor, "coeff")), result)
    return (value,)


def arg_max(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Find the `top_k` largest, as numbers of their places or as values; of equal ones the last.

    Without an axis they are those of each image; the top has the bottom's axes then, three at
    least.
    """
    shape = layer.bottom.shape
    with_values = layer.param.one("out_max_val", flag, False)
    count = layer.param.one("top_k", positive, 1)
    has_axis = "axis" in layer.param
    bottom = layer.bottom
    axis = layer.axis(layer.param.one("axis", integer, 1))
    if not has_axis:
        shape, axis = (shape[0], 1, math.prod(shape[1:])), 2
        bottom = layer.add("Reshape", (bottom, layer.integers(shape, "extents")), shape)
    if count > shape[axis]:
        raise layer.error("top_k", got=count, expected=f"at most {shape[axis]}")
    result = (*shape[:axis], count, *shape[axis + 1 :])
    # Caffe sorts pairs of value and place downwards, ONNX finds the first of equals: so backwards
    ends = [layer.integers((value,), "bound") for value in (-1, -(2**31), axis, -1)]
    backwards = layer.add("Slice", (bottom, *ends), shape)
    many = layer.integers((count,), "top_k")
    values = layer.add("TopK", (backwards, many), result, outputs=2, axis=axis)
    if with_values and has_axis:
        return (values,)
    counted = CaffeBlob(name=values.name.removesuffix(":0") + ":1", shape=result)
    last = layer.integers((shape[axis] - 1,), "last")
    numbers = layer.add("Cast", (layer.add("Sub", (last, counted), result),), result, to=1)
    if has_axis:
        return (numbers,)
    if with_values:
        result = (result[0], 2, count)
        numbers = layer.add("Concat", (numbers, values), result, axis=1)
    if layer.bottom.rank > len(result):
        result += (1,) * (layer.bottom.rank - len(result))
        numbers = layer.add("Reshape", (numbers, layer.integers(result, "extents")), result)
    return (numbers,)


def interp(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Resize images bilinearly, corners on corners, after cutting negative padding off."""
    images, channels, *spatial = layer.images()
    first, last = (layer.param.one(name, integer, 0) for name in ("pad_beg", "pad_end"))
    if first > 0 or last > 0:
        raise layer.error("padding", got=f"{first} and {last}", expected="negative, to cut off")
    bottom = layer.bottom
    if first or last:
        inner = [extent + first + last for extent in spatial]
        bounds = ([-first] * 2, [extent + last for extent in spatial], [2, 3])
        constants = [layer.integers(values, "bound") for values in bounds]
        bottom = layer.add("Slice", (bottom, *constants), (images, channels, *inner))
        spatial = inner
    result = (images, channels, *_interpolated(layer, spatial))
    layer.checked(result)
    sizes = layer.integers(result, "sizes")
    nothing = CaffeBlob(name="", shape=())
    return (
        layer.add(
            "Resize",
            (bottom, nothing, nothing, sizes),
            result,
            mode="linear",
            coordinate_transformation_mode="align_corners",
        ),
    )


def _interpolated(layer: LayerScope, spatial: list[int]) -> list[int]:
    height, width = (layer.param.one(name, whole, 0) for name in ("height", "width"))
    shrink, zoom = (layer.param.one(f"{name}_factor", whole, 0) for name in ("shrink", "zoom"))
    if height and width and not (shrink or zoom):
        return [height, width]
    if not (shrink or zoom) or height or width:
        raise layer.error(
            "its size",
            got=f"height {height}, width {width}, shrink_factor {shrink}, zoom_factor {zoom}",
            expected="height and width, or factors",
        )
    shrunk = [(extent - 1) // (shrink or 1) + 1 for extent in spatial]
    return [extent + (extent - 1) * ((zoom or 1) - 1) for extent in shrunk]


def shuffle_channel(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Deal the channels of `group` groups out in turn."""
    images, channels, height, width = shape = layer.images()
    group = layer.param.one("group", positive, 1)
    if channels % group:
        raise layer.error("group does not divide the channels", got=group, expected=channels)
    apart = (images, group, channels // group, height, width)
    value = layer.add("Reshape", (layer.bottom, layer.integers(apart, "apart")), apart)
    dealt = (images, channels // group, group, height, width)
    value = layer.add("Transpose", (value,), dealt, perm=[0, 2, 1, 3, 4])
    return (layer.add("Reshape", (value, layer.integers(shape, "extents")), shape),)


def _reshaped(layer: LayerScope, shape: tuple[int, ...]) -> tuple[CaffeBlob, ...]:
    layer.checked(shape)
    return (layer.add("Reshape", (layer.bottom, layer.integers(shape, "extents")), shape),)
