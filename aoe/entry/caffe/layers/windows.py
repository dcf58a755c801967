"""Layers of windows: Convolution, Deconvolution, Pooling.

Source: Caffe, base_conv_layer.cpp, deconv_layer.cpp, pooling_layer.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aoe.entry.caffe.scope import CaffeBlob, LayerScope
from aoe.entry.caffe.text import choice, flag, integer, positive, whole
from aoebank import plural


def convolution(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Convolve every bottom with the same weights; as many outputs as windows fit in (floor).

    A depthwise one (a layer of MobileNet's forks) has a group for each channel, whatever `group`
    says.
    """

    def extent(size: int, k: int, s: int, p: int, d: int) -> int:
        return (size + 2 * p - (d * (k - 1) + 1)) // s + 1

    return _convolved(layer, "Conv", extent)


def deconvolution(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Transpose a convolution, for every bottom with the same weights."""

    def extent(size: int, k: int, s: int, p: int, d: int) -> int:
        return s * (size - 1) + d * (k - 1) + 1 - 2 * p

    return _convolved(layer, "ConvTranspose", extent)


def _convolved(
    layer: LayerScope, op_type: str, extent: Callable[[int, int, int, int, int], int]
) -> tuple[CaffeBlob, ...]:
    """Add a convolution or a transposed one.

    Args:
        layer: Of either type.
        op_type: Of its nodes.
        extent: Of the result along an axis, from extent, kernel, stride, padding and dilation.
    """
    channels, spatial = _channels(layer)
    kernel, stride, pad, dilation = _windows(layer, len(spatial))
    outputs, group = _outputs(layer, channels)
    many, few = (outputs, channels) if op_type == "Conv" else (channels, outputs)
    constants = _parameters(layer, outputs, (many, few // group, *kernel))
    extents = [*map(extent, spatial, kernel, stride, pad, dilation)]
    return tuple(
        layer.add(
            op_type,
            (bottom, *constants),
            (bottom.shape[0], outputs, *extents),
            kernel_shape=kernel,
            strides=stride,
            pads=pad * 2,
            dilations=dilation,
            group=group,
        )
        for bottom in layer.bottoms
    )


def pooling(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Pool windows: as many as begin inside the image or its left padding (Caffe's ceil rule)."""
    images, channels, *spatial = layer.images()
    how = layer.param.one("pool", choice("MAX", "AVE", "STOCHASTIC"), "MAX")
    if how == "STOCHASTIC":
        raise layer.error(
            "stochastic pooling is for training", hint="pool: MAX or AVE for inference"
        )
    if len(layer.layer.tops) > 1:
        raise layer.error(
            "a second top with the places of the maxima cannot be made",
            got=layer.layer.tops[1],
            hint="leave it out, and the layers that read it",
        )
    if layer.param.one("global_pooling", flag, False):
        _refuse_windows(layer)
        op_type = "GlobalMaxPool" if how == "MAX" else "GlobalAveragePool"
        return (layer.add(op_type, layer.bottoms, (images, channels, 1, 1)),)
    kernel = _pair(layer, "kernel", 0)
    stride, pad = _pair(layer, "stride", 1), _pair(layer, "pad", 0)
    if not all(k > p for k, p in zip(kernel, pad, strict=True)):
        raise layer.error("kernel not larger than the padding", got=f"{kernel} and {pad}")
    counts = _window_counts(layer, spatial, kernel, stride, pad)
    ends = [  # what the windows reach over the end of the image
        max((n - 1) * s + k - p - extent, 0)
        for n, s, k, p, extent in zip(counts, stride, kernel, pad, spatial, strict=True)
    ]
    shape = (images, channels, *counts)
    if how == "MAX":
        return (
            layer.add(
                "MaxPool",
                layer.bottoms,
                shape,
                kernel_shape=kernel,
                strides=stride,
                pads=[*pad, *ends],
            ),
        )
    return (_average(layer, shape, kernel, stride, pad, ends),)


def _average(
    layer: LayerScope,
    shape: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    pad: Sequence[int],
    ends: Sequence[int],
) -> CaffeBlob:
    """Average windows; a window's divisor counts the padding at both ends, nothing beyond it."""
    bottom = layer.bottom
    if any(pad) and any(end > p for end, p in zip(ends, pad, strict=True)):
        padded = [extent + 2 * p for extent, p in zip(bottom.shape[2:], pad, strict=True)]
        amounts = layer.integers((0, 0, *pad, 0, 0, *pad), "pads")
        ends = [max(end - p, 0) for end, p in zip(ends, pad, strict=True)]
        bottom, pad = layer.add("Pad", (bottom, amounts), (*bottom.shape[:2], *padded)), (0, 0)
    return layer.add(
        "AveragePool",
        (bottom,),
        shape,
        kernel_shape=kernel,
        strides=stride,
        pads=[*pad, *ends],
        count_include_pad=int(any(pad)),
    )


def _window_counts(
    layer: LayerScope,
    spatial: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    pad: Sequence[int],
) -> list[int]:
    # BVLC calls the rule round_mode, forks ceil_mode
    floor = layer.param.one("round_mode", choice("CEIL", "FLOOR"), "CEIL") == "FLOOR"
    floor = not layer.param.one("ceil_mode", flag, not floor)
    counts = []
    for extent, k, s, p in zip(spatial, kernel, stride, pad, strict=True):
        room = extent + 2 * p - k
        count = (room // s if floor else -(-room // s)) + 1
        if any(pad) and (count - 1) * s >= extent + p:
            count -= 1
        # a window larger than the image is one, where the stride rounds it up
        if count < 1 or (count - 1) * s >= extent + p:
            raise layer.error(
                "windows outside the image",
                got=f"kernel {k}, stride {s}, padding {p} on {extent}",
            )
        counts.append(count)
    return counts


def _refuse_windows(layer: LayerScope) -> None:
    """Check that a global pooling says nothing about its window, as Caffe does."""
    names = ("kernel_size", "kernel_h", "kernel_w")
    given = [name for name in names if layer.param.one(name, whole, 0)]
    given += [n for n in ("pad", "pad_h", "pad_w") if layer.param.one(n, whole, 0)]
    given += [n for n in ("stride", "stride_h", "stride_w") if layer.param.one(n, whole, 1) != 1]
    if given:
        raise layer.error("global pooling with a window of its own", got=", ".join(given))


def _pair(layer: LayerScope, name: str, default: int) -> tuple[int, int]:
    """Return the extents of a window's `name` in height and width, given together or apart."""
    together = f"{name}_size" if name == "kernel" else name
    read = positive if name != "pad" else whole
    apart = f"{name}_h" in layer.param or f"{name}_w" in layer.param
    if apart and together in layer.param:
        raise layer.error(f"{together} given together with {name}_h or {name}_w")
    both = layer.param.one(together, read, default)
    pair = (layer.param.one(f"{name}_h", read, both), layer.param.one(f"{name}_w", read, both))
    if name == "kernel" and not all(pair):
        raise layer.error("no kernel_size, or only one of kernel_h and kernel_w")
    return pair


def _channels(layer: LayerScope) -> tuple[int, tuple[int, ...]]:
    """Return channels and spatial extents, which are the same for all bottoms."""
    shape = layer.same_shapes()
    axis = layer.axis(layer.param.one("axis", integer, 1))
    if axis != 1 or len(shape) < 3:
        raise layer.error(
            "only images along axis 1 can be convolved", got=f"axis {axis} of {list(shape)}"
        )
    return shape[1], shape[2:]


def _windows(layer: LayerScope, axes: int) -> tuple[list[int], list[int], list[int], list[int]]:
    """Return kernel, stride, pad and dilation for each spatial axis."""
    found = []
    for name, default in (("kernel", 0), ("stride", 1), ("pad", 0)):
        if f"{name}_h" in layer.param or f"{name}_w" in layer.param:
            if axes != 2:
                raise layer.error(f"{name}_h and {name}_w are for two axes", got=f"{axes} axes")
            found.append([*_pair(layer, name, default)])
        else:
            together = f"{name}_size" if name == "kernel" else name
            found.append(_per_axis(layer, together, axes, default))
    kernel, stride, pad = found
    if not all(kernel):
        raise layer.error("no kernel_size")
    return kernel, stride, pad, _per_axis(layer, "dilation", axes, 1)


def _per_axis(layer: LayerScope, name: str, axes: int, default: int) -> list[int]:
    read = whole if name == "pad" else positive
    values = layer.param.every(name, read) or (default,)
    if len(values) not in (1, axes):
        raise layer.error(name, got=plural(len(values), "value"), expected=f"1 or {axes}")
    return [*values] * (axes // len(values))


def _outputs(layer: LayerScope, channels: int) -> tuple[int, int]:
    """Return the numbers of output channels and groups."""
    outputs = layer.param.one("num_output", positive, 0)
    if layer.layer.type.startswith(("Depthwise", "ConvolutionDepthwise")):
        outputs, group = outputs or channels, channels
        layer.param.one("group", whole, group)
    else:
        group = layer.param.one("group", positive, 1)
    if not outputs:
        raise layer.error("no num_output")
    if channels % group or outputs % group:
        raise layer.error(
            "group does not divide the channels", got=group, expected=f"{channels} and {outputs}"
        )
    return outputs, group


def _parameters(
    layer: LayerScope, outputs: int, weight_shape: tuple[int, ...]
) -> tuple[CaffeBlob, ...]:
    """Return the weights of a convolution, and its bias if it has one."""
    has_bias = layer.param.one("bias_term", flag, True)
    arrays = layer.weights(weight_shape, *([(outputs,)] if has_bias else []))
    return tuple(
        layer.constant(array, name) for array, name in zip(arrays, ("weight", "bias"), strict=False)
    )
