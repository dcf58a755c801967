"""Base of the tiled contractions: products summed up in a tile of registers.

A tile holds the sums of some blocks of channels for some columns and rows of results. What meets
it is loaded once for all of them, so large tiles load least; how large a tile can be, the register
file decides: sums that do not fit go to memory and back for every product.

Tasks are groups of rows of tiles (`group`), which copy what they read for themselves, or panels of
channels (`image`), after one copy of the whole image.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, Generic, TypeVar

from aoe import schedule as sch
from aoe.kernels.algorithms import KNOB
from aoe.kernels.family import SUPPORTED, KernelTarget, Pipeline, Support
from aoe.kernels.halide.chain import RESULT
from aoe.schedule import Choice, Knob, Schedule, Space, Step, Values

Plan = TypeVar("Plan")
Tile = tuple[int, int, int]
"""Blocks of channels, columns and rows of results."""
BLOCKS, ACROSS, DOWN, TILE_ROWS, SCOPE = "blocks", "across", "down", "tile_rows", "scope"
GROUP, IMAGE = "group", "image"
"""Scope of the copied image: one group of rows of tiles, or the whole image."""


_ROWS_OF_TASKS, _BLOCKS_OF_TASKS = (1, 2, 4, 7, 8, 14, 16, 28, 56), (2, 4, 8, 16, 32)
"""Rows and blocks of channels of a task whose sums are made in matrix tiles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TiledAlgorithm(ABC, Generic[Plan]):
    """One way to compute a product and its chain: what a register tile is, its cost, its steps."""

    # First guesses it may make: seven at most where all are offered that are of one precision.
    guesses: int
    pools: bool = False  # True if a pooling may end what it computes
    # What a task may be; of two that cost the same, the first is tried first.
    scopes: ClassVar[tuple[str, ...]] = (GROUP, IMAGE)

    def supports(self, plan: Plan) -> Support:
        """Return the reason why it does not compute a product, or cannot gain."""
        return SUPPORTED

    def is_available(self, target: KernelTarget) -> bool:
        """True if a CPU has the instructions."""
        return True

    @abstractmethod
    def pipeline(self, plan: Plan) -> Pipeline:
        """Return the algorithm, not scheduled."""

    @abstractmethod
    def tiles(self, plan: Plan, target: KernelTarget) -> Sequence[Tile]:
        """Return the register tiles that are offered."""

    @abstractmethod
    def rows(self, plan: Plan, target: KernelTarget) -> tuple[int, ...]:
        """Return the numbers of rows of tiles that may be a group, rising."""

    @abstractmethod
    def fits(self, values: Values, plan: Plan, target: KernelTarget) -> bool:
        """True if a configuration is worth a trial."""

    @abstractmethod
    def cost(self, values: Values, plan: Plan, target: KernelTarget) -> float:
        """Return the time of a configuration, in any unit."""

    @abstractmethod
    def steps(self, values: Values, plan: Plan) -> Iterator[Step]:
        """Yield the steps of a configuration."""

    def choices(self, plan: Plan, target: KernelTarget) -> dict[str, tuple[int, ...]]:
        """Return the choices for the numbers of a configuration, ascending."""
        numbers = zip(*self.tiles(plan, target), strict=True)
        tile = zip((BLOCKS, ACROSS, DOWN), numbers, strict=True)
        rising = {name: tuple(sorted(set(found))) for name, found in tile}
        return {**rising, TILE_ROWS: self.rows(plan, target)}

    def ranked(
        self, plan: Plan, target: KernelTarget, name: str
    ) -> list[tuple[float, dict[str, Choice]]]:
        """Return legal configurations of the algorithm `name` with their cost, cheapest first."""
        tiles, rows = self.tiles(plan, target), self.rows(plan, target)
        offered: Iterator[dict[str, Choice]] = (
            {KNOB: name, BLOCKS: blocks, ACROSS: across, DOWN: down, TILE_ROWS: high, SCOPE: scope}
            for scope, (blocks, across, down), high in product(self.scopes, tiles, rows)
        )
        return cheapest_first(
            offered,
            lambda values: self.fits(values, plan, target),
            lambda values: self.cost(values, plan, target),
        )


def parts_in_matrix_tiles(blocks: int) -> list[Tile]:
    """Return the blocks of channels, of so many, whose sums a task may make in matrix tiles."""
    return [(number, 1, 1) for number in sorted({min(one, blocks) for one in _BLOCKS_OF_TASKS})]


def rows_in_matrix_tiles(rows: int) -> tuple[int, ...]:
    """Return the rows, of so many, that may be a task in matrix tiles; they need not divide."""
    return tuple(sorted({number for number in (*_ROWS_OF_TASKS, rows) if number <= rows}))


