"""Transforms of Winograd's minimal filtering: F(m x m, 3 x 3), F(1 x m, 1 x 3), F(m x 1, 3 x 1).

Source: A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural Networks, 2015 (sections
4.1 and 4.3): a tile of m x m results takes (m + 2)^2 products instead of 9 m^2. Filters of a single
row or column of r values take m + r - 1 products instead of m r.

With stride 2 the even columns meet the outer two values of a filter and the odd ones the middle
value: F(m, 2) of the former and m plain products, 2 m + 1 together instead of 3 m. The matrices
belong to the points 0 and 1 (m = 2), with -1 and 2 (m = 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

import halide as hl

Matrix = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transforms:
    """The three matrices of one axis: y = A^T [(G g) * (B^T d)] for a tile d and a filter g."""

    data: Matrix  # B^T, square: a row for each product of a tile
    # G, as many columns as the filter has values; products beyond its rows have the weights of the
    # last one.
    weights: Matrix
    result: Matrix  # A^T, a row for each result

    @property
    def results(self) -> int:
        """Results of one tile, m."""
        return len(self.result)

    @property
    def products(self) -> int:
        """Products of one tile, m + 2 for a filter of three; with stride 2, 2 m + 1."""
        return len(self.data)

    @property
    def taps(self) -> int:
        """Values of a filter."""
        return len(self.weights[0])

    @property
    def stride(self) -> int:
        """Values of the image from one result to the next."""
        return (self.products - self.taps) // (self.results - 1) if self.results > 1 else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TileTransforms:
    """Transforms of both axes of a tile: Y = A^T [(G g G^T) * (B^T d B)] A if they are the same."""

    down: Transforms  # Of its columns
    across: Transforms  # Of its rows

    @property
    def kernel(self) -> tuple[int, int]:
        """Rows and columns of a filter."""
        return self.down.taps, self.across.taps

    @property
    def strides(self) -> tuple[int, int]:
        """Rows and columns from one result to the next."""
        return self.down.stride, self.across.stride

    @property
    def results(self) -> tuple[int, int]:
        """Rows and columns of results of one tile."""
        return self.down.results, self.across.results

    @property
    def products(self) -> int:
        """Products of one tile."""
        return self.down.products * self.across.products

    @property
    def weights(self) -> int:
        """Values a filter is transformed to."""
        return len(self.down.weights) * len(self.across.weights)

    def weights_of(self, product: hl.Expr) -> hl.Expr:
        """Return the number of the transformed weights that a product of a tile, by number, has."""
        if self.products == self.weights:
            return product
        size, columns = self.across.products, len(self.across.weights)
        row = hl.min(product // size, len(self.down.weights) - 1)
        return row * columns + hl.min(product % size, columns - 1)


def square(transforms: Transforms) -> TileTransforms:
    """Return the same transforms of both axes."""
    return TileTransforms(down=transforms, across=transforms)


def single_row(transforms: Transforms) -> TileTransforms:
    """Return the transforms for filters of one row."""
    return TileTransforms(down=SAME, across=transforms)


def single_column(transforms: Transforms) -> TileTransforms:
    """Return the transforms for filters of one column."""
    return TileTransforms(down=transforms, across=SAME)


def _matrix(*rows: str) -> Matrix:
    return tuple(tuple(Fraction(item) for item in row.split()) for row in rows)


def _minimal(results: int, taps: int, finite: str) -> Transforms:
    """Return F(results, taps) of some points and infinity, by the algorithm of Cook and Toom.

    Polynomials are multiplied by their values at points a / b. Data and results have whole
    coefficients; what they are scaled by, the weights take, which are rounded once.

    Source: R. Blahut, Fast Algorithms for Signal Processing, 2010, section 5.2.
    """
    points = [Fraction(point) for point in finite.split()]
    data, weights, columns = [], [], []
    for point in points:
        others = [other for other in points if other != point]
        a, b = point.numerator, point.denominator
        columns.append(tuple(Fraction(a**at * b ** (results - 1 - at)) for at in range(results)))
        data.append((*_with_roots(others), Fraction(0)))
        scale = prod(point * other.denominator - other.numerator for other in others)
        scale *= b ** (results - 1)
        weights.append(tuple(point**at / scale for at in range(taps)))
    data.append(_with_roots(points))
    highest = Fraction(1, prod(point.denominator for point in points))
    weights.append(_last(taps, highest))
    columns.append(_last(results, Fraction(1)))
    return Transforms(
        data=tuple(data), weights=tuple(weights), result=tuple(zip(*columns, strict=True))
    )


def _with_roots(roots: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """Return the whole coefficients, lowest power first, of a polynomial with these roots."""
    found = [Fraction(1)]
    for root in roots:
        raised = [Fraction(0), *(root.denominator * value for value in found)]
        lowered = [*(root.numerator * value for value in found), Fraction(0)]
        found = [high - low for high, low in zip(raised, lowered, strict=True)]
    return tuple(found)


def _last(count: int, value: Fraction) -> tuple[Fraction, ...]:
    """Return a row of zeros that ends in a value: the highest coefficient, met at infinity."""
    return (*(Fraction(0) for _ in range(count - 1)), value)


SAME = Transforms(data=_matrix("1"), weights=_matrix("1"), result=_matrix("1"))
"""No transform: a filter of one value, tiles of one result."""
F2 = _minimal(2, 3, "0 1 -1")
F3 = _minimal(3, 3, "0 1 -1 2")
F4 = _minimal(4, 3, "0 1 -1 2 -2")
F4_TAPS_5 = _minimal(4, 5, "0 1 -1 2 -2 1/2 -1/2")
F4_TAPS_7 = _minimal(4, 7, "0 1/2 -1/2 3/4 -3/4 4/3 -4/3 2 -2")
"""Its points have half the error that 1 and 3/2 in place of 3/4 and 4/3 have: 5e-6 of the largest
result with 192 channels (2 x 10^3 tiles of normal data)."""

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
    """Return a constant; Halide rounds constants of plain Python to float32."""
    return hl.f64(value) if kind == hl.Float(64) else hl.f32(value)
