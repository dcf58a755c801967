"""Places inside tensors as sums of loop variables, so that moves compose without divisions.

A place is an offset plus a coefficient times each loop variable. Reshaping means dividing by
constants; where the loops are cut at the right extents, every term is either a multiple of the
divisor or stays below it, and nothing has to be divided when the kernel runs. `CutLoop` says
where a loop has to be cut for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import gcd, prod

from aoe.kernels.halide.iteration import Axis
from aoe.operators import Shape
from aoe.workload import TensorSpec


class CutLoop(Exception):
    """A loop has to be two, the inner one of so many iterations.

    Attributes:
        loop: Its name.
        inner: Iterations of the inner loop.
    """

    def __init__(self, loop: str, inner: int) -> None:
        super().__init__(f"{loop} by {inner}")
        self.loop, self.inner = loop, inner


class NoPlaceError(ValueError):
    """An element that is read has no place of this form; the message says why."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place: `offset` + sum of coefficients times variables."""

    offset: int = 0  # The place where all variables are 0
    # Variables with their coefficients, which are not 0, in the order of the names.
    terms: tuple[tuple[str, int], ...] = ()

    def times(self, factor: int) -> Position:
        """Return the place so many times as far."""
        if factor == 0:
            return Position()
        terms = tuple((name, factor * coefficient) for name, coefficient in self.terms)
        return Position(factor * self.offset, terms)

    def plus(self, other: Position | int) -> Position:
        """Return the sum of two places."""
        if isinstance(other, int):
            return Position(self.offset + other, self.terms)
        total = dict(self.terms)
        for name, coefficient in other.terms:
            total[name] = total.get(name, 0) + coefficient
        terms = tuple((name, factor) for name, factor in sorted(total.items()) if factor)
        return Position(self.offset + other.offset, terms)

    def apart(self, size: int) -> tuple[Position, Position]:
        """Return multiples of `size` in the place, counted in it, and what is left, term by term.

        All but multiples leads less far.
        """
        parts = [(name, *divmod(coefficient, size)) for name, coefficient in self.terms]
        times, rest = divmod(self.offset, size)
        return (
            Position(times, tuple((name, whole) for name, whole, _ in parts if whole)),
            Position(rest, tuple((name, left) for name, _, left in parts if left)),
        )

    def coefficient(self, name: str) -> int:
        """Return the stride of one iteration of a loop."""
        return dict(self.terms).get(name, 0)


Index = tuple[Position, ...]
"""A place along each dimension of a tensor, outermost first."""


def variable(name: str, extent: int) -> Position:
    """Return the place a loop variable is at; a loop of one iteration is always at 0."""
    return Position(0, ((name, 1),)) if extent > 1 else Position()


def linear(index: Sequence[Position], shape: Shape) -> Position:
    """Return the number of elements of a dense tensor in front of `index`."""
    place, stride = Position(), prod(shape)
    for part, extent in zip(index, shape, strict=True):
        stride //= extent
        place = place.plus(part.times(stride))
    return place


class Bound(StrEnum):
    """Treatment of a place that is outside of a dimension."""

    CLAMP = "clamp"
    """The nearest element inside."""
    REFLECT = "reflect"
    """Mirrored at the first or last element, which is not repeated."""
    WRAP = "wrap"
    """Behind the last element comes the first."""


@dataclass(frozen=True, slots=True)
class KeptInside:
    """A variable made of a place by keeping it inside a dimension."""

    place: Position  # May be outside
    extent: int  # Of the dimension
    bound: Bound  # How it is kept inside


@dataclass(frozen=True, slots=True)
class Part:
    """A variable that is the quotient of a place, for dividing what no loop can be cut for."""

    place: Position
    divisor: int


Made = KeptInside | Part


