"""Winograd's transforms: exact in rational numbers, and no row is wasted on zeros."""

from __future__ import annotations

from fractions import Fraction

import halide as hl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoe.kernels.conv_nchwc.winograd.transforms import (
    F2,
    F2_STRIDE_2,
    F3,
    F4,
    F4_STRIDE_2,
    Matrix,
    Transforms,
    combine,
)

ALL = {"2x2": F2, "3x3": F3, "4x4": F4, "2x2, stride 2": F2_STRIDE_2, "4x4, stride 2": F4_STRIDE_2}
each = pytest.mark.parametrize("transforms", ALL.values(), ids=ALL)

numbers = st.fractions(min_value=-9, max_value=9, max_denominator=8)


def square(size: int) -> st.SearchStrategy[Matrix]:
    row = st.lists(numbers, min_size=size, max_size=size).map(tuple)
    return st.lists(row, min_size=size, max_size=size).map(tuple)


def multiplied(one: Matrix, other: Matrix) -> Matrix:
    columns = list(zip(*other, strict=True))
    return tuple(
        tuple(
            sum((a * b for a, b in zip(row, column, strict=True)), Fraction(0))
            for column in columns
        )
        for row in one
    )


def turned(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


def around(outer: Matrix, inner: Matrix) -> Matrix:
    return multiplied(multiplied(outer, inner), turned(outer))


@pytest.mark.slow
@each
@given(data=st.data())
def test_transforms_give_the_convolution_exactly(
    transforms: Transforms, data: st.DataObject
) -> None:
    tile = data.draw(square(transforms.products))
    weights = data.draw(square(3))
    left = around(transforms.data, tile)
    last = transforms.weights[-1]
    spread = transforms.weights + (last,) * (transforms.products - len(transforms.weights))
    right = around(spread, weights)
    products = tuple(
        tuple(a * b for a, b in zip(rows, others, strict=True))
        for rows, others in zip(left, right, strict=True)
    )
    found = around(transforms.result, products)
    size, stride = transforms.results, transforms.stride
    expected = tuple(
        tuple(
            sum(
                (
                    tile[stride * y + i][stride * x + j] * weights[i][j]
                    for i in range(3)
                    for j in range(3)
                ),
                Fraction(0),
            )
            for x in range(size)
        )
        for y in range(size)
    )
    assert found == expected


@each
def test_sizes_go_together(transforms: Transforms) -> None:
    results, products = transforms.results, transforms.products
    assert products == transforms.stride * (results - 1) + 3
    assert {len(row) for row in transforms.data} == {products}
    assert {len(row) for row in transforms.weights} == {3}
    assert len(transforms.weights) == (products if transforms.stride == 1 else results + 2)
    assert {len(row) for row in transforms.result} == {products}


@each
def test_products_beyond_the_weights_have_the_last_ones(transforms: Transforms) -> None:
    size, last = transforms.products, len(transforms.weights) - 1
    e, found = hl.Var("e"), hl.Func("found")
    found[e] = transforms.weights_of(e)
    expected = [
        min(row, last) * (last + 1) + min(column, last)
        for row in range(size)
        for column in range(size)
    ]
    assert list(np.array(found.realize([size**2]))) == expected


def test_row_of_zeros_is_refused() -> None:
    with pytest.raises(ValueError, match="row of zeros"):
        combine([Fraction(0), Fraction(0)], [hl.f32(1.0), hl.f32(2.0)])
