"""Products of any number of rows by one matrix, by the schedules of fixed numbers.

A schedule is won for a workload of so many rows, whose kernel nothing of this concerns. The same
steps serve a kernel that takes its rows from its buffers: the last register tile of rows is shifted
inwards. 50 rows in tiles of 8 are seven tiles and read the weights once, where blocks of fixed
numbers of rows compute 64 rows, or read the weights once for each of several blocks.

Products of integers and by weights in blocks are such products, too; tasks of matrix tiles end with
the rows there are, which the function of the glue cuts into tiles of one height.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from aoe.kernels.family import Support
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.iteration import Axis
from aoe.kernels.matmul.blockwise import BLOCKWISE_ALGORITHMS, read_blockwise
from aoe.kernels.matmul.integers import (
    GROUPS,
    INTEGER_PRODUCTS,
    PANELS_AMX,
    read_integer_product,
)
from aoe.kernels.matmul.shape import MatrixProduct, read_product
from aoe.kernels.matmul.tiles import PANELS
from aoe.operators import op_key
from aoe.operators.quantised import BLOCKWISE_PRODUCT
from aoe.schedule import Schedule, Split, Step, Tail
from aoe.workload import Workload

_ALGORITHMS = frozenset({PANELS, *GROUPS, *BLOCKWISE_ALGORITHMS})
_MOST_DOUBLED = 64
"""Rows up to which a task of all rows of a block is one of all rows of a call, if these are no more
than twice as many: each task reads its weights again."""


def read_open_rows(workload: Workload) -> MatrixProduct | None:
    """Return a product of rows in one loop by one matrix, None for any other workload.

    That is one in float32, or of the model's own integers. Several loops over rows have no common
    tile to shift.
    """
    product = _read(workload)
    if isinstance(product, Support) or workload.precision.is_lower or product.left_turned:
        return None
    return product if product.has_weights and len(product.rows) == 1 else None


def _read(workload: Workload) -> MatrixProduct | Support:
    """Return the loops and matrices of a product in float32 or in integers, or why it is none."""
    keys = {op_key(one) for one in workload.operations}
    if BLOCKWISE_PRODUCT in keys:
        blockwise = read_blockwise(workload)
        return blockwise if isinstance(blockwise, Support) else blockwise.product
    if INTEGER_PRODUCTS.isdisjoint(keys):
        return read_product(workload)
    of_integers = read_integer_product(workload)
    return of_integers if isinstance(of_integers, Support) else of_integers.product


def with_open_rows(workload: Workload, schedule: Schedule, opened: Workload) -> Schedule | None:
    """Return the schedule of a workload for any number of rows, None where there is none.

    Args:
        workload: The product of a fixed number of rows.
        schedule: For it.
        opened: The same of any number of rows, over as many axes as the model has for them.
    """
    fixed, whole = _read(workload), read_open_rows(opened)
    if schedule.algorithm not in _ALGORITHMS or isinstance(fixed, Support) or whole is None:
        return None
    steps = schedule.steps
    if schedule.algorithm == PANELS_AMX and fixed.rows:
        steps = tuple(_of_any_rows(step, fixed.rows[-1]) for step in steps)
    names = [axis.name for axis in whole.iteration.axes]
    renamed = dict(
        zip([axis.name for axis in fixed.iteration.axes][::-1], names[::-1], strict=False)
    )
    return replace(schedule, steps=tuple(_renamed(step, renamed) for step in steps))


def _of_any_rows(step: Step, row: Axis) -> Step:
    """Return the split of rows into tasks of matrix tiles with a tail; other steps as they are."""
    if not isinstance(step, Split) or (step.stage, step.var) != (RESULT, row.name):
        return step
    is_whole = step.factor == row.extent <= _MOST_DOUBLED
    return replace(step, factor=step.factor * (1 + is_whole), tail=Tail.GUARD)


def _renamed(step: Step, names: Mapping[str, str]) -> Step:
    """Return a step with other names of loops."""
    changed: dict[str, Any] = {}
    for field in fields(step):
        value = getattr(step, field.name)
        if field.name == "stage" or not isinstance(value, str | tuple):
            continue
        changed[field.name] = (
            names.get(value, value)
            if isinstance(value, str)
            else tuple(names.get(one, one) for one in value)
        )
    return replace(step, **changed)
