"""Reductions along one axis: sums, products and extremes in many accumulators at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import halide as hl

from aoe.schedule import Atomic, ComputeAt, Memory, Reorder, Step, StoreIn, Unroll, Vectorize

_ACCUMULATOR = "acc"
_WIDTHS = (64, 32, 16)
"""Accumulators of a long row: 4 vector registers of AVX-512, or fewer if much would be idle."""
_IDLE_SHARE = 8
_PARTS = 4
"""Accumulators per column, where columns are vectors."""
_UPDATE = ".update"

Combine = Callable[[hl.Expr, hl.Expr], hl.Expr]


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """Loops around a reduction, in the order of buffers.

    Attributes:
        columns: Loop variables inside the reduced axis, innermost first; none where the reduced
            axis is the innermost itself.
        rows: Those outside of it, innermost first.
        vector: Extent of the innermost column.
        length: Elements of the reduced axis, 2 or more.
    """

    columns: tuple[hl.Var, ...]
    rows: tuple[hl.Var, ...]
    vector: int
    length: int

    @property
    def variables(self) -> tuple[hl.Var, ...]:
        """All but the reduced axis, innermost first."""
        return (*self.columns, *self.rows)

    @property
    def accumulators(self) -> int:
        """Elements of the reduced axis that are combined apart from each other."""
        if self.columns:
            return min(_PARTS, self.length)
        for width in _WIDTHS:
            idle = -self.length % width
            if width <= self.length and (idle * _IDLE_SHARE <= self.length or width == _WIDTHS[-1]):
                return width
        return 1 << (self.length.bit_length() - 1)


class Fold:
    """A reduction along an axis as two stages: accumulators, and what they are together.

    What the accumulators cannot share out evenly is what they start with, so that nothing is
    computed element by element.

    Args:
        name: Of the stage of the result.
        place: Where it is computed.
        term: The element at a place of the reduced axis.
        start: Neutral element.
        combine: Of two elements.
    """

    def __init__(
        self,
        name: str,
        place: Around,
        term: Callable[[hl.Expr], hl.Expr],
        start: hl.Expr,
        combine: Combine,
    ) -> None:
        self.name = name
        self._place = place
        count, accumulator = place.accumulators, hl.Var(_ACCUMULATOR)
        whole = place.length // count
        self._at = (*place.columns, accumulator, *place.rows)
        walk = hl.RDom([(0, whole)], f"{name}_k")
        parts = hl.Func(f"{name}_parts")
        parts[self._at] = self._first(term, start, accumulator, whole * count)
        parts[self._at] = combine(parts[self._at], term(walk.x * count + accumulator))
        together = hl.RDom([(0, count)], f"{name}_a")
        total = hl.Func(name)
        total[place.variables] = start
        joined = parts[(*place.columns, hl.Expr(together.x), *place.rows)]
        total[place.variables] = combine(total[place.variables], joined)
        for function in (parts, total):
            function.compute_root()  # steps place it closer
        self._parts, self._total = parts, total
        self._walked, self._joined = (walk.x.name(), whole), (together.x.name(), count)

    def _first(
        self, term: Callable[[hl.Expr], hl.Expr], start: hl.Expr, at: hl.Var, done: int
    ) -> hl.Expr:
        """Return what an accumulator starts with: what lies behind element `done`, or nothing."""
        length, count = self._place.length, self._place.accumulators
        if done == length:
            return start
        if self._place.columns:  # each accumulator is a vector of its own
            place = hl.clamp(at + done, 0, length - 1)
            return hl.select(at < length - done, term(place), start)
        # the last of the row as one vector, from which what was done is left out
        return hl.select(at >= count - (length - done), term(at + (length - count)), start)

    def value(self) -> hl.Expr:
        """Return the result for the loop variables of the place."""
        return self._total[self._place.variables]

    @property
    def stages(self) -> dict[str, Any]:
        """The functions by the names steps use."""
        parts = f"{self.name}_parts"
        return {
            parts: self._parts,
            f"{parts}{_UPDATE}": self._parts.update(),
            self.name: self._total,
            f"{self.name}{_UPDATE}": self._total.update(),
        }

    @property
    def loops(self) -> dict[str, tuple[tuple[str, int], ...]]:
        """Their loops, innermost first; 0 where an extent is another stage's choice."""
        known = {_ACCUMULATOR: self._place.accumulators}
        if self._place.columns:
            known[self._place.columns[0].name()] = self._place.vector
        parts = tuple((v.name(), known.get(v.name(), 0)) for v in self._at)
        total = tuple((v.name(), known.get(v.name(), 0)) for v in self._place.variables)
        name = f"{self.name}_parts"
        return {
            name: parts,
            f"{name}{_UPDATE}": (self._walked, *parts),
            self.name: total,
            f"{self.name}{_UPDATE}": (self._joined, *total),
        }


def fold_steps(name: str, place: Around, at_stage: str, at: str | None) -> list[Step]:
    """Return steps that compute a reduction in vectors.

    Args:
        name: Of the reduction.
        place: Where it is computed.
        at_stage: Stage of the loop it is computed in.
        at: The loop; None computes it before everything else.
    """
    steps: list[Step] = []
    parts, count = f"{name}_parts", place.accumulators
    for stage in (parts, name):
        if at is not None:
            steps.append(ComputeAt(stage, at_stage, at))
        steps.append(StoreIn(stage, Memory.STACK))
    update, total, walked = f"{parts}{_UPDATE}", f"{name}{_UPDATE}", f"{name}_k$x"
    if not place.columns:
        steps += [Vectorize(stage, _ACCUMULATOR, count) for stage in (parts, update)]
        steps.append(Reorder(update, (_ACCUMULATOR, walked)))
        return [*steps, Atomic(total), Vectorize(total, f"{name}_a$x", count)]
    column = place.columns[0].name()
    steps += [Vectorize(stage, column, place.vector) for stage in (parts, update, name, total)]
    steps.append(Reorder(update, (column, _ACCUMULATOR, walked)))
    if count > 1:
        steps += [Unroll(stage, _ACCUMULATOR, count) for stage in (parts, update)]
    return steps


def gathered(
    folds: Sequence[Fold],
) -> tuple[dict[str, Any], dict[str, tuple[tuple[str, int], ...]]]:
    """Return the stages of all reductions, and their loops."""
    stages: dict[str, Any] = {}
    loops: dict[str, tuple[tuple[str, int], ...]] = {}
    for fold in folds:
        stages |= fold.stages
        loops |= fold.loops
    return stages, loops
