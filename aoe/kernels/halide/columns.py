"""Kernels that walk an axis for a tile of columns at once: the columns are what a vector holds.

What is kept between the walks (peaks, sums, places) is made in each tile, small enough for the
caches: it is the tile that is shared out to the threads, never the axis.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from aoe.kernels.family import KernelTarget, Support
from aoe.kernels.halide.anchored import Anchored, AnchoredNest, plan_nest, split_at_anchor
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.iteration import Axis, axis_names
from aoe.kernels.halide.tiling import (
    LANE,
    best_tasks,
    guided_space,
    inner_steps,
    parallel_steps,
    task_choices,
    tile_choices,
    tile_steps,
    vector_choices,
)
from aoe.operators import OperatorKey
from aoe.schedule import Choice, Knob, Space, Step, Values
from aoe.workload import Workload

TILE, VECTOR, TASKS = "tile", "vector", "tasks"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnTiles:
    """Loops of a result whose columns are walked tile by tile."""

    column: Axis  # The innermost loop
    # Returns the loops around a tile of so many columns, outermost first.
    outer: Callable[[int], tuple[Axis, ...]]
    # Loops of the result inside a tile around its columns, innermost first.
    walked: tuple[str, ...] = ()

    @classmethod
    def of(cls, nest: AnchoredNest, walked: str) -> ColumnTiles:
        """Return the tiles of a nest in which `walked` stays inside a tile."""
        column = nest.axes[-1]

        def outer(tile: int) -> tuple[Axis, ...]:
            return nest.iteration.around(Axis(column.name, tile), (walked, column.name))

        return cls(column=column, outer=outer, walked=(walked,))

    def parts(self, tile: int) -> int:
        """Return the number of tiles to share out."""
        return prod(axis.extent for axis in self.outer(tile))

    def space(
        self,
        work_us: float,
        target: KernelTarget,
        *,
        best_vectors: int,
        tried: int = 3,
        others: Mapping[str, tuple[Choice, ...]] | None = None,
        unlikely: Sequence[Choice] = (),
        order: Sequence[str] = (TILE, VECTOR, TASKS),
        legal: Callable[[Values], bool] = lambda values: True,
    ) -> Space:
        """Return columns of a tile, vector width, tasks, and decisions of the family's own.

        Args:
            work_us: Time of one core for everything.
            target: Vector width and threads.
            best_vectors: Registers of columns in the tile that is tried first.
            tried: Tiles among the first guesses, the nearest to the best.
            others: Choices of the family's own knobs, the likelier first.
            unlikely: Choices of `others` that no first guess has.
            order: Names of all knobs.
            legal: Whether choices that fit the loops may be combined.
        """
        own = others or {}
        vectors = vector_choices(self.column.extent, target.vector_lanes)
        tiles = tile_choices(self.column.extent, vectors[0])
        tasks = task_choices(work_us, self.parts(tiles[0]), target)
        choices: dict[str, tuple[Choice, ...]] = {TILE: tiles, VECTOR: vectors, TASKS: tasks, **own}

        def fits(values: Values) -> bool:
            tile, vector = int(values[TILE]), int(values[VECTOR])
            # a tile that no vector fills would be guarded in the hot loop
            in_vectors = tile == self.column.extent or tile % vector == 0
            return in_vectors and int(values[TASKS]) <= self.parts(tile) and legal(values)

        nearest = sorted(tiles, key=lambda tile: abs(tile - best_vectors * vectors[0]))[:tried]
        counts = (best_tasks(work_us, tasks), 1)
        likely = ([one for one in offered if one not in unlikely] for offered in own.values())
        guesses = [
            {TASKS: count, TILE: tile, VECTOR: vectors[0], **dict(zip(own, chosen, strict=True))}
            for count, tile, *chosen in product(counts, nearest, *likely)
        ]
        in_order = (tuple(guess[name] for name in order) for guess in guesses)
        return guided_space(tuple(Knob(name, choices[name]) for name in order), in_order, fits)

    def steps(self, values: Values) -> tuple[Step, ...]:
        """Return steps that walk the result tile by tile, and share the tiles out."""
        tile, name = int(values[TILE]), self.column.name
        inner, outer = inner_steps(RESULT, name, tile, int(values[VECTOR]), 1), self.outer(tile)
        order = (*([LANE] if inner else []), name, *self.walked)
        return (
            *tile_steps(RESULT, Axis(name, tile), outer, order, inner),
            *parallel_steps(RESULT, outer, int(values[TASKS])),
        )

    def place(self, values: Values) -> str:
        """Return the loop over the tiles, in which what is kept for one is computed."""
        return self.outer(int(values[TILE]))[-1].name


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkPlan:
    """A workload's loops in the terms of an operator that walks one axis."""

    nest: AnchoredNest  # The operator, the chain behind it and their loops
    walked: Axis  # The axis

    @property
    def tiles(self) -> ColumnTiles:
        """Tiles of the innermost axis, in which another one is walked."""
        return ColumnTiles.of(self.nest, self.walked.name)


def plan_walked(
    workload: Workload,
    anchors: Container[OperatorKey],
    axis_of: Callable[[Anchored], int | Support],
    what: str,
) -> WalkPlan | Support:
    """Return the loops of an operator that walks an axis of what is read.

    Args:
        workload: The operator and a chain behind it.
        anchors: What may be the operator.
        axis_of: Returns the dimension that is walked, or why none is.
        what: The operator in a word, for reasons.
    """
    if workload.blocked:
        return Support(f"{what} in the blocked layout")
    parts = split_at_anchor(workload, anchors)
    if isinstance(parts, Support):
        return parts
    if workload.inputs[parts.source].shape != workload.output.shape:
        return Support(f"{what} is broadcast by what follows")
    axis = axis_of(parts)
    if isinstance(axis, Support):
        return axis
    name = axis_names(workload)[axis]
    nest = plan_nest(parts, (name,))
    if isinstance(nest, Support):
        return nest
    return WalkPlan(nest=nest, walked=nest.iteration.axis(name))