def groups_fit(values: Values, rows: int) -> bool:
    """True if groups are inside an image of so many rows of tiles, and an image is not cut."""
    return int(values[TILE_ROWS]) <= (1 if values[SCOPE] == IMAGE else rows)


def group_steps(values: Values, inner: Iterable[str], rows: str = "h") -> Iterator[Step]:
    """Yield steps that cut the rows of tiles into groups where groups are tasks, and order loops.

    Args:
        values: The configuration.
        inner: Loops of the result inside a group, innermost first.
        rows: Loop over the rows of tiles.
    """
    if values[SCOPE] == GROUP:
        yield sch.Split(RESULT, rows, "group", rows, int(values[TILE_ROWS]), sch.Tail.GUARD)
        yield sch.Reorder(RESULT, (*inner, "group", "n"))
    else:
        yield sch.Reorder(RESULT, (*inner, "n"))


def copy_steps(values: Values, stage: str, channels: str) -> Iterator[Step]:
    """Yield steps that copy an image: rows of it in each group, or as a whole on all cores."""
    if values[SCOPE] == GROUP:
        yield sch.ComputeAt(stage, RESULT, "group")
    else:
        yield sch.ComputeRoot(stage)
        yield sch.Parallel(stage, "n")
        yield sch.Parallel(stage, channels)


def task_steps(values: Values, blocks: str = "b") -> Iterator[Step]:
    """Yield steps that share out images, and in each groups of rows or blocks of channels.

    Args:
        values: The configuration.
        blocks: Loop over the blocks.
    """
    yield sch.Parallel(RESULT, "n")
    yield sch.Parallel(RESULT, "group" if values[SCOPE] == GROUP else blocks)


def tile_of(values: Values) -> Tile:
    """Return the register tile of a configuration."""
    blocks, across, down = (int(values[name]) for name in (BLOCKS, ACROSS, DOWN))
    return blocks, across, down


def tiled_space(
    algorithms: Mapping[str, TiledAlgorithm[Plan]],
    plan: Plan,
    target: KernelTarget,
    guesses: Iterable[Values],
) -> Space:
    """Return the space of several algorithms: register tile, groups of rows, and what a task is.

    Args:
        algorithms: Algorithms that compute `plan`, by name, the best first.
        plan: What is computed.
        target: Registers, caches and threads.
        guesses: First guesses.
    """
    offered = [algorithm.choices(plan, target) for algorithm in algorithms.values()]
    numbers = {
        name: tuple(sorted({number for choices in offered for number in choices[name]}))
        for name in (BLOCKS, ACROSS, DOWN, TILE_ROWS)
    }
    knobs = (
        Knob(KNOB, tuple(algorithms)),
        *(Knob(name, choices) for name, choices in numbers.items()),
        Knob(SCOPE, (GROUP, IMAGE)),
    )

    def legal(values: Values) -> bool:
        return algorithms[str(values[KNOB])].fits(values, plan, target)

    return Space(knobs=knobs, constraint=legal, first_guesses=tuple(guesses))


def tiled_schedule(
    algorithms: Mapping[str, TiledAlgorithm[Plan]], plan: Plan, values: Values
) -> Schedule:
    """Return the steps of a configuration of `tiled_space`."""
    name = str(values[KNOB])
    return Schedule(tuple(algorithms[name].steps(values, plan)), algorithm=name)


def cheapest_first(
    offered: Iterable[dict[str, Choice]],
    fits: Callable[[Values], bool],
    cost: Callable[[Values], float],
) -> list[tuple[float, dict[str, Choice]]]:
    """Return the configurations that fit with their cost, the cheapest first."""
    found = [(cost(values), values) for values in offered if fits(values)]
    return sorted(found, key=lambda item: item[0])


def combinations(knobs: Iterable[Knob]) -> Iterator[dict[str, Choice]]:
    """Yield every combination of what may be chosen, legal or not."""
    names, offered = zip(*((knob.name, knob.choices) for knob in knobs), strict=True)
    for choices in product(*offered):
        yield dict(zip(names, choices, strict=True))


def several(loops: Mapping[str, int]) -> dict[str, int]:
    """Return the loops of more than one iteration."""
    return {name: extent for name, extent in loops.items() if extent > 1}


def register_steps(
    stages: Iterable[str], vector: tuple[str, int], written_out: Mapping[str, int]
) -> Iterator[Step]:
    """Yield steps that put stages into registers: one loop is a vector, the others are unrolled.

    Args:
        stages: Sums, and what is made of them.
        vector: Loop that becomes a vector, and its elements.
        written_out: Iterations of the other loops of a tile, which are unrolled: an index into
            registers must be known when the kernel is compiled.
    """
    for stage in stages:
        yield sch.Vectorize(stage, *vector)
        for name, factor in written_out.items():
            yield sch.Unroll(stage, name, factor)
