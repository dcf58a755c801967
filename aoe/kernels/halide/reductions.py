"""Reductions along one axis: sums, products and extremes in many accumulators at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import halide as hl

from aoe.kernels.family import UPDATE
from aoe.kernels.math.functions import strict
from aoe.schedule import ComputeAt, Memory, Reorder, Step, StoreIn, Unroll, Vectorize

ACCUMULATOR = "acc"
_WIDTHS = (64, 32, 16)
"""Accumulators of a long row: 4 vector registers of AVX-512, or fewer if much would be idle."""
_IDLE_SHARE = 8
_SCALARS = 4
_PARTS = 4
"""Accumulators per column, where columns are vectors."""

Combine = Callable[[hl.Expr, hl.Expr], hl.Expr]
Term = Callable[..., hl.Expr]
"""The element at a place of the reduced axis, and of reduced axes around it, outermost first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OuterLoops:
    """Loops around a reduction, in the order of buffers."""

    # Loop variables inside the reduced axis, innermost first; none where the reduced axis is the
    # innermost itself.
    columns: tuple[hl.Var, ...]
    rows: tuple[hl.Var, ...]  # Those outside of it, innermost first
    vector: int  # Extent of the innermost column
    length: int  # Elements of the reduced axis, 2 or more
    outer: tuple[int, ...] = ()  # Extents of reduced axes apart from it, outermost first
    # Its elements where they are known when the kernel runs alone; `length` is one of the numbers
    # there may be then.
    open_length: hl.Expr | None = None
    is_whole: bool = True  # True if the accumulators share `open_length` out evenly
    widths: tuple[int, ...] = _WIDTHS  # Numbers of accumulators to choose from, without columns

    @property
    def is_cut_short(self) -> bool:
        """True if the last of an open number of steps has elements for some accumulators alone."""
        return self.open_length is not None and not self.columns and not self.is_whole

    @property
    def variables(self) -> tuple[hl.Var, ...]:
        """All but the reduced axis, innermost first."""
        return (*self.columns, *self.rows)

    @property
    def accumulators(self) -> int:
        """Elements of the reduced axis that are combined apart from each other.

        With reduced axes around it they share it out evenly: what is left over of the one axis
        would be left over for every place of the others.
        """
        if self.outer:
            most = _PARTS if self.columns else _WIDTHS[0]
            return next(n for n in (64, 32, 16, 8, 4, 2, 1) if n <= most and not self.length % n)
        if self.columns:
            return min(_PARTS, self.length)
        for width in self.widths:
            idle = -self.length % width
            if width <= self.length and (
                idle * _IDLE_SHARE <= self.length or width == self.widths[-1]
            ):
                return width
        return 1 << (self.length.bit_length() - 1)


