"""What Caffe's layers compute, in NumPy and from their definitions; slow and plain.

Sources: the layers' pages of the Caffe documentation and the forward functions of BVLC/caffe and
weiliu89/caffe (branch ssd). Nothing here knows ONNX or the reader.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np

from support.caffe.model_files import Array, Param, TestLayer, TestNet

Layer = Callable[[list[Array], Param, list[Array], int], list[Array]]


def run_reference(net: TestNet, feed: Mapping[str, Array]) -> dict[str, Array]:
    """Return all blobs of a network as they are at its end."""
    blobs = {name: array.astype(np.float64) for name, array in feed.items()}
    for layer in net.layers:
        results = run_layer(layer, [blobs[name] for name in layer.bottoms])
        blobs |= dict(zip(layer.tops, results, strict=True))
    return blobs


def run_layer(layer: TestLayer, bottoms: list[Array]) -> list[Array]:
    """Return the tops of one layer in float64."""
    weights = [blob.astype(np.float64) for blob in layer.blobs]
    with np.errstate(all="ignore"):
        return REFERENCE[layer.type](bottoms, layer.param, weights, len(layer.tops))


def _each(value: Any, count: int) -> list[int]:
    values = list(value) if isinstance(value, list | tuple) else [value]
    return values * count if len(values) == 1 else values


def _geometry(param: Param, axes: int) -> list[list[int]]:
    found = []
    for name, default in (("kernel_size", None), ("stride", 1), ("pad", 0), ("dilation", 1)):
        short = name.removesuffix("_size")
        if f"{short}_h" in param:
            found.append([param[f"{short}_h"], param[f"{short}_w"]])
        else:
            found.append(_each(param.get(name, default), axes))
    return found


def _convolution(
    bottoms: list[Array], param: Param, weights: list[Array], _: int, *, own: bool = False
) -> list[Array]:
    tops = []
    for x in bottoms:
        axes = x.ndim - 2
        kernel, stride, pad, dilation = _geometry(param, axes)
        group = x.shape[1] if own else param.get("group", 1)
        w = weights[0]
        padded = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in pad)])
        out = [
            (n - (d * (k - 1) + 1)) // s + 1
            for n, k, s, d in zip(padded.shape[2:], kernel, stride, dilation, strict=True)
        ]
        y = np.zeros((x.shape[0], w.shape[0], *out))
        ins, outs = x.shape[1] // group, w.shape[0] // group
        for place in product(*map(range, kernel)):
            window = tuple(
                slice(at * d, at * d + (n - 1) * s + 1, s)
                for at, d, n, s in zip(place, dilation, out, stride, strict=True)
            )
            for g in range(group):
                seen = padded[(slice(None), slice(g * ins, (g + 1) * ins), *window)]
                part = w[(slice(g * outs, (g + 1) * outs), slice(None), *place)]
                y[:, g * outs : (g + 1) * outs] += np.moveaxis(
                    np.tensordot(part, seen, (1, 1)), 0, 1
                )
        if len(weights) > 1:
            y += weights[1].reshape(1, -1, *[1] * axes)
        tops.append(y)
    return tops


def _deconvolution(bottoms: list[Array], param: Param, weights: list[Array], _: int) -> list[Array]:
    tops = []
    for x in bottoms:
        axes = x.ndim - 2
        kernel, stride, pad, dilation = _geometry(param, axes)
        group, w = param.get("group", 1), weights[0]
        ins, outs = x.shape[1] // group, w.shape[1]
        full = [
            s * (n - 1) + d * (k - 1) + 1
            for n, k, s, d in zip(x.shape[2:], kernel, stride, dilation, strict=True)
        ]
        y = np.zeros((x.shape[0], outs * group, *full))
        for place in product(*map(range, kernel)):
            window = tuple(
                slice(at * d, at * d + (n - 1) * s + 1, s)
                for at, d, n, s in zip(place, dilation, x.shape[2:], stride, strict=True)
            )
            for g in range(group):
                seen, part = x[:, g * ins : (g + 1) * ins], w[g * ins : (g + 1) * ins]
                y[(slice(None), slice(g * outs, (g + 1) * outs), *window)] += np.einsum(
                    "nc...,co->no...", seen, part[(slice(None), slice(None), *place)]
                )
        y = y[
            (slice(None), slice(None), *(slice(p, n - p) for p, n in zip(pad, full, strict=True)))
        ]
        if len(weights) > 1:
            y = y + weights[1].reshape(1, -1, *[1] * axes)
        tops.append(y)
    return tops


def _pooling(bottoms: list[Array], param: Param, _: list[Array], __: int) -> list[Array]:
    x = bottoms[0]
    height, width = x.shape[2:]
    average = param.get("pool", "MAX") == "AVE"
    if param.get("global_pooling"):
        whole = x.mean((2, 3), keepdims=True) if average else x.max((2, 3), keepdims=True)
        return [whole]
    (kh, kw), (sh, sw), (ph, pw), _dilation = _geometry(param, 2)
    rounded = math.floor if param.get("round_mode") == "FLOOR" else math.ceil
    rows, columns = (
        rounded((n + 2 * p - k) / s) + 1
        for n, p, k, s in ((height, ph, kh, sh), (width, pw, kw, sw))
    )
    if ph or pw:
        rows -= (rows - 1) * sh >= height + ph
        columns -= (columns - 1) * sw >= width + pw
    y = np.zeros((*x.shape[:2], rows, columns))
    for row, column in product(range(rows), range(columns)):
        top, left = row * sh - ph, column * sw - pw
        bottom, right = min(top + kh, height + ph), min(left + kw, width + pw)
        size = (bottom - top) * (right - left)
        window = x[:, :, max(top, 0) : min(bottom, height), max(left, 0) : min(right, width)]
        y[:, :, row, column] = window.sum((2, 3)) / size if average else window.max((2, 3))
    return [y]


def _inner_product(bottoms: list[Array], param: Param, weights: list[Array], _: int) -> list[Array]:
    x, axis = bottoms[0], param.get("axis", 1) % bottoms[0].ndim
    matrix = weights[0].T if param.get("transpose") else weights[0]
    rows = x.reshape(math.prod(x.shape[:axis]), -1)
    y = np.stack([matrix @ row for row in rows])
    if len(weights) > 1:
        y = y + weights[1]
    return [y.reshape(*x.shape[:axis], -1)]


def _lrn(bottoms: list[Array], param: Param, _: list[Array], __: int) -> list[Array]:
    x, half = bottoms[0], param.get("local_size", 5) // 2
    size, alpha, beta = 2 * half + 1, param.get("alpha", 1.0), param.get("beta", 0.75)
    y = np.empty_like(x)
    if param.get("norm_region", "ACROSS_CHANNELS") == "ACROSS_CHANNELS":
        for c in range(x.shape[1]):
            near = x[:, max(c - half, 0) : c + half + 1]
            scale = param.get("k", 1.0) + alpha / size * (near**2).sum(1)
            y[:, c] = x[:, c] * scale**-beta
        return [y]
    for row, column in product(range(x.shape[2]), range(x.shape[3])):
        near = x[
            ..., max(row - half, 0) : row + half + 1, max(column - half, 0) : column + half + 1
        ]
        scale = 1 + alpha * (near**2).sum((2, 3)) / size**2
        y[..., row, column] = x[..., row, column] * scale**-beta
    return [y]


def _batch_norm(bottoms: list[Array], param: Param, weights: list[Array], _: int) -> list[Array]:
    x = bottoms[0]
    mean, variance, factor = weights
    scale = 0 if factor[0] == 0 else 1 / factor[0]
    across = (-1, *[1] * (x.ndim - 2))
    deviation = np.sqrt((variance * scale).reshape(across) + param.get("eps", 1e-5))
    return [(x - (mean * scale).reshape(across)) / deviation]


def _aligned(x: Array, operand: Array, axis: int) -> Array:
    start = axis % x.ndim if operand.ndim else 0
    return operand.reshape(operand.shape + (1,) * (x.ndim - start - operand.ndim))


def _scale(bottoms: list[Array], param: Param, weights: list[Array], _: int) -> list[Array]:
    operands = [*bottoms[1:], *weights]
    axis = param.get("axis", 1)
    y = bottoms[0] * _aligned(bottoms[0], operands[0], axis)
    return [y + _aligned(y, operands[1], axis) if param.get("bias_term") else y]


def _bias(bottoms: list[Array], param: Param, weights: list[Array], _: int) -> list[Array]:
    return [bottoms[0] + _aligned(bottoms[0], [*bottoms[1:], *weights][0], param.get("axis", 1))]


def _eltwise(bottoms: list[Array], param: Param, _: list[Array], __: int) -> list[Array]:
    how = param.get("operation", "SUM")
    if how == "SUM":
        factors = param.get("coeff", [1.0] * len(bottoms))
        return [sum(f * x for f, x in zip(factors, bottoms, strict=True))]
    over = {"PROD": np.prod, "MAX": np.max, "MIN": np.min}[str(how)]
    return [over(np.stack(bottoms), axis=0)]


def _slice(bottoms: list[Array], param: Param, _: list[Array], tops: int) -> list[Array]:
    axis = param.get("axis", param.get("slice_dim", 1))
    points = _each(param["slice_point"], 1) if "slice_point" in param else tops
    return list(np.split(bottoms[0], points, axis=axis))


def _softmax(bottoms: list[Array], param: Param, _: list[Array], __: int) -> list[Array]:
    axis = param.get("axis", 1)
    e = np.exp(bottoms[0] - bottoms[0].max(axis, keepdims=True))
    return [e / e.sum(axis, keepdims=True)]


def _flatten(bottoms: list[Array], param: Param, _: list[Array], __: int) -> list[Array]:
    x = bottoms[0]
    first, last = param.get("axis", 1) % x.ndim, param.get("end_axis", -1) % x.ndim
    return [x.reshape(*x.shape[:first], -1, *x.shape[last + 1 :])]


def _reshape(bottoms: list[Array], param: Param, _: list[Array], __: int) -> list[Array]:
    x = bottoms[0]
    first = param.get("axis", 0)
    first = first if first >= 0 else x.ndim + first + 1
    count = param.get("num_axes", -1)
    last = x.ndim if count == -1 else first + count
    dims = [
        x.shape[first + at] if dim == 0 else dim for at, dim in enumerate(param["shape"]["dim"])
    ]
    return [x.reshape(*x.shape[:first], *dims, *x.shape[last:])]


def _permute(bottoms: list[Array], param: Param, _: list[Array], __: int) -> list[Array]:
    order = list(param.get("order", []))
    order += [axis for axis in range(bottoms[0].ndim) if axis not in order]
    return [bottoms[0].transpose(order)]


def _crop(bottoms: list[Array], param: Param, _: list[Array], __: int) -> list[Array]:
    x, like = bottoms
    axis = param.get("axis", 2) % x.ndim
    offsets = _each(param.get("offset", 0), x.ndim - axis)
    cuts = [slice(None)] * axis
    cuts += [slice(o, o + n) for o, n in zip(offsets, like.shape[axis:], strict=True)]
    return [x[tuple(cuts)]]


def _normalize(bottoms: list[Array], param: Param, weights: list[Array], _: int) -> list[Array]:
    y = np.empty_like(bottoms[0])
    for number, image in enumerate(bottoms[0]):
        axes = None if param.get("across_spatial", True) else 0
        y[number] = image / np.sqrt((image**2).sum(axes) + param.get("eps", 1e-10))
    return [y * weights[0].reshape(-1, 1, 1)]


def _prior_box(bottoms: list[Array], param: Param, _: list[Array], __: int) -> list[Array]:
    (height, width), (image_h, image_w) = bottoms[0].shape[2:], bottoms[1].shape[2:]
    image_h, image_w = param.get("img_h", image_h), param.get("img_w", image_w)
    step_h = param.get("step_h", param.get("step", image_h / height))
    step_w = param.get("step_w", param.get("step", image_w / width))
    boxes: list[float] = []
    for row, column in product(range(height), range(width)):
        x, y = ((at + param.get("offset", 0.5)) * s for at, s in ((column, step_w), (row, step_h)))
        for number, least in enumerate(_each(param["min_size"], 1)):
            most = _each(param.get("max_size", []), 1)
            sizes = [(least, least)]
            sizes += [(math.sqrt(least * most[number]),) * 2] if most else []
            for ratio in _each(param.get("aspect_ratio", []), 1):
                for r in [ratio, 1 / ratio] if param.get("flip", True) else [ratio]:
                    sizes.append((least * math.sqrt(r), least / math.sqrt(r)))
            for w, h in sizes:
                boxes += [(x - w / 2) / image_w, (y - h / 2) / image_h]
                boxes += [(x + w / 2) / image_w, (y + h / 2) / image_h]
    found = np.asarray(boxes)
    if param.get("clip"):
        found = np.clip(found, 0, 1)
    variance = _each(param.get("variance", 0.1), 4)
    return [np.stack([found, np.tile(variance, len(found) // 4)])[None]]


def _detection_output(bottoms: list[Array], param: Param, _: list[Array], __: int) -> list[Array]:
    locations, confidences, priors = bottoms
    corners, variances = priors.reshape(2, -1, 4)
    nms = param.get("nms_param", {})
    rows = []
    for image, (flat, sure) in enumerate(zip(locations, confidences, strict=True)):
        scores = sure.reshape(len(corners), param["num_classes"])
        moves = flat.reshape(-1, 4)
        if not param.get("variance_encoded_in_target"):
            moves = moves * variances
        code = str(param.get("code_type", "CORNER"))
        boxes = [_box(code, c, m) for c, m in zip(corners, moves, strict=True)]
        found = []
        for label in range(param["num_classes"]):
            if label == param.get("background_label_id", 0):
                continue
            order = sorted(range(len(boxes)), key=lambda n: (-scores[n, label], n))
            order = [n for n in order if scores[n, label] > param.get("confidence_threshold", -9e9)]
            kept: list[int] = []
            for n in order[: nms.get("top_k", len(order))]:
                if all(_overlap(boxes[n], boxes[k]) <= nms.get("nms_threshold", 0.3) for k in kept):
                    kept.append(n)
            found += [(label, scores[n, label], boxes[n]) for n in kept]
        best = sorted(found, key=lambda one: -one[1])[: param.get("keep_top_k", len(found))]
        least = best[-1][1] if best else 0
        rows += [[image, label, s, *box] for label, s, box in found if best and s >= least]
    fakes = [[image, *[-1] * 6] for image in range(len(locations))]
    return [np.asarray(rows or fakes)[None, None]]


def _box(code: str, prior: Array, move: Array) -> list[float]:
    left, top, right, bottom = prior
    width, height = right - left, bottom - top
    if code == "CORNER":
        return [*(prior + move)]
    if code == "CORNER_SIZE":
        return [*(prior + move * [width, height, width, height])]
    x, y = (left + right) / 2 + move[0] * width, (top + bottom) / 2 + move[1] * height
    w, h = math.exp(move[2]) * width, math.exp(move[3]) * height
    return [x - w / 2, y - h / 2, x + w / 2, y + h / 2]


def _overlap(one: list[float], other: list[float]) -> float:
    """Return the Jaccard overlap of two boxes."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    shared = max(width, 0) * max(height, 0)
    if not shared:  # of a box that ends before it begins, too
        return 0.0
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return shared / (sum(areas) - shared)


