"""Which elements along one dimension a result is interpolated between, and their weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import floor
from typing import Any, TypeAlias

import halide as hl

from aoe.kernels.family import SUPPORTED, Support
from aoe.kernels.math.functions import at_least, constant, strict
from aoe.operators import number
from aoe.workload import Operation

_COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
Extent: TypeAlias = int | hl.Expr
"""Of a dimension; an expression where it is open."""
_CUBIC_A = -0.75
"""Default of `cubic_coeff_a`. Source: ONNX, Resize."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taps:
    """Interpolation along one dimension.

    Attributes:
        extent: Elements there are.
        made: Elements wanted.
        scale: By how much the dimension grows, as the model says it.
        coordinates: `coordinate_transformation_mode`.
        cubic: The coefficient of cubic interpolation; None for linear.
        is_nearest: True if each element is repeated `factor` times.
        is_blocked: True in ONNX Runtime's blocked layout.
    """

    extent: int
    made: int
    scale: float
    coordinates: str
    cubic: float | None
    is_nearest: bool = False
    is_blocked: bool = False

    @property
    def count(self) -> int:
        """Elements one result is interpolated between."""
        if self.is_nearest:
            return 1
        return 2 if self.cubic is None else 4

    @property
    def factor(self) -> int:
        """How often the same weights come again, if every element makes that many; else 0."""
        whole = self.made // self.extent
        regular = (
            self.is_nearest
            or self.coordinates in ("half_pixel", "asymmetric")
            or (self.coordinates == "pytorch_half_pixel" and self.made > 1)
        )
        return whole if regular and whole == self.scale and whole * self.extent == self.made else 0

    def first(self, at: hl.Expr, extent: Extent) -> hl.Expr:
        """Return the first element for result `at`, which may be outside of the `extent` ones."""
        if self.is_nearest:
            return at // self.factor
        return hl.i32(hl.floor(self._kept(at, extent))) + self._before

    def weights(self, at: hl.Expr, extent: Extent) -> list[hl.Expr]:
        """Return the weights of the elements for result `at`, of `extent` elements."""
        if self.is_nearest:
            return [constant(1.0)]
        coordinate = self._kept(at, extent)
        part = strict(coordinate - hl.floor(coordinate))
        if self.cubic is None and not self.is_blocked:
            # both elements are the last one there: times 0 an infinity would be NaN
            part = hl.select(coordinate >= hl.f32(extent - 1), constant(0.5), part)
        return tap_weights(part, self.cubic, constant)

    def phase(self, rest: int) -> tuple[int, list[float]]:
        """Return first element and weights of result `rest` below `factor`, relative to 0."""
        if self.is_nearest:
            return 0, [1.0]
        shift = 0.0 if self.coordinates == "asymmetric" else 0.5
        at = (rest + shift) / self.factor - shift
        return floor(at) + self._before, tap_weights(at - floor(at), self.cubic, float)

    @property
    def reads_beside_first(self) -> bool:
        """True if results in front of the first element are made of it and of the second one."""
        is_shifted = self.coordinates in ("half_pixel", "pytorch_half_pixel")
        return self.cubic is None and not self.is_nearest and is_shifted and self.extent > 1

    def _kept(self, at: hl.Expr, extent: Extent) -> hl.Expr:
        """Return the coordinate of result `at`; for linear interpolation not below the first one.

        There ONNX Runtime reads the second element, too, and multiplies it by 0: a NaN stays.
        """
        coordinate = self._coordinate(at, extent)
        return at_least(coordinate, constant(0.0)) if self.reads_beside_first else coordinate

    @property
    def _before(self) -> int:
        """Where the first element is, from the one at or below the coordinate."""
        return 0 if self.cubic is None else -1

    def _coordinate(self, at: hl.Expr, extent: Extent) -> hl.Expr:
        """Return the coordinate of result `at` among the elements, float32 as in ONNX Runtime."""
        x = hl.f32(at)
        if self.coordinates == "align_corners":
            if self.made == 1:
                return constant(0.0)
            made = self.made if isinstance(extent, int) else extent * int(self.scale)
            return strict(strict(x * hl.f32(extent - 1)) / hl.f32(made - 1))
        if self.coordinates == "asymmetric":
            return strict(x / constant(self.scale))
        if self.coordinates == "pytorch_half_pixel" and self.made == 1:
            return constant(0.0)
        return strict(strict((x + constant(0.5)) / constant(self.scale)) - constant(0.5))


def tap_weights(part: Any, cubic: float | None, number: Callable[[float], Any]) -> list[Any]:
    """Return the weights of the elements around a coordinate.

    Args:
        part: How far it is behind an element, 0 to 1.
        cubic: The coefficient of cubic interpolation, which has 4 elements; None for linear.
        number: Makes a constant of the kind `part` is.
    """
    one = number(1.0)
    if cubic is None:
        return [one - part, part]
    a = number(cubic)
    two, three, four, five, eight = map(number, (2.0, 3.0, 4.0, 5.0, 8.0))
    far, back = part + one, one - part
    last = back + one
    return [
        ((a * far - five * a) * far + eight * a) * far - four * a,
        ((a + two) * part - (a + three)) * part * part + one,
        ((a + two) * back - (a + three)) * back * back + one,
        ((a * last - five * a) * last + eight * a) * last - four * a,
    ]


def check_interpolation(operation: Operation) -> Support:
    """Tell whether every attribute of a resize is one the taps follow."""
    attributes = operation.attributes
    if attributes.get("mode", "nearest") == "nearest":
        return SUPPORTED
    if str(attributes.get("mode")) not in ("linear", "cubic"):
        return Support(f"mode {attributes.get('mode', 'nearest')}")
    coordinates = coordinates_of(operation)
    if coordinates not in _COORDINATES:
        return Support(f"coordinates: {coordinates}")
    if attributes.get("antialias", 0) or attributes.get("exclude_outside", 0):
        return Support("weights that depend on the border")
    return SUPPORTED


def coordinates_of(operation: Operation) -> str:
    """Return the `coordinate_transformation_mode`."""
    return str(operation.attributes.get("coordinate_transformation_mode", "half_pixel"))


def cubic_of(operation: Operation) -> float | None:
    """Return the coefficient of cubic interpolation, None for linear."""
    if operation.attributes.get("mode") == "linear":
        return None
    return number(operation.attributes, "cubic_coeff_a", _CUBIC_A)
