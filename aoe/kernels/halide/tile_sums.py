"""Sums in the CPU's matrix tiles (AMX), by a function of the glue: Halide's bindings know none."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import halide as hl

REDUCED = 32
"""Products summed by one instruction: 64 bytes of bfloat16."""
_MOST_READ = 64
"""Levels read by one instruction at most."""
_RESULTS = 16
"""Sums of a tile's row."""
OPERATIONS_PER_US = 1.0e6
BYTES_PER_US = 2.0e4
"""Rough rates of one core, for the order of candidates: 1 TFLOP/s out of tiles and 20 GB/s of
weights from the third-level cache. Measured on a Xeon with AMX (model 167), 2026-11-22."""


def tile_sums(
    name: str,
    data: hl.Func,
    weights: hl.ImageParam,
    strides: tuple[int, int] = (1, 1),
    dilations: tuple[int, int] = (1, 1),
) -> hl.Func:
    """Return the stage that sums a convolution; a matrix product is one of 1 x 1 filters.

    Args:
        name: Of the stage; its loops are o, w, h, b, n.
        data: bfloat16 over (REDUCED, w, h, blocks of the depth, n).
        weights: bfloat16, see `aoe_sum_tiles` in `glue/tiles.c`.
        strides: Rows and columns from one result to the next.
        dilations: Rows and columns from one value of a filter to the next.
    """
    numbers = (*reversed(strides), *reversed(dilations))
    parameters = [data, weights, *(hl.Expr(number) for number in numbers)]
    sums = hl.Func(name)
    sums.define_extern(
        "aoe_sum_tiles",
        [hl.ExternFuncArgument(parameter) for parameter in parameters],
        [hl.Float(32)],
        [hl.Var(loop) for loop in ("o", "w", "h", "b", "n")],
        hl.NameMangling.C,
    )
    sums.bound(sums.args()[0], 0, REDUCED // 2).compute_root()  # steps place it closer
    return sums


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelReads:
    """How levels of 8 bits are read for `level_sums`, and how weights have to lie."""

    depth: int  # Neighbouring levels that are summed up
    pixel: int = 0  # Levels of a pixel, in rows of pixels; 0 for a matrix
    kernel: tuple[int, int] = (1, 1)  # Columns and rows of runs of the depth
    strides: tuple[int, int] = (1, 1)  # Columns and rows from one result to the next
    dilations: tuple[int, int] = (1, 1)  # The same from one run to the next
    flat: int = 0  # Results of a row, where rows of sums are as wide as those read; else 0

    @property
    def steps(self) -> int:
        """Instructions for a run."""
        return -(-self.depth // _MOST_READ)

    @property
    def step(self) -> int:
        """Levels read by one, a multiple of 4."""
        return 4 * -(-self.depth // (4 * self.steps))

    @property
    def run(self) -> int:
        """Levels read for a run: as many as summed up, or some more, where weights are 0."""
        return self.step * self.steps

    @property
    def fours(self) -> int:
        """Fours of weights of a result."""
        return self.kernel[0] * self.kernel[1] * self.run // 4


def level_sums(
    name: str, data: hl.Func | hl.ImageParam, weights: hl.Func | hl.ImageParam, reads: LevelReads
) -> hl.Func:
    """Return the stage that sums products of levels in 32 bits; its loops are o, b, w, h, n.

    Args:
        name: Of the stage.
        data: int8 or uint8, see `aoe_sum_levels` in `glue/tiles.c`.
        weights: int8 over (4 of the depth, 16 results, `fours`, blocks), and as many outer loops
            as have weights of their own.
        reads: How they meet.
    """
    runs = reads.kernel, reads.strides, reads.dilations
    numbers = (reads.pixel, reads.step, reads.steps, *chain.from_iterable(runs), reads.flat)
    parameters = [data, weights, *(hl.Expr(number) for number in numbers)]
    sums = hl.Func(name)
    sums.define_extern(
        "aoe_sum_levels",
        [hl.ExternFuncArgument(parameter) for parameter in parameters],
        [hl.Int(32)],
        [hl.Var(loop) for loop in ("o", "b", "w", "h", "n")],
        hl.NameMangling.C,
    )
    sums.bound(sums.args()[0], 0, _RESULTS).compute_root()  # steps place it closer
    return sums
