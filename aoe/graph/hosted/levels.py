"""Weights as levels, in the forms ONNX Runtime's own operators read."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

BLOCK, BITS = 32, 4
"""Weights that share a scale, and bits of each of them."""
_LEAST_DISTANCE = np.finfo(np.float32).smallest_normal


def levels_in_columns(matrix: Array, most: int) -> tuple[Array, Array]:
    """Return levels (depth, columns) int8 and the distance of those of each column, float32.

    Args:
        matrix: (depth, columns) float32.
        most: Largest level, and the lowest one with its sign.
    """
    distances = _checked(np.abs(matrix).max(axis=0) / np.float32(most))
    return _levels_of(matrix, distances[None, :], -most, most).astype(np.int8), distances


def levels_in_blocks(matrix: Array) -> tuple[Array, Array]:
    """Return levels (columns, blocks, bytes) uint8, two to a byte, and a scale for each block.

    The largest value of a block, with its sign, is 8 levels below zero. A column with a
    block that holds a NaN or an infinity comes out as NaN. Source: G. Gerganov et al., ggml (Q4_0).

    Args:
        matrix: (depth, columns) float32.
    """
    depth, columns = matrix.shape
    blocks, lowest = -(-depth // BLOCK), -(1 << (BITS - 1))
    padded = np.zeros((blocks * BLOCK, columns), np.float32)
    padded[:depth] = matrix
    values = padded.reshape(blocks, BLOCK, columns).transpose(2, 0, 1)
    place = np.abs(values).argmax(axis=-1)[..., None]
    scales = _checked(np.take_along_axis(values, place, -1) / np.float32(lowest))
    levels = (_levels_of(values, scales, lowest, -lowest - 1) - lowest).astype(np.uint8)
    return levels[..., 0::2] | (levels[..., 1::2] << BITS), scales.reshape(-1)


def _checked(distances: Array) -> Array:
    """Return distances of levels: NaN for what holds no finite numbers, 0 for what is too small."""
    found = np.where(np.abs(distances) < _LEAST_DISTANCE, np.float32(0), distances)
    return np.where(np.isfinite(found), found, np.float32(np.nan)).astype(np.float32)


def _levels_of(values: Array, distances: Array, low: int, high: int) -> Array:
    """Return the nearest levels, half to even; 0 where there is no distance between them."""
    usable = np.isfinite(distances) & (distances != 0)
    quotients = values / np.where(usable, distances, np.float32(1))
    return np.where(usable, np.rint(np.clip(quotients, low, high)), np.float32(0))
