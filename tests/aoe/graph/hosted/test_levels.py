"""Weights as levels: the nearest ones, of any magnitude, and of special values."""

from __future__ import annotations

import numpy as np

from aoe.graph.hosted.levels import BLOCK, levels_in_blocks, levels_in_columns


def test_columns_have_levels_of_their_own_magnitude() -> None:
    matrix = np.array([[1.0, -4e-3], [-0.5, 2e-3], [0.25, 0.0]], np.float32)
    levels, distances = levels_in_columns(matrix, 127)
    assert levels.tolist() == [[127, -127], [-64, 64], [32, 0]]
    np.testing.assert_allclose(distances, [1 / 127, 4e-3 / 127], rtol=1e-6)


def test_column_of_zeros_or_of_too_small_numbers_has_level_zero() -> None:
    matrix = np.array([[0.0, 1e-39, 1.0], [0.0, -1e-40, 1.0]], np.float32)
    levels, distances = levels_in_columns(matrix, 127)
    assert not levels[:, :2].any() and not distances[:2].any()
    assert distances[2] > 0


def test_column_with_a_special_value_is_nan_and_no_other() -> None:
    matrix = np.ones((40, 4), np.float32)
    matrix[3, 1], matrix[35, 2] = np.nan, -np.inf
    _, distances = levels_in_columns(matrix, 63)
    assert np.isnan(distances).tolist() == [False, True, True, False]
    _, scales = levels_in_blocks(matrix)
    in_blocks = [[False, False], [True, False], [False, True], [False, False]]
    assert np.isnan(scales).reshape(4, 2).tolist() == in_blocks


def test_blocks_keep_their_largest_value_and_what_fills_them_up_is_zero() -> None:
    depth = BLOCK + 3
    matrix = np.random.default_rng(0).standard_normal((depth, 5)).astype(np.float32)
    levels, scales = levels_in_blocks(matrix)
    assert levels.shape == (5, 2, BLOCK // 2) and levels.dtype == np.uint8
    halves = np.stack([levels & 15, levels >> 4], axis=-1).reshape(5, 2, BLOCK)
    assert (halves[:, 1, 3:] == 8).all()
    numbers = (halves.astype(np.float32) - 8) * scales.reshape(5, 2, 1)
    found = numbers.reshape(5, -1)[:, :depth].T
    assert np.abs(found - matrix).max() <= np.abs(scales).max() * 1.001
    largest = np.abs(matrix[:BLOCK]).argmax(axis=0)
    np.testing.assert_allclose(found[largest, range(5)], matrix[largest, range(5)], rtol=1e-6)
