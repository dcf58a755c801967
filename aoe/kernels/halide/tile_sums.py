"""Sums in the CPU's matrix tiles (AMX), by a function of the glue: Halide's bindings know none."""

from __future__ import annotations

import halide as hl

REDUCED = 32
"""Products summed by one instruction: 64 bytes of bfloat16."""
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
