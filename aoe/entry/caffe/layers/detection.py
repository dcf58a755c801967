"""Layers of single-shot detectors. Source: weiliu89/caffe (branch ssd), prior_box_layer.cpp."""

from __future__ import annotations

import math

import numpy as np

from aoe.entry.caffe.scope import CaffeBlob, LayerScope
from aoe.entry.caffe.text import flag, number, positive
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