def _reduction(bottoms: list[Array], param: Param, _: list[Array], __: int) -> list[Array]:
    x, axis = bottoms[0], param.get("axis", 0) % bottoms[0].ndim
    rows = x.reshape(*x.shape[:axis], -1)
    over: dict[str, Callable[[Array], Array]] = {
        "SUM": lambda v: v.sum(-1),
        "ASUM": lambda v: np.abs(v).sum(-1),
        "SUMSQ": lambda v: (v * v).sum(-1),
        "MEAN": lambda v: v.mean(-1),
    }
    return [np.asarray(over[param.get("operation", "SUM")](rows) * param.get("coeff", 1.0))]


def _arg_max(bottoms: list[Array], param: Param, _: list[Array], __: int) -> list[Array]:
    x, count = bottoms[0], param.get("top_k", 1)
    has_axis = "axis" in param
    axis = param["axis"] % x.ndim if has_axis else 1
    rows = np.moveaxis(x, axis, -1) if has_axis else x.reshape(len(x), -1)
    found = np.empty((2, *rows.shape[:-1], count))
    for at in np.ndindex(rows.shape[:-1]):
        pairs = sorted(((v, n) for n, v in enumerate(rows[at])), reverse=True)[:count]
        found[(1, *at)], found[(0, *at)] = [v for v, _ in pairs], [n for _, n in pairs]
    if has_axis:
        return [np.moveaxis(found[int(param.get("out_max_val", False))], -1, axis)]
    both = np.moveaxis(found if param.get("out_max_val") else found[:1], 0, 1)
    return [both.reshape(*both.shape, *(1,) * (x.ndim - 3))]


