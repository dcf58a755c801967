"""Layers of single-shot detectors: prior boxes first, and last the boxes that are found.

Source: weiliu89/caffe (branch ssd), prior_box_layer.cpp, detection_output_layer.cpp and
bbox_util.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aoe.entry.caffe.scope import CaffeBlob, LayerScope
from aoe.entry.caffe.text import choice, flag, integer, number, positive
from aoe.entry.caffe.weights import Array

_MOST_PRIORS = 2**20
"""SSD 512 has 24,564 boxes; a file that asks for more than this is damaged."""


def prior_box(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Make the boxes a detector begins with: they depend on shapes alone, so they are constants."""
    *_, height, width = layer.images()
    if layer.bottoms[1].rank != 4:
        raise layer.error("an image with another number of axes", got=layer.bottoms[1].rank)
    image_h, image_w = _image_size(layer)
    step_h, step_w = _steps(layer, image_h / height, image_w / width)
    sizes = np.asarray(_box_sizes(layer), np.float32)  # box, (width, height)
    if height * width * len(sizes) > _MOST_PRIORS:
        raise layer.error("more boxes than a detector has", got=height * width * len(sizes))
    offset = layer.param.one("offset", number, 0.5)
    places = np.stack(
        np.meshgrid(
            (np.arange(width, dtype=np.float32) + np.float32(offset)) * np.float32(step_w),
            (np.arange(height, dtype=np.float32) + np.float32(offset)) * np.float32(step_h),
        ),
        axis=-1,
    )
    middles = places[:, :, None, :]
    image = np.asarray((image_w, image_h), np.float32)
    corners = np.concatenate(
        ((middles - sizes / 2) / image, (middles + sizes / 2) / image), axis=-1
    )
    if layer.param.one("clip", flag, False):
        corners = np.clip(corners, 0, 1)
    values = np.stack((corners.reshape(-1), np.tile(_variances(layer), corners.size // 4)))
    return (layer.constant(values[None].astype(np.float32), "priors"),)


def _image_size(layer: LayerScope) -> tuple[int, int]:
    param = layer.param
    if "img_size" in param and ("img_h" in param or "img_w" in param):
        raise layer.error("img_size given together with img_h or img_w")
    given = param.one("img_size", positive, 0)
    size = (param.one("img_h", positive, given), param.one("img_w", positive, given))
    height, width = size if all(size) else layer.bottoms[1].shape[2:]
    return height, width


def _steps(layer: LayerScope, height: float, width: float) -> tuple[float, float]:
    """Return the distance of two places: as given, else so that they fill the image."""
    given = layer.param.one("step", number, 0.0)
    steps = (layer.param.one("step_h", number, given), layer.param.one("step_w", number, given))
    if any(step < 0 for step in steps):
        raise layer.error("step", got=steps, expected="above 0")
    return steps if all(steps) else (height, width)


def _box_sizes(layer: LayerScope) -> list[tuple[float, float]]:
    """Return width and height of the boxes around one place, in Caffe's order.

    Sizes are cut to integers as the layer does, though its fields are floats.
    """
    smallest = [int(size) for size in layer.param.every("min_size", number)]
    largest = [int(size) for size in layer.param.every("max_size", number)]
    if not smallest or min(smallest) < 1:
        raise layer.error("min_size", got=smallest, expected="one or more, at least 1")
    if largest and (
        len(largest) != len(smallest)
        or any(most <= least for least, most in zip(smallest, largest, strict=True))
    ):
        raise layer.error("max_size", got=largest, expected=f"one above each of {smallest}")
    sizes = []
    for position, least in enumerate(smallest):
        sizes.append((float(least), float(least)))
        if largest:
            sizes.append((math.sqrt(least * largest[position]),) * 2)
        for ratio in _ratios(layer):
            sizes.append((least * math.sqrt(ratio), least / math.sqrt(ratio)))
    return sizes


def _ratios(layer: LayerScope) -> list[float]:
    """Return the aspect ratios beside 1, each followed by its inverse if boxes are flipped."""
    flip = layer.param.one("flip", flag, True)
    known = [1.0]
    for ratio in layer.param.every("aspect_ratio", number):
        if ratio <= 0:
            raise layer.error("aspect_ratio", got=ratio, expected="above 0")
        if all(abs(ratio - other) >= 1e-6 for other in known):
            known += [ratio, 1 / ratio] if flip else [ratio]
    return [ratio for ratio in known if abs(ratio - 1) >= 1e-6]


def _variances(layer: LayerScope) -> Array:
    given = layer.param.every("variance", number) or (0.1,)
    if len(given) not in (1, 4) or min(given) <= 0:
        raise layer.error("variance", got=list(given[:8]), expected="1 or 4, above 0")
    return np.asarray(given * (4 // len(given)), np.float32)


_LEAST = -3.4028235e38  # of float32
_ROW = 7  # image, label, confidence, left, top, right, bottom


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """Numbers of images, prior boxes and classes, and the classes that are not background."""

    images: int
    priors: int
    classes: int
    kept: tuple[int, ...]


def detection_output(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Return the boxes that remain as rows, ordered by image, label and falling confidence.

    Without any, each image has one row of -1 behind its number, as in Caffe.
    """
    sizes = _sizes(layer)
    boxes = _decoded(layer, sizes)
    scores = _scores(layer, sizes)
    picked = _picked(layer, sizes, _never_turned(layer, sizes, boxes), scores)
    rows = _rows(layer, boxes, scores, picked, sizes)
    kept = layer.param.one("keep_top_k", integer, -1)
    if kept > -1:
        images = range(sizes.images)
        best = [_best(layer, rows, kept, image, alone=len(images) == 1) for image in images]
        rows = _open(layer, "Concat", best, (1, _ROW), axis=0)
    rows = _with_fakes(layer, rows, sizes.images)
    axes = layer.integers((0, 1), "axes")
    return (layer.add("Unsqueeze", (rows, axes), (1, 1, 1, _ROW), open_axis=2),)


def _sizes(layer: LayerScope) -> _Sizes:
    """Return the sizes; three bottoms have to agree about them."""
    locations, confidences, priors = (blob.shape for blob in layer.bottoms)
    classes = layer.param.one("num_classes", positive, 0)
    background = layer.param.one("background_label_id", integer, 0)
    kept = tuple(label for label in range(min(classes, 2**16)) if label != background)
    if not kept or classes > 2**16:
        raise layer.error("num_classes", got=classes, expected="classes beside the background")
    if not layer.param.one("share_location", flag, True):
        raise layer.error("boxes of their own for each class (share_location: false)")
    images, count = locations[0], priors[2] // 4 if len(priors) == 3 else 0
    wanted = ((images, count * 4), (images, count * classes), (1, 2, count * 4))
    found = (_flat(locations), _flat(confidences), priors)
    if found != wanted or not count:
        raise layer.error(
            "shapes of its bottoms",
            got=", ".join(str(list(shape)) for shape in found),
            expected=f"[n, 4 p], [n, {classes} p], [1, 2, 4 p]",
        )
    return _Sizes(images=images, priors=count, classes=classes, kept=kept)


def _flat(shape: Sequence[int]) -> tuple[int, ...]:
    return (shape[0], int(np.prod(shape[1:], dtype=object))) if shape else ()


def _decoded(layer: LayerScope, sizes: _Sizes) -> CaffeBlob:
    """Return the boxes (images, priors, 4) the locations mean, as corners."""
    code = _code(layer)
    count, shape = sizes.priors, (sizes.images, sizes.priors, 4)
    location = layer.add("Reshape", (layer.bottom, layer.integers(shape, "boxes")), shape)
    both = layer.integers((2, count, 4), "priors")
    both_blob = layer.add("Reshape", (layer.bottoms[2], both), (2, count, 4))
    prior, variance = (
        layer.add("Gather", (both_blob, layer.integers(place, "which")), (count, 4), axis=0)
        for place in (0, 1)
    )
    if not layer.param.one("variance_encoded_in_target", flag, False):
        location = layer.add("Mul", (location, variance), shape)
    if code == "CORNER":
        return layer.add("Add", (location, prior), shape)
    least, most = _halves(layer, prior, (count, 2))
    size = layer.add("Sub", (most, least), (count, 2))
    if code == "CORNER_SIZE":
        sides = layer.add("Concat", (size, size), (count, 4), axis=1)
        return layer.add("Add", (layer.add("Mul", (location, sides), shape), prior), shape)
    half = (sizes.images, count, 2)
    move, growth = _halves(layer, location, half)
    two = layer.numbers(2.0, "two")
    middle = layer.add("Div", (layer.add("Add", (least, most), (count, 2)), two), (count, 2))
    middle = layer.add("Add", (layer.add("Mul", (move, size), half), middle), half)
    grown = layer.add("Mul", (layer.add("Exp", (growth,), half), size), half)
    reach = layer.add("Div", (grown, two), half)
    corners = [layer.add(op_type, (middle, reach), half) for op_type in ("Sub", "Add")]
    return layer.add("Concat", corners, shape, axis=2)


def _code(layer: LayerScope) -> str:
    return layer.param.one(
        "code_type", choice("", "CORNER", "CENTER_SIZE", "CORNER_SIZE"), "CORNER"
    )


def _never_turned(layer: LayerScope, sizes: _Sizes, boxes: CaffeBlob) -> CaffeBlob:
    """Return the boxes for the overlaps: one that ends before it begins is empty.

    Caffe finds no overlap with such a box, ONNX swaps its corners. Centers with sizes make none.
    """
    if _code(layer) == "CENTER_SIZE":
        return boxes
    begin, end = _halves(layer, boxes, (sizes.images, sizes.priors, 2))
    end = layer.add("Max", (begin, end), end.shape)
    return layer.add("Concat", (begin, end), boxes.shape, axis=2)


def _halves(
    layer: LayerScope, blob: CaffeBlob, shape: tuple[int, ...]
) -> tuple[CaffeBlob, CaffeBlob]:
    """Return the first two and the last two of the four numbers of each box."""
    first, second = (
        layer.add(
            "Slice",
            (blob, *(layer.integers((bound,), "bound") for bound in (start, start + 2, -1))),
            shape,
        )
        for start in (0, 2)
    )
    return first, second


def _scores(layer: LayerScope, sizes: _Sizes) -> CaffeBlob:
    """Return the confidences (images, classes that are not background, priors)."""
    shape = (sizes.images, sizes.priors, sizes.classes)
    scores = layer.add("Reshape", (layer.bottoms[1], layer.integers(shape, "scores")), shape)
    turned = (sizes.images, sizes.classes, sizes.priors)
    scores = layer.add("Transpose", (scores,), turned, perm=[0, 2, 1])
    if len(sizes.kept) == sizes.classes:
        return scores
    shape = (sizes.images, len(sizes.kept), sizes.priors)
    return layer.add("Gather", (scores, layer.integers(sizes.kept, "labels")), shape, axis=1)


def _picked(layer: LayerScope, sizes: _Sizes, boxes: CaffeBlob, scores: CaffeBlob) -> CaffeBlob:
    """Return the boxes each class keeps, as rows of image, class and box."""
    param = layer.param.message("nms_param")
    overlap = param.one("nms_threshold", number, 0.3)
    if not 0 <= overlap <= 1:
        raise layer.error("nms_threshold", got=overlap, expected="0 to 1")
    if param.one("eta", number, 1.0) != 1:
        raise layer.error("a threshold that shrinks (nms_param.eta)", expected="1")
    most = param.one("top_k", integer, -1)
    least = layer.param.one("confidence_threshold", number, _LEAST)
    if -1 < most < sizes.priors:  # only the best of a class are looked at
        shape = (*scores.shape[:2], max(most, 1))
        many = layer.integers((max(most, 1),), "top_k")
        best = layer.add("TopK", (scores, many), shape, outputs=2, axis=2)
        places = CaffeBlob(name=best.name.removesuffix(":0") + ":1", shape=shape)
        nothing = layer.add(
            "Expand",
            (layer.numbers(_LEAST, "least"), layer.integers(scores.shape, "shape")),
            scores.shape,
        )
        scores = layer.add("ScatterElements", (nothing, places, best), scores.shape, axis=2)
    constants = (
        layer.integers((sizes.priors if most else 0,), "most"),
        layer.numbers((overlap,), "overlap"),
        layer.numbers((least,), "confidence"),
    )
    return _open(layer, "NonMaxSuppression", (boxes, scores, *constants), (1, 3))


def _rows(
    layer: LayerScope, boxes: CaffeBlob, scores: CaffeBlob, picked: CaffeBlob, sizes: _Sizes
) -> CaffeBlob:
    """Return the boxes that were kept as rows: image, label, confidence, corners."""
    image_and_box = layer.integers((0, 2), "image_and_box")
    where = _open(layer, "Gather", (picked, image_and_box), (1, 2), axis=1)
    corners = _open(layer, "GatherND", (boxes, where), (1, 4))
    one = layer.integers((1,), "one")
    score = _open(layer, "GatherND", (scores, picked), (1,))
    score = _open(layer, "Unsqueeze", (score, one), (1, 1))
    image, kind = (
        _open(layer, "Gather", (picked, layer.integers((column,), "column")), (1, 1), axis=1)
        for column in (0, 1)
    )
    label = _open(layer, "Gather", (layer.integers(sizes.kept, "labels"), kind), (1, 1), axis=0)
    columns = [_open(layer, "Cast", (blob,), (1, 1), to=1) for blob in (image, label)]
    return _open(layer, "Concat", (*columns, score, corners), (1, _ROW), axis=1)


def _best(layer: LayerScope, rows: CaffeBlob, most: int, image: int, *, alone: bool) -> CaffeBlob:
    """Return the rows of an image, the surest `most` of them, in the order they have."""

    def column(place: int) -> CaffeBlob:
        return _open(layer, "Gather", (rows, layer.integers(place, "column")), (1,), axis=1)

    if not alone:
        own = _open(layer, "Equal", (column(0), layer.numbers(float(image), "image")), (1,))
        rows = _open(layer, "Compress", (rows, own), (1, _ROW), axis=0)
    many = _open(layer, "Min", (_count(layer, rows), layer.integers((most,), "most")), (1,))
    surest = _open(layer, "TopK", (column(2), many), (1,), outputs=2, axis=0)
    places = CaffeBlob(name=surest.name.removesuffix(":0") + ":1", shape=(1,), open_axis=0)
    in_order = _open(layer, "TopK", (places, many), (1,), outputs=2, axis=0, largest=0)
    return _open(layer, "Gather", (rows, in_order), (1, _ROW), axis=0)


def _with_fakes(layer: LayerScope, rows: CaffeBlob, images: int) -> CaffeBlob:
    """Return the rows, or one made-up row for each image where there is none."""
    fakes = np.full((images, _ROW), -1, np.float32)
    fakes[:, 0] = np.arange(images)
    zero = layer.integers((0,), "zero")
    is_empty = _open(layer, "Equal", (_count(layer, rows), zero), (1,))
    end = _open(layer, "Cast", (is_empty,), (1,), to=7)
    end = _open(layer, "Mul", (end, layer.integers((images,), "images")), (1,))
    shown = _open(layer, "Slice", (layer.constant(fakes, "none"), zero, end, zero), (1, _ROW))
    return _open(layer, "Concat", (rows, shown), (1, _ROW), axis=0)


def _count(layer: LayerScope, rows: CaffeBlob) -> CaffeBlob:
    return layer.add("Shape", (rows,), (1,), start=0, end=1)


def _open(
    layer: LayerScope,
    op_type: str,
    inputs: Sequence[CaffeBlob],
    shape: tuple[int, ...],
    **attributes: int,
) -> CaffeBlob:
    """Add a node whose result has as many rows as the data says."""
    return layer.add(op_type, inputs, shape, open_axis=0, **attributes)
