"""Transforms of Winograd's minimal filtering F(m x m, 3 x 3).

Source: A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural Networks, 2015 (sections
4.1 and 4.3): a tile of m x m results takes (m + 2)^2 products instead of 9 m^2. The matrices are
those of the points 0, 1, -1 (m = 2), with 2 (m = 3) and with 2 and -2 (m = 4).

With stride 2 the even columns meet the outer two values of a filter and the odd ones the middle
value: F(m, 2) of the former and m plain products, 2 m + 1 together instead of 3 m. The matrices are
those of the points 0 and 1 (m = 2), with -1 and 2 (m = 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import halide as hl

FILTER_SIDE = 3
"""Rows and columns of a filter."""

Matrix = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transforms:
    """The three matrices: Y = A^T [(G g G^T) * (B^T d B)] A for a tile d and a filter g.

    Attributes:
        data: B^T, square: a row for each product of a row of a tile.
        weights: G, rows of 3; products beyond them have the weights of the last one.
        result: A^T, a row for each result.
    """

    data: Matrix
    weights: Matrix
    result: Matrix

    @property
    def results(self) -> int:
        """Rows and columns of results of one tile, m."""
        return len(self.result)

    @property
    def products(self) -> int:
        """Rows and columns of products of one tile, m + 2; with stride 2, 2 m + 1."""
        return len(self.data)

    @property
    def stride(self) -> int:
        """Rows and columns from one result to the next."""
        return (self.products - FILTER_SIDE) // (self.results - 1)

    def weights_of(self, product: hl.Expr) -> hl.Expr:
        """Return the number of the transformed weights that a product of a tile, by number, has."""
        size, last = self.products, len(self.weights) - 1
        if size == len(self.weights):
            return product
        row, column = hl.min(product // size, last), hl.min(product % size, last)
        return row * len(self.weights) + column


def _matrix(*rows: str) -> Matrix:
    return tuple(tuple(Fraction(item) for item in row.split()) for row in rows)


F2 = Transforms(
    data=_matrix("1 0 -1 0", "0 1 1 0", "0 -1 1 0", "0 1 0 -1"),
    weights=_matrix("1 0 0", "1/2 1/2 1/2", "1/2 -1/2 1/2", "0 0 1"),
    result=_matrix("1 1 1 0", "0 1 -1 -1"),
)
F3 = Transforms(
    data=_matrix("2 -1 -2 1 0", "0 -2 -1 1 0", "0 2 -3 1 0", "0 -1 0 1 0", "0 2 -1 -2 1"),
    weights=_matrix("1/2 0 0", "-1/2 -1/2 -1/2", "-1/6 1/6 -1/6", "1/6 1/3 2/3", "0 0 1"),
    result=_matrix("1 1 1 1 0", "0 1 -1 2 0", "0 1 1 4 1"),
)
F4 = Transforms(
    data=_matrix(
        "4 0 -5 0 1 0",
        "0 -4 -4 1 1 0",
        "0 4 -4 -1 1 0",
        "0 -2 -1 2 1 0",
        "0 2 -1 -2 1 0",
        "0 4 0 -5 0 1",
    ),
    weights=_matrix(
        "1/4 0 0",
        "-1/6 -1/6 -1/6",
        "-1/6 1/6 -1/6",
        "1/24 1/12 1/6",
        "1/24 -1/12 1/6",
        "0 0 1",
    ),
    result=_matrix("1 1 1 1 1 0", "0 1 -1 2 -2 0", "0 1 1 4 4 0", "0 1 -1 8 -8 1"),
)

F2_STRIDE_2 = Transforms(
    data=_matrix("1 0 -1 0 0", "0 0 1 0 0", "0 0 -1 0 1", "0 1 0 0 0", "0 0 0 1 0"),
    weights=_matrix("1 0 0", "1 0 1", "0 0 1", "0 1 0"),
    result=_matrix("1 1 0 1 0", "0 1 1 0 1"),
)
F4_STRIDE_2 = Transforms(
    data=_matrix(
        "2 0 -1 0 -2 0 1 0 0",
        "0 0 -2 0 -1 0 1 0 0",
        "0 0 2 0 -3 0 1 0 0",
        "0 0 -1 0 0 0 1 0 0",
        "0 0 2 0 -1 0 -2 0 1",
        "0 1 0 0 0 0 0 0 0",
        "0 0 0 1 0 0 0 0 0",
        "0 0 0 0 0 1 0 0 0",
        "0 0 0 0 0 0 0 1 0",
    ),
    weights=_matrix("1/2 0 0", "-1/2 0 -1/2", "-1/6 0 1/6", "1/6 0 1/3", "0 0 1", "0 1 0"),
    result=_matrix(
        "1 1 1 1 0 1 0 0 0", "0 1 -1 2 0 0 1 0 0", "0 1 1 4 0 0 0 1 0", "0 1 -1 8 1 0 0 0 1"
    ),
)


def combine(coefficients: Sequence[Fraction], terms: Sequence[hl.Expr]) -> hl.Expr:
    """Return the sum of terms times coefficients, without products by 0 and by 1.

    Args:
        coefficients: One row of a matrix, at least one of them not 0.
        terms: Values of one type, float32 or float64, as many.
    """
    total: hl.Expr | None = None
    for coefficient, term in zip(coefficients, terms, strict=True):
        if not coefficient:
            continue
        size = abs(coefficient)
        value = term if isinstance(term, hl.Expr) else hl.Expr(term)
        if size != 1:
            value = value * _number(float(size), value.type())
        if total is None:
            total = value if coefficient > 0 else -value
        else:
            total = total + value if coefficient > 0 else total - value
    if total is None:
        raise ValueError("a transform has no row of zeros")
    return total


def select_row(index: hl.Expr, matrix: Matrix, terms: Sequence[hl.Expr]) -> hl.Expr:
    """Return row `index` of matrix times terms; one expression once the index is unrolled."""
    return hl.mux(index, [combine(row, terms) for row in matrix])


def _number(value: float, kind: hl.Type) -> hl.Expr:
    """Return a constant; Halide rounds those of plain Python to float32."""
    return hl.f64(value) if kind == hl.Float(64) else hl.f32(value)
