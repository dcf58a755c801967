"""Which elements along one dimension a grid points at, and their weights.

Coordinates are computed in float32 by the steps ONNX Runtime takes, so that both read the same
elements. Whatever a grid holds, no place is outside of the tensor. NaN, infinities, and what does
not fit 64 bits point at the first end of the tensor, as in ONNX Runtime 1.31.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import halide as hl

from aoe.kernels.math.functions import constant, strict
from aoe.kernels.resizing.taps import tap_weights

OUTSIDE = -(1 << 29)
"""Place of what is outside of the tensor: below 0 with places along other dimensions added."""
_FARTHEST = 2.0**63
_CUBIC_A = -0.75
"""Source: ONNX, GridSample."""


class Border(StrEnum):
    """What lies outside of the tensor: `padding_mode`."""

    ZEROS = "zeros"
    EDGE = "border"
    REFLECTION = "reflection"


@dataclass(frozen=True, slots=True, kw_only=True)
class GridDimension:
    """One dimension a grid has coordinates for.

    Attributes:
        extent: Elements there are.
        stride: From one of them to the next, in elements.
        taps: Elements read for a result: 1 the nearest, 2 linear, 4 cubic.
        border: What lies outside.
        corners: True if -1 and 1 are the first and the last element, not their outer ends.
    """

    extent: int
    stride: int
    taps: int
    border: Border
    corners: bool

    def places(self, given: hl.Expr) -> list[hl.Expr]:
        """Return the indices of elements for a coordinate between -1 and 1: int32."""
        at = self._coordinate(given)
        if self.taps == 1:
            return [self._place(hl.round(at))]
        first = strict(hl.floor(at) + constant(-1.0 if self.taps == 4 else 0.0))
        return [self._place(strict(first + constant(float(tap)))) for tap in range(self.taps)]

    def weights(self, given: hl.Expr) -> list[hl.Expr]:
        """Return the weights of those elements, none for the nearest."""
        if self.taps == 1:
            return []
        at = self._coordinate(given)
        part = strict(at - hl.floor(at))
        if self.taps == 4:
            return tap_weights(part, _CUBIC_A, constant)
        before = strict(strict(hl.floor(at) + constant(1.0)) - at)
        return [before, part]

    def _coordinate(self, given: hl.Expr) -> hl.Expr:
        """Return which element a coordinate points at; the first end for what is no place."""
        moved = strict(given + constant(1.0))
        if self.corners:
            at = strict(strict(moved * constant(0.5)) * constant(float(self.extent - 1)))
        else:
            scaled = strict(moved * constant(float(self.extent)))
            at = strict(strict(scaled - constant(1.0)) * constant(0.5))
        is_place = strict(hl.abs(at) < constant(_FARTHEST))
        return hl.select(is_place, at, constant(self._low))

    def _place(self, element: hl.Expr) -> hl.Expr:
        """Return the place of an element, given as a whole number in float32."""
        if self.border is Border.REFLECTION:
            element = self._reflected(element)
        first, last = constant(0.0), constant(float(self.extent - 1))
        starts, ends = strict(element >= first), strict(element <= last)
        kept = hl.select(starts, hl.select(ends, element, last), first)
        place = hl.i32(kept) * self.stride
        return hl.select(starts & ends, place, OUTSIDE) if self._has_zeros else place

    @property
    def _low(self) -> float:
        """Where the tensor begins."""
        return 0.0 if self.corners else -0.5

    @property
    def _has_zeros(self) -> bool:
        return self.border is Border.ZEROS

    def _reflected(self, element: hl.Expr) -> hl.Expr:
        """Return an element after it was thrown back from both ends until it is inside."""
        low, high = self._low, self.extent - 1.0 - self._low
        length = constant(high - low)
        is_below = strict(element < constant(low))
        is_above = strict(element > constant(high))
        beyond = hl.select(
            is_below, strict(constant(low) - element), strict(element - constant(high))
        )
        turns = strict(hl.floor(strict(beyond / length)))
        rest = strict(beyond - strict(turns * length))
        half = strict(turns * constant(0.5))
        is_even = strict(half == hl.floor(half))
        from_low, from_high = strict(constant(low) + rest), strict(constant(high) - rest)
        outside = hl.select(is_below == is_even, from_low, from_high)
        return hl.select(is_below | is_above, outside, element)