class AxisReduction:
    """A reduction along an axis: accumulators, and what they are together, half by half.

    What the accumulators cannot share out evenly is what they start with, so that nothing is
    computed element by element.

    Args:
        name: Of the stage of the result.
        around: Loops around it.
        term: The element at a place of the reduced axis.
        start: Neutral element.
        combine: Of two elements.
    """

    def __init__(
        self,
        name: str,
        around: OuterLoops,
        term: Term,
        start: hl.Expr,
        combine: Combine,
    ) -> None:
        self.name = name
        self._around = around
        count, accumulator = around.accumulators, hl.Var(ACCUMULATOR)
        open_length = around.open_length
        whole: int | hl.Expr
        if open_length is None:
            whole = around.length // count
        elif around.is_cut_short:
            whole = (open_length + (count - 1)) // count
        else:
            whole = open_length // count
        self._at = self._at_accumulator(accumulator)
        extents = (whole, *reversed(around.outer))
        walk = hl.RDom([(0, extent) for extent in extents], f"{name}_k")
        walked = [walk[at] for at in range(len(extents))]
        if around.is_cut_short:  # masked vectors: fewer elements than accumulators end in no memory
            walk.where(hl.likely(walk.x * count + accumulator < open_length))
        parts = hl.Func(f"{name}_parts")
        parts[self._at] = self._first(term, start, accumulator, whole * count)
        parts[self._at] = combine(
            hl.Expr(parts[self._at]), term(walk.x * count + accumulator, *walked[:0:-1])
        )
        self._functions = {f"{name}_parts": parts}
        self._walked = tuple(
            (var.name(), extent if isinstance(extent, int) else 0)
            for var, extent in zip(walked, extents, strict=True)
        )
        if around.columns:
            joined = [hl.Expr(parts[self._at_accumulator(number)]) for number in range(count)]
        else:
            joined = self._halved(parts, combine)
        total = hl.Func(name)
        # strict: what reads it may ask whether it is infinite or NaN
        total[around.variables] = strict(reduce(combine, joined))
        self._functions[name] = total
        for function in self._functions.values():
            function.compute_root()  # steps place it closer

    def _halved(self, parts: hl.Func, combine: Combine) -> list[hl.Expr]:
        """Return the accumulators after halves are combined as vectors."""
        left, at = parts, hl.Var(ACCUMULATOR)
        for width in _halves(self._around.accumulators):
            stage = f"{self.name}_{width}"
            halves = hl.Func(stage)
            one, other = (hl.Expr(left[self._at_accumulator(to)]) for to in (at, at + width))
            halves[self._at_accumulator(at)] = combine(one, other)
            self._functions[stage] = halves
            left = halves
        count = _narrowest(self._around.accumulators)
        if count == 1:
            return [hl.Expr(left[self._at_accumulator(0)])]
        four = [hl.Expr(left[self._at_accumulator(number)]) for number in range(count)]
        return [combine(*pair) for pair in zip(four[::2], four[1::2], strict=True)]

    def _at_accumulator(self, number: Any) -> tuple[Any, ...]:
        return (*self._around.columns, number, *self._around.rows)

    def _first(self, term: Term, start: hl.Expr, at: hl.Var, done: Any) -> hl.Expr:
        """Return the start of an accumulator: the element behind `done`, or nothing."""
        length, count = self._around.open_length, self._around.accumulators
        is_whole = length is not None and not self._around.columns  # or masked at the end
        if length is None:
            length, is_whole = self._around.length, done == self._around.length
        if is_whole:
            return start
        if self._around.columns:  # each accumulator is a vector of its own
            behind = hl.clamp(at + done, 0, length - 1)
            return hl.select(at < length - done, term(behind), start)
        # the last of the row as one vector, from which what was done is left out
        return hl.select(at >= count - (length - done), term(at + (length - count)), start)

    def value(self) -> hl.Expr:
        """Return the result for the loop variables of the place."""
        return self._functions[self.name][self._around.variables]

    @property
    def stages(self) -> dict[str, Any]:
        """The functions by the names steps use."""
        parts = f"{self.name}_parts"
        return {**self._functions, f"{parts}{UPDATE}": self._functions[parts].update()}

    @property
    def loops(self) -> dict[str, tuple[tuple[str, int], ...]]:
        """Their loops, innermost first; 0 where an extent is another stage's choice."""
        parts, count = f"{self.name}_parts", self._around.accumulators
        known = {parts: count} | {f"{self.name}_{width}": width for width in _halves(count)}
        made = {
            name: tuple(
                (v.name(), self._extent(v.name(), known.get(name, 0))) for v in function.args()
            )
            for name, function in self._functions.items()
        }
        return {**made, f"{parts}{UPDATE}": (*self._walked, *made[parts])}

    def _extent(self, loop: str, accumulators: int) -> int:
        if loop == ACCUMULATOR:
            return accumulators
        columns = self._around.columns
        return self._around.vector if columns and loop == columns[0].name() else 0


def _narrowest(accumulators: int) -> int:
    """Return the number of accumulators that are combined as scalars, not as vectors."""
    return min(accumulators, _SCALARS)


def halves_of(around: OuterLoops) -> list[int]:
    """Return the numbers of accumulators of a reduction that are left by each of its halvings."""
    return _halves(around.accumulators)


def _halves(accumulators: int) -> list[int]:
    """Return the numbers of accumulators that are left by each combination of halves."""
    found, width = [], accumulators
    while width > _SCALARS:
        width //= 2
        found.append(width)
    return found


def fold_steps(name: str, around: OuterLoops, at_stage: str, at: str | None) -> list[Step]:
    """Return steps that compute a reduction in vectors.

    Args:
        name: Of the reduction.
        around: Where it is computed.
        at_stage: Stage of the loop it is computed in.
        at: The loop; None computes it before everything else.
    """
    parts, count = f"{name}_parts", around.accumulators
    widths = {} if around.columns else {f"{name}_{width}": width for width in _halves(count)}
    steps: list[Step] = []
    for stage in (parts, *widths, name):
        if at is not None:
            steps.append(ComputeAt(stage, at_stage, at))
        steps.append(StoreIn(stage, Memory.STACK))
    update = f"{parts}{UPDATE}"
    walked = [f"{name}_k${letter}" for letter in "xyzw"[: 1 + len(around.outer)]]
    # accumulators of a row are the lanes of a few registers
    if not around.columns:
        widths |= {parts: count, update: count}
        steps += [
            Vectorize(stage, ACCUMULATOR, width) for stage, width in widths.items() if width > 1
        ]
        return [*steps, Reorder(update, (ACCUMULATOR, *walked))]
    # columns are lanes; accumulators are registers beside each other, none waits for its own sum
    column = around.columns[0].name()
    steps += [Vectorize(stage, column, around.vector) for stage in (parts, update, name)]
    steps.append(Reorder(update, (column, ACCUMULATOR, *walked)))
    if count > 1:
        steps += [Unroll(stage, ACCUMULATOR, count) for stage in (parts, update)]
    return steps


def gathered(
    folds: Sequence[AxisReduction],
) -> tuple[dict[str, Any], dict[str, tuple[tuple[str, int], ...]]]:
    """Return the stages of all reductions, and their loops."""
    stages: dict[str, Any] = {}
    loops: dict[str, tuple[tuple[str, int], ...]] = {}
    for fold in folds:
        stages |= fold.stages
        loops |= fold.loops
    return stages, loops