@dataclass(slots=True)
class Variables:
    """Variables of places: loops, and what is made of loops."""

    extents: dict[str, int]  # Values each takes, from 0 on: loops, and what is made of them
    # Those that are no loops, each behind those it is made of.
    made: dict[str, Made] = field(default_factory=dict)
    # Loops that may be divided where they run: not the innermost.
    divided_when_run: frozenset[str] = frozenset()

    def keep(self, place: Position, extent: int, bound: Bound, step: int = 1) -> Position:
        """Return a place kept inside a dimension.

        Args:
            place: May be outside.
            extent: Of the dimension.
            bound: How it is kept inside.
            step: Elements that lie on the same side of the borders, from a multiple of `step` on;
                they stay neighbours.
        """
        coarse, fine = self.divided(place, step) if step > 1 else (place, Position())
        if extent == step:
            return fine
        kept = self._variable(KeptInside(coarse, extent // step, bound), extent // step)
        return kept.times(step).plus(fine)

    def divided(self, place: Position, divisor: int) -> tuple[Position, Position]:
        """Return quotient and remainder of a place, whose terms are from 0 on.

        Raises:
            CutLoop: it is possible once a loop is cut.
            NoPlaceError: it is not possible without dividing in the loops.
        """
        start, offset = divmod(place.offset, divisor)
        quotient, rest = Position(start), Position(offset)
        for name, coefficient in place.terms:
            times, left = divmod(coefficient, divisor)
            term = Position(0, ((name, 1),))
            if left:
                rest = rest.plus(term.times(coefficient))
            else:
                quotient = quotient.plus(term.times(times))
        if self._stays_below(rest, divisor):
            return quotient, rest
        for name, coefficient in rest.terms:
            self._demand_cut(name, coefficient, divisor)
        return self._divided_when_run(quotient, rest, divisor)

    def unravel(self, place: Position, shape: Shape) -> Index:
        """Return the index that `place` elements into a dense tensor are; see `divided`."""
        index, stride = [], prod(shape)
        for extent in shape:
            stride //= extent
            part, place = self.divided(place, stride)
            index.append(part)
        return tuple(index)

    def _stays_below(self, place: Position, limit: int) -> bool:
        ends = [coefficient * (self.extents[name] - 1) for name, coefficient in place.terms]
        lowest = place.offset + sum(end for end in ends if end < 0)
        return lowest >= 0 and place.offset + sum(end for end in ends if end > 0) < limit

    def _demand_cut(self, name: str, coefficient: int, divisor: int) -> None:
        """Raise CutLoop if a loop runs over a border it can be cut at."""
        if name in self.made or coefficient <= 0 or divisor % coefficient:
            return
        inner, extent = divisor // coefficient, self.extents[name]
        piece = gcd(inner, extent)
        if inner < extent and 1 < piece < extent:
            raise CutLoop(name, piece)

    def _divided_when_run(
        self, quotient: Position, rest: Position, divisor: int
    ) -> tuple[Position, Position]:
        """Return quotient and remainder with a variable for what is divided in the loops."""
        may = self.made.keys() | self.divided_when_run
        step = gcd(divisor, *(c for name, c in rest.terms if name in may))
        coarse, fine = Position(rest.offset - rest.offset % step), Position(rest.offset % step)
        for name, coefficient in rest.terms:
            term = Position(0, ((name, coefficient),))
            if coefficient % step:
                fine = fine.plus(term)
            else:
                coarse = coarse.plus(term)
        # the quotient of a flip would not count from 0 on
        is_made = all(name in may and c > 0 for name, c in coarse.terms)
        if not is_made or not self._stays_below(fine, step):
            raise NoPlaceError("a reshape does not keep to the borders of what is moved")
        most = coarse.offset + sum(c * (self.extents[name] - 1) for name, c in coarse.terms)
        part = self._variable(Part(coarse, divisor), most // divisor + 1)
        return quotient.plus(part), coarse.plus(part.times(-divisor)).plus(fine)

    def _variable(self, made: Made, extent: int) -> Position:
        """Return the variable that is made so, a new one if need be."""
        name = next((name for name, known in self.made.items() if known == made), "")
        if not name:
            name = f"k{len(self.made)}"
            self.made[name], self.extents[name] = made, extent
        return variable(name, extent)


@dataclass(frozen=True, slots=True)
class Loops:
    """Loops over a result."""

    axes: tuple[Axis, ...]  # Outermost first; the result is dense over them
    # For each dimension of the result, its loops, outermost first.
    dimensions: tuple[tuple[str, ...], ...]

    def cut(self, cut: CutLoop) -> Loops:
        """Return the loops with one of them cut in two."""
        outer = f"{cut.loop}_{len(self.axes)}"

        def named(names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(
                new for name in names for new in ((outer, name) if name == cut.loop else (name,))
            )

        axes: list[Axis] = []
        for axis in self.axes:
            if axis.name == cut.loop:
                axes.append(Axis(outer, axis.extent // cut.inner))
                axes.append(Axis(axis.name, cut.inner))
            else:
                axes.append(axis)
        return Loops(tuple(axes), tuple(named(names) for names in self.dimensions))

    def index(self) -> Index:
        """Return the element of the result that the loops are at."""
        extents = {axis.name: axis.extent for axis in self.axes}
        places = []
        for names in self.dimensions:
            place, stride = Position(), 1
            for name in reversed(names):
                place = place.plus(variable(name, extents[name]).times(stride))
                stride *= extents[name]
            places.append(place)
        return tuple(places)


def result_loops(result: TensorSpec) -> Loops:
    """Return one loop for each dimension, two for blocked channels."""
    if result.block:
        n, c, h, w = result.shape
        extents = (n, c // result.block, h, w, result.block)
        axes = tuple(map(Axis, ("n", "c", "h", "w", "b"), extents))
        return Loops(axes, (("n",), ("c", "b"), ("h",), ("w",)))
    axes = tuple(Axis(f"d{at}", extent) for at, extent in enumerate(result.shape))
    return Loops(axes, tuple((axis.name,) for axis in axes))


def merging(
    axes: Sequence[Axis], places: Iterable[Position]
) -> tuple[tuple[Axis, ...], Callable[[Position], Position]]:
    """Return as few loops as give the same places, and how a place is written in them.

    Neighbouring loops are one if, at every place, an iteration of the outer leads as far as all
    of the inner.
    """
    used, groups = tuple(places), [[axis] for axis in axes if axis.extent > 1]
    at = 0
    while at + 1 < len(groups):
        outer, inner = groups[at][-1], groups[at + 1][0]
        if all(_continues(place, outer, inner) for place in used):
            groups[at] += groups.pop(at + 1)
        else:
            at += 1
    merged, names = [], {}
    for group in groups:
        extent = 1
        for axis in group:
            extent *= axis.extent
        merged.append(Axis(group[-1].name, extent))
        names.update({axis.name: axis is group[-1] for axis in group})

    def written(place: Position) -> Position:
        return replace(place, terms=tuple(t for t in place.terms if names.get(t[0], True)))

    return tuple(merged) or (Axis("one", 1),), written


def _continues(place: Position, outer: Axis, inner: Axis) -> bool:
    return place.coefficient(outer.name) == place.coefficient(inner.name) * inner.extent