def _tile(bottoms: list[Array], param: Param, _: list[Array], __: int) -> list[Array]:
    return [np.concatenate([bottoms[0]] * param["tiles"], axis=param.get("axis", 1))]


def _interp(bottoms: list[Array], param: Param, _: list[Array], __: int) -> list[Array]:
    first, last = -param.get("pad_beg", 0), param.get("pad_end", 0) or None
    x = bottoms[0][:, :, first:last, first:last]
    sizes = []
    for n, name in zip(x.shape[2:], ("height", "width"), strict=True):
        if name in param:
            sizes.append(param[name])
        else:
            shrunk = (n - 1) // param.get("shrink_factor", 1) + 1
            sizes.append(shrunk + (shrunk - 1) * (param.get("zoom_factor", 1) - 1))
    y = np.empty((*x.shape[:2], *sizes))
    for row, column in product(*map(range, sizes)):
        places = []
        for at, out, n in ((row, sizes[0], x.shape[2]), (column, sizes[1], x.shape[3])):
            exact = at * (n - 1) / (out - 1) if out > 1 else 0.0
            low = int(exact)
            places.append((low, min(low + 1, n - 1), exact - low))
        (h, h1, a), (w, w1, b) = places
        above = (1 - b) * x[..., h, w] + b * x[..., h, w1]
        below = (1 - b) * x[..., h1, w] + b * x[..., h1, w1]
        y[..., row, column] = (1 - a) * above + a * below
    return [y]


