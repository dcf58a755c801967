"""A workload of one interpolation and the chain behind it: loops, taps, and what is read where."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aoe.kernels.family import Support
from aoe.kernels.halide.iteration import Axis
from aoe.kernels.movement.access_maps import CutLoop, NoPlaceError
from aoe.kernels.movement.loops import result_loops
from aoe.kernels.movement.nearest import nearest_elements
from aoe.kernels.movement.windows import (
    SplitAround,
    WindowReads,
    read_neighbours,
    split_around,
    tap,
)
from aoe.kernels.resizing.taps import Taps, check_interpolation, coordinates_of, cubic_of
from aoe.operators import op_key
from aoe.operators.movement import RESIZES, interpolates, resize_scales
from aoe.workload import Operation, Workload

_WOVEN_MAX = 4
"""Results per element up to which their vectors are woven into one another."""
_DIMENSIONS_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """A dimension that is resized.

    Attributes:
        taps: How.
        loop: The loop over the results.
        rest: The loop over the results that have an element in common, innermost; empty where
            there is none.
        tap: Variable of the element that is read.
    """

    taps: Taps
    loop: str
    rest: str
    tap: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resizing:
    """What a kernel of this family does.

    Attributes:
        split: The operation that interpolates, and the chain behind it.
        nest: Loops over the result, and what is read in them.
        dimensions: Those that are resized, outermost first.
    """

    split: SplitAround
    nest: WindowReads
    dimensions: tuple[Dimension, ...]

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Loops over the result, outermost first."""
        return self.nest.axes

    @property
    def cuts(self) -> bool:
        """True if a schedule makes the loop over the results that have an element in common."""
        return bool(self.last.rest) and self.last.rest not in {axis.name for axis in self.axes}

    @property
    def walked(self) -> tuple[Axis, ...]:
        """Loops of a schedule, outermost first."""
        if not self.cuts:
            return self.axes
        factor = self.last.taps.factor
        inner = Axis(self.last.loop, self.axes[-1].extent // factor), Axis(self.last.rest, factor)
        return (*self.axes[:-1], *inner)

    @property
    def last(self) -> Dimension:
        """The innermost of the resized dimensions."""
        return self.dimensions[-1]


def read_resizing(workload: Workload) -> Resizing | Support:
    """Return the interpolation of a workload, or the reason why it is not one with a chain."""
    resizes = [op for op in workload.operations if op_key(op) in RESIZES]
    found = [op for op in resizes if workload.is_open or interpolates(op_key(op), op.attributes)]
    if len(found) != 1 or len(resizes) != 1:
        return Support(f"{len(found)} interpolations, {len(resizes)} resizes")
    checked = check_interpolation(found[0])
    if not checked:
        return checked
    split = split_around(workload, found[0])
    return split if isinstance(split, Support) else _planned(split)


def _planned(split: SplitAround) -> Resizing | Support:
    resized = _resized(split)
    if not 1 <= len(resized) <= _DIMENSIONS_MAX:
        return Support(f"{len(resized)} dimensions are resized")
    if any(taps.made == 1 for taps in resized.values()):
        return Support("a dimension of one result")
    if not all(_repeats(split.anchor, taps) for taps in resized.values() if taps.is_nearest):
        return Support("elements are not repeated equally often")
    output, last = split.workload.output, max(resized)
    loops = result_loops(output)
    is_innermost = last == len(output.shape) - 1 and not output.block
    is_woven = is_innermost and 2 <= resized[last].factor <= _WOVEN_MAX
    if is_woven and last not in output.open:
        loops = loops.cut(CutLoop(loops.dimensions[-1][-1], resized[last].factor))
    nest = read_neighbours(split, frozenset(resized), loops)
    if isinstance(nest, Support):
        return nest
    dimensions = []
    for at, names in nest.dimensions.items():
        rest = names[-1] if len(names) > 1 else ""
        if is_woven and at == last:  # a schedule cuts the loop where it is open
            rest = rest or f"{names[0]}_r"
        dimensions.append(Dimension(taps=resized[at], loop=names[0], rest=rest, tap=tap(at)))
    return Resizing(split=split, nest=nest, dimensions=tuple(dimensions))


def _repeats(resize: Operation, taps: Taps) -> bool:
    """True if a resize to the nearest repeats each element, whatever the extent, equally often."""
    # aligned corners stretch the coordinates by the extent
    if taps.coordinates == "align_corners" or taps.factor < 2:
        return False
    try:
        taken = nearest_elements(resize, taps.extent, taps.made, taps.scale)
    except NoPlaceError:
        return False
    return np.array_equal(taken, np.arange(taps.made) // taps.factor)


def _resized(split: SplitAround) -> dict[int, Taps]:
    """Return the dimensions that are resized."""
    given, made, resize = split.given, split.made, split.anchor
    scales = resize_scales(resize, given)
    return {
        at: Taps(
            extent=given[at],
            made=made[at],
            scale=scales[at],
            coordinates=coordinates_of(resize),
            cubic=cubic_of(resize),
            is_nearest=not interpolates(op_key(resize), resize.attributes),
            is_blocked=split.workload.blocked,
        )
        for at in range(len(given))
        if made[at] != given[at] or scales[at] != 1.0
    }
