"""Means, powers and resizings by other operators that compute the same numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx

from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.editing import Rewriting, refuse
from aoe.graph.rewrites.matching import (
    Shape,
    attribute,
    integers_of,
    is_op,
    maker,
    nodes_of,
    number_of,
    shape_of,
    value_of,
)
from aoe.graph.rewrites.protocol import Finding, RewriteRule

# ---- Means over whole channels: a GlobalAveragePool stays in ONNX Runtime's blocked layout ----

_MEAN = "mean-to-global-pool"


def find_means(graph: ModelGraph) -> Iterator[Finding]:
    """Yield ReduceMeans over everything behind the channels."""
    for index, node in nodes_of(graph, "ReduceMean"):
        shape = shape_of(graph, node.input[0])
        axes = integers_of(graph, node, "axes", 1)
        if shape is None or axes is None:
            yield refuse(graph, _MEAN, [index], "its shape or its axes are not known")
            continue
        if len(shape) < 3 or sorted(at % len(shape) for at in axes) != list(range(2, len(shape))):
            yield refuse(graph, _MEAN, [index], f"it goes over the axes {axes} of {len(shape)}")
            continue
        rewriting = Rewriting(graph, _MEAN, [index])
        keeps = attribute(node, "keepdims", 1)
        made = rewriting.add("GlobalAveragePool", [node.input[0]], node.output[0] if keeps else "")
        if not keeps:
            rewriting.reshape(made, shape[:2], node.output[0])
        yield rewriting.finish()


MEAN_RULE = RewriteRule(
    name=_MEAN,
    what="ReduceMean over height and width becomes GlobalAveragePool",
    needs="float32; the axes are all those behind the channels",
    tolerance=1e-5,
    find=find_means,
)


# ---- Powers with a small constant exponent, as products and roots ----

_POWER = "power-as-product"
_NOT_NEGATIVE = ("Abs", "Exp", "Relu", "Sigmoid", "Softplus", "ReduceL2", "ReduceSumSquare")


def find_powers(graph: ModelGraph) -> Iterator[Finding]:
    """Yield powers with an exponent there is a cheaper way for."""
    for index, node in nodes_of(graph, "Pow"):
        exponent = number_of(graph, node.input[1])
        x, output = node.input[0], node.output[0]
        if exponent is None or shape_of(graph, x) is None:
            continue
        if shape_of(graph, x) != shape_of(graph, output):
            yield refuse(graph, _POWER, [index], "the exponent broadcasts")
            continue
        rewriting = Rewriting(graph, _POWER, [index])
        if exponent == 2:
            rewriting.add("Mul", [x, x], output)
        elif exponent == 3:
            rewriting.add("Mul", [rewriting.add("Mul", [x, x]), x], output)
        elif exponent == 4:
            square = rewriting.add("Mul", [x, x])
            rewriting.add("Mul", [square, square], output)
        elif exponent == -1:
            rewriting.add("Reciprocal", [x], output)
        elif abs(exponent) == 0.5:
            if not _is_not_negative(graph, x):
                why = f"{x} may be minus infinity or -0, whose root is another one"
                yield refuse(graph, _POWER, [index], why)
                continue
            if exponent > 0:
                rewriting.add("Sqrt", [x], output)
            else:
                rewriting.add("Reciprocal", [rewriting.add("Sqrt", [x])], output)
        else:
            yield refuse(graph, _POWER, [index], f"the exponent is {exponent:g}")
            continue
        yield rewriting.finish()


def _is_not_negative(graph: ModelGraph, name: str) -> bool:
    node = maker(graph, name)
    if node is None:
        return False
    if is_op(node, *_NOT_NEGATIVE):
        return True
    if is_op(node, "Mul"):
        return bool(node.input[0] == node.input[1])
    if is_op(node, "Pow"):
        return number_of(graph, node.input[1]) in (2, 4)
    if is_op(node, "ReduceMean", "ReduceSum", "ReduceMax"):
        return _is_not_negative(graph, node.input[0])
    if is_op(node, "Add"):
        numbers = [number_of(graph, read) for read in node.input]
        return all(
            number >= 0 if number is not None else _is_not_negative(graph, read)
            for number, read in zip(numbers, node.input, strict=True)
        )
    return False


POWER_RULE = RewriteRule(
    name=_POWER,
    what="Pow by 2, 3, 4, -1, 1/2 or -1/2 becomes Mul, Reciprocal or Sqrt",
    needs="float32; for roots what is never negative",
    tolerance=1e-6,
    find=find_powers,
)


# ---- Enlarging by whole numbers to the nearest: cheaper forms that give the same elements ----

_PLAIN = "resize-to-blocked-form"
_VOLUME = "resize-volume-as-images"
_CENTRED = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel")
_ROUNDED = ("round_prefer_floor", "round_prefer_ceil")


def find_resizes(graph: ModelGraph) -> Iterator[Finding]:
    """Yield enlargements of images that ONNX Runtime would take out of the blocked layout."""
    for index, node, factors in _enlarged(graph):
        if isinstance(factors, str):
            yield refuse(graph, _PLAIN, [index], factors)
            continue
        form = [attribute(node, name, default) for name, default in _FORM.items()]
        if len(factors) != 4 or factors[:2] != (1, 1) or form == ["asymmetric", "floor"]:
            continue
        rewriting = Rewriting(graph, _PLAIN, [index])
        scales = rewriting.constant(np.array(factors, np.float32), "scales")
        _add_resize(rewriting, node.input[0], scales, node.output[0])
        yield rewriting.finish()


def find_volumes(graph: ModelGraph) -> Iterator[Finding]:
    """Yield enlargements of volumes."""
    for index, node, factors in _enlarged(graph):
        shape = shape_of(graph, node.input[0])
        if shape is None or len(shape) != 5:
            continue
        if isinstance(factors, str) or factors[:2] != (1, 1):
            why = factors if isinstance(factors, str) else "it enlarges the channels"
            yield refuse(graph, _VOLUME, [index], why)
            continue
        rewriting = Rewriting(graph, _VOLUME, [index])
        batch, channels, depth, height, width = shape
        deep, high, wide = factors[2:]
        made = _as_images(
            rewriting, node.input[0], (batch, channels * depth, height, width), (1, 1, high, wide)
        )
        height, width = height * high, width * wide
        made = _as_images(
            rewriting, made, (batch, channels, depth, height * width), (1, 1, deep, 1)
        )
        whole = (batch, channels, depth * deep, height, width)
        rewriting.reshape(made, whole, node.output[0])
        yield rewriting.finish()


_FORM = {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_floor"}


def _enlarged(
    graph: ModelGraph,
) -> Iterator[tuple[int, onnx.NodeProto, Shape | str]]:
    """Yield enlargements to the nearest with their factors, or why no factors are whole numbers."""
    for index, node in nodes_of(graph, "Resize"):
        before, after = shape_of(graph, node.input[0]), shape_of(graph, node.output[0])
        if attribute(node, "mode", "nearest") != "nearest" or before is None or after is None:
            continue
        if attribute(node, "axes", ()) or 0 in before:
            yield index, node, "it names its axes"
            continue
        exact = [big % small == 0 for small, big in zip(before, after, strict=True)]
        factors = tuple(big // small for small, big in zip(before, after, strict=True))
        coordinates, rounding = (attribute(node, name, _FORM[name]) for name in _FORM)
        scales = value_of(graph, node.input[2]) if len(node.input) > 2 and node.input[2] else None
        if scales is not None and scales.size and scales.tolist() != [float(f) for f in factors]:
            yield index, node, f"the scales are {scales.tolist()}"
        elif not all(exact):
            yield index, node, f"{before} to {after} are no whole factors"
        elif (coordinates == "asymmetric" and rounding == "floor") or (
            coordinates in _CENTRED and rounding in _ROUNDED
        ):
            yield index, node, factors
        else:
            yield index, node, f"{coordinates} with {rounding} takes other elements"


def _as_images(
    rewriting: Rewriting, name: str, shape: tuple[int, ...], factors: tuple[int, ...]
) -> str:
    if all(factor == 1 for factor in factors):
        return name
    images = rewriting.reshape(name, shape, what="images")
    return _add_resize(
        rewriting, images, rewriting.constant(np.array(factors, np.float32), "scales")
    )


def _add_resize(rewriting: Rewriting, name: str, scales: str, output: str = "") -> str:
    return rewriting.add(
        "Resize",
        [name, "", scales],
        output,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


PLAIN_RESIZE_RULE = RewriteRule(
    name=_PLAIN,
    what="Resize to the nearest by whole numbers is written as the blocked layout has it",
    needs="opset 11; four dimensions, known shapes, whole factors of height and width",
    find=find_resizes,
)
VOLUME_RESIZE_RULE = RewriteRule(
    name=_VOLUME,
    what="Resize of volumes to the nearest by whole numbers becomes two Resizes of images",
    needs="opset 11; known shapes, whole factors of depth, height and width",
    find=find_volumes,
)
