"""The loops over a result, as fine as its moves need them and as coarse as they allow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from aoe.kernels.halide.iteration import Axis
from aoe.kernels.movement.access_maps import CutLoop, Index, Position, variable
from aoe.workload import TensorSpec


@dataclass(frozen=True, slots=True)
class Loops:
    """Loops over a result.

    Attributes:
        axes: Outermost first; the result is dense over them.
        dimensions: For each dimension of the result, its loops, outermost first.
    """

    axes: tuple[Axis, ...]
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
