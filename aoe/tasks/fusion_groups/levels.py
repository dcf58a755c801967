"""Compute level of the intermediate tensors of a fused kernel."""

from __future__ import annotations

from aoe.bank.records.subgraph import ComputeLevel
from aoe.schedule import ComputeAt, ComputeRoot, Schedule, Split


def level_of(schedule: Schedule) -> ComputeLevel:
    """Return the compute level of the producers in a kernel, the furthest from where it is read.

    >>> str(level_of(Schedule()))
    'inlined'
    """
    if any(isinstance(step, ComputeRoot) for step in schedule.steps):
        return ComputeLevel.MATERIALISED
    split = {step.stage for step in schedule.steps if isinstance(step, Split)}
    readers = {step.at_stage for step in schedule.steps if isinstance(step, ComputeAt)}
    if not readers:
        return ComputeLevel.INLINED
    return ComputeLevel.TILE if readers & split else ComputeLevel.ROW
