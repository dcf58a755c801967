"""Products of any number of rows by one matrix, by the schedules of fixed numbers.

A schedule is won for a workload of so many rows, whose kernel nothing of this concerns. The same
steps serve a kernel that takes its rows from its buffers: the last register tile of rows is shifted
inwards. 50 rows in tiles of 8 are seven tiles and read the weights once, where blocks of fixed
numbers of rows compute 64 rows, or read the weights once for each of several blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from aoe.kernels.family import Support
from aoe.kernels.matmul.shape import MatrixProduct, read_product
from aoe.kernels.matmul.tiles import PANELS
from aoe.schedule import Schedule, Step
from aoe.workload import Workload


def read_open_rows(workload: Workload) -> MatrixProduct | None:
    """Return a product in float32 of rows in one loop by one matrix, None for any other workload.

    Several loops over rows have no common tile to shift.
    """
    product = read_product(workload)
    if isinstance(product, Support) or workload.precision.is_lower or product.left_turned:
        return None
    return product if product.has_weights and len(product.rows) == 1 else None


def with_open_rows(workload: Workload, schedule: Schedule, opened: Workload) -> Schedule | None:
    """Return the schedule of a workload for any number of rows, None where there is none.

    Args:
        workload: The product of a fixed number of rows.
        schedule: For it.
        opened: The same of any number of rows, over as many axes as the model has for them.
    """
    fixed, whole = read_product(workload), read_open_rows(opened)
    if schedule.algorithm != PANELS or isinstance(fixed, Support) or whole is None:
        return None
    names = [axis.name for axis in whole.iteration.axes]
    renamed = dict(
        zip([axis.name for axis in fixed.iteration.axes][::-1], names[::-1], strict=False)
    )
    return replace(schedule, steps=tuple(_renamed(step, renamed) for step in schedule.steps))


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
