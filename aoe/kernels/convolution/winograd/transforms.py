"""Transforms of Winograd's minimal filtering F(m x m, 3 x 3).

Source: A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural Networks, 2015 (sections
4.1 and 4.3): a tile of m x m results takes (m + 2)^2 products instead of 9 m^2. The matrices are
those of the points 0, 1, -1 (m = 2) and 0, 1, -1, 2, -2 (m = 4).
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
        data: B^T, (m + 2, m + 2).
        weights: G, (m + 2, 3).
        result: A^T, (m, m + 2).
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
        """Rows and columns of products of one tile, m + 2."""
        return len(self.data)


def _matrix(*rows: str) -> Matrix:
    return tuple(tuple(Fraction(item) for item in row.split()) for row in rows)


F2 = Transforms(
    data=_matrix("1 0 -1 0", "0 1 1 0", "0 -1 1 0", "0 1 0 -1"),
    weights=_matrix("1 0 0", "1/2 1/2 1/2", "1/2 -1/2 1/2", "0 0 1"),
    result=_matrix("1 1 1 0", "0 1 -1 -1"),
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
