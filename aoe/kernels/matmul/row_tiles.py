"""Register tiles of a product of any rows beside each other: of which a call takes the cheapest.

Rows are a multiple of no tile. The last tile of rows is shifted inwards: 17 rows are three tiles of
6 or of 8, 18 rows computed or 24. A lower tile has registers for more panels of columns: 6 rows by
2048 x 2048 weights of 4 bits, of which a schedule has 2 panels in tiles of 8 rows, take 0.8 of the
time in tiles of 3 panels (a busy Xeon with AVX-512, CPU time, 2026-11-29).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from aoe.kernels.family import KernelTarget, SizedTile, TiledExtent
from aoe.kernels.halide.chain import RESULT
from aoe.schedule import Schedule, Split, Step, Tail, Unroll

MostPanels = Callable[[int, KernelTarget], int]
"""Panels that registers hold in a tile of so many rows; 0 where they do not hold one."""
_HEIGHTS = (9, 8, 7, 6, 5, 4)
"""Rows of the tiles beside that of a schedule."""
_FEW_ROWS = 4
"""Rows of a tile up to which there are lower ones alone, as wide: it may have won for so many."""
_ROW_LOADS, _PANEL_LOADS = 0.5, 1.0
"""Cost of a row of a tile, and of a panel, beside their products: what is loaded of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelTile:
    """Register tiles of some panels of columns, and the stages that make them."""

    stage: str  # That has the columns
    columns: str  # Its loop over them
    panel: int  # Columns of a panel
    sums: Collection[str] | None  # Stages of the sums; None for all others
    panels: str  # Their loop over panels

    def has_sums(self, stage: str) -> bool:
        """True for a stage of the sums."""
        return stage != self.stage if self.sums is None else stage in self.sums


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTiles:
    """What register tiles of the rows of a product are made of."""

    rows: str  # Loop over rows, of the result and of its sums
    panels: int  # Panels of the result
    tile: PanelTile  # Its panels
    most: MostPanels  # See there

    def sized(self, schedule: Schedule, target: KernelTarget) -> Iterator[SizedTile]:
        """Yield a schedule, and the same in tiles of other heights; none where it is not cut so."""
        cuts = [step for step in schedule.steps if isinstance(step, Split) and self._cuts(step)]
        own = {step.var: step.factor for step in cuts}
        rows, columns = own.get(self.rows, 0), own.get(self.tile.columns, 0)
        if not rows or not columns or columns % self.tile.panel:
            return
        shapes = self._shapes(rows, columns // self.tile.panel, target)
        costs = {
            high: tile_cost(high, wide) * -(-self.panels // wide) for high, wide in shapes.items()
        }
        # the search has found its own tile to be the best for the rows of the schedule
        costs[rows] = rows * min(cost / high for high, cost in costs.items())
        for high in (rows, *sorted(set(shapes) - {rows}, reverse=True)):
            made = with_rows(with_panels(schedule, self.tile, shapes[high]), self.rows, high)
            yield SizedTile(schedule=made, size=high, cost=costs[high])

    def _shapes(self, rows: int, panels: int, target: KernelTarget) -> dict[int, int]:
        """Return the panels of the tiles by their rows; those of a few rows have no higher ones."""
        lower = range(1, rows) if rows <= _FEW_ROWS else (1,)
        shapes = {rows: panels} | dict.fromkeys(lower, panels)
        for high in _HEIGHTS if rows > _FEW_ROWS else ():
            wide = min(self.most(high, target), self.panels)
            if wide:
                shapes.setdefault(high, wide)
        return shapes

    def _cuts(self, step: Split) -> bool:
        """True if a step cuts the result into register tiles."""
        cuts_rows = step.var == self.rows and step.tail is Tail.SHIFT_INWARDS
        return step.stage == RESULT and (cuts_rows or step.var == self.tile.columns)

    @property
    def extent(self) -> TiledExtent:
        """Rows of the result, its second dimension, as an extent that tiles cut."""
        return TiledExtent(argument=None, dimension=1, tiles=self.sized)


def tile_cost(rows: int, panels: int) -> float:
    """Return the cost of a register tile: products, and what is loaded for them."""
    return rows * panels + _ROW_LOADS * rows + _PANEL_LOADS * panels


def with_rows(schedule: Schedule, loop: str, count: int) -> Schedule:
    """Return a schedule with register tiles of so many rows.

    Args:
        schedule: Whose last tile of rows is shifted inwards.
        loop: Over rows; a stage that is not cut has those of one tile alone.
        count: Rows of a tile.
    """
    inside = dict[str, str]()  # loops over the rows of a tile, by the stage that is cut
    steps = list[Step]()
    for step in schedule.steps:
        if isinstance(step, Split) and step.var == loop and step.tail is Tail.SHIFT_INWARDS:
            inside[step.stage] = step.inner
            step = replace(step, factor=count)
        elif isinstance(step, Unroll) and step.var == inside.get(step.stage, loop):
            step = replace(step, factor=count)
        steps.append(step)
    return replace(schedule, steps=tuple(steps))


def with_panels(schedule: Schedule, tile: PanelTile, count: int) -> Schedule:
    """Return a schedule with register tiles of so many panels."""
    columns = tile.columns
    inside = dict[tuple[str, str], int]()  # loops over the panels of a tile, which are written out
    steps = list[Step]()
    for step in schedule.steps:
        if isinstance(step, Split) and (step.stage, step.var) == (tile.stage, columns):
            if columns == tile.columns:
                columns = step.inner
                step = replace(step, factor=count * tile.panel)
            else:
                inside[tile.stage, step.outer] = count
        elif isinstance(step, Split) and step.var == tile.panels and tile.has_sums(step.stage):
            inside[step.stage, step.inner] = count
            step = replace(step, factor=count)
        elif isinstance(step, Unroll) and (step.stage, step.var) in inside:
            step = replace(step, factor=count)
        steps.append(step)
    return replace(schedule, steps=tuple(steps))
