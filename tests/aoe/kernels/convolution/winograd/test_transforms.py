"""Winograd's transforms: exact in rational numbers, and no row is wasted on zeros."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoe.kernels.convolution.winograd.transforms import F2, F4, Matrix, Transforms, combine

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


@pytest.mark.parametrize("transforms", [F2, F4], ids=["2x2", "4x4"])
@given(data=st.data())
def test_transforms_give_the_convolution_exactly(
    transforms: Transforms, data: st.DataObject
) -> None:
    tile = data.draw(square(transforms.products))
    weights = data.draw(square(3))
    left = around(transforms.data, tile)
    right = around(transforms.weights, weights)
    products = tuple(
        tuple(a * b for a, b in zip(rows, others, strict=True))
        for rows, others in zip(left, right, strict=True)
    )
    found = around(transforms.result, products)
    size = transforms.results
    expected = tuple(
        tuple(
            sum(
                (tile[y + i][x + j] * weights[i][j] for i in range(3) for j in range(3)),
                Fraction(0),
            )
            for x in range(size)
        )
        for y in range(size)
    )
    assert found == expected


@pytest.mark.parametrize("transforms", [F2, F4], ids=["2x2", "4x4"])
def test_sizes_go_together(transforms: Transforms) -> None:
    results, products = transforms.results, transforms.products
    assert products == results + 2
    assert {len(row) for row in transforms.data} == {products}
    assert (len(transforms.weights), {len(row) for row in transforms.weights}) == (products, {3})
    assert {len(row) for row in transforms.result} == {products}


def test_row_of_zeros_is_refused() -> None:
    import halide as hl

    with pytest.raises(ValueError, match="row of zeros"):
        combine([Fraction(0), Fraction(0)], [hl.f32(1.0), hl.f32(2.0)])