def _shuffle(bottoms: list[Array], param: Param, _: list[Array], __: int) -> list[Array]:
    x, group = bottoms[0], param["group"]
    each = x.shape[1] // group
    return [x[:, [c % group * each + c // group for c in range(x.shape[1])]]]


def _mvn(bottoms: list[Array], param: Param, _: list[Array], __: int) -> list[Array]:
    y = bottoms[0].copy()
    for image in y:
        for part in [image] if param.get("across_channels") else image:
            part -= part.mean()
            if param.get("normalize_variance", True):
                part /= np.sqrt((part**2).mean()) + param.get("eps", 1e-9)
    return [y]


def _prelu(bottoms: list[Array], _: Param, weights: list[Array], __: int) -> list[Array]:
    x = bottoms[0]
    slope = weights[0].reshape(-1, *[1] * (x.ndim - 2))
    return [np.where(x > 0, x, slope * x)]


def _concat(bottoms: list[Array], param: Param, _: list[Array], __: int) -> list[Array]:
    return [np.concatenate(bottoms, axis=param.get("axis", param.get("concat_dim", 1)))]


def _axpy(bottoms: list[Array], _: Param, __: list[Array], ___: int) -> list[Array]:
    a, x, y = bottoms
    return [a.reshape(*x.shape[:2], 1, 1) * x + y]


def _element(function: Callable[[Array, Param], Array]) -> Layer:
    return lambda bottoms, param, _weights, _tops: [function(bottoms[0], param)]


def _inner(x: Array, param: Param) -> Array:
    return param.get("shift", 0.0) + param.get("scale", 1.0) * x


def _base(param: Param) -> float:
    return math.e if param.get("base", -1) == -1 else param["base"]


REFERENCE: dict[str, Layer] = {
    "AbsVal": _element(lambda x, _: np.abs(x)),
    "ArgMax": _arg_max,
    "Axpy": _axpy,
    "BNLL": _element(lambda x, _: np.log(1 + np.exp(x))),
    "BatchNorm": _batch_norm,
    "Bias": _bias,
    "Clip": _element(lambda x, p: np.clip(x, p["min"], p["max"])),
    "Concat": _concat,
    "Convolution": _convolution,
    "ConvolutionDepthwise": lambda b, p, w, n: _convolution(b, p, w, n, own=True),
    "Crop": _crop,
    "Deconvolution": _deconvolution,
    "DepthwiseConvolution": lambda b, p, w, n: _convolution(b, p, w, n, own=True),
    "DetectionOutput": _detection_output,
    "Dropout": _element(lambda x, _: x),
    "ELU": _element(lambda x, p: np.where(x > 0, x, p.get("alpha", 1.0) * (np.exp(x) - 1))),
    "Eltwise": _eltwise,
    "Exp": _element(lambda x, p: _base(p) ** _inner(x, p)),
    "Flatten": _flatten,
    "InnerProduct": _inner_product,
    "Interp": _interp,
    "LRN": _lrn,
    "Log": _element(lambda x, p: np.log(_inner(x, p)) / math.log(_base(p))),
    "MVN": _mvn,
    "Normalize": _normalize,
    "PReLU": _prelu,
    "Permute": _permute,
    "Pooling": _pooling,
    "Power": _element(lambda x, p: _inner(x, p) ** p.get("power", 1.0)),
    "PriorBox": _prior_box,
    "ReLU": _element(lambda x, p: np.where(x > 0, x, p.get("negative_slope", 0.0) * x)),
    "ReLU6": _element(lambda x, _: np.clip(x, 0, 6)),
    "Reduction": _reduction,
    "Reshape": _reshape,
    "Scale": _scale,
    "ShuffleChannel": _shuffle,
    "Sigmoid": _element(lambda x, _: 1 / (1 + np.exp(-x))),
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": lambda b, _p, _w, tops: [b[0]] * tops,
    "Swish": _element(lambda x, p: x / (1 + np.exp(-p.get("beta", 1.0) * x))),
    "TanH": _element(lambda x, _: np.tanh(x)),
    "Threshold": _element(lambda x, p: (x > p.get("threshold", 0.0)).astype(float)),
    "Tile": _tile,
}
