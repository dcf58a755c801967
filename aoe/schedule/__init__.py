"""The engine's typed strategy: schedules made of steps, and the space they are chosen from.

Kernels that write many kinds of steps import the package as `sch`, as TVM calls a schedule.
"""

from aoe.schedule.space import Choice, Configuration, Knob, Space, Values
from aoe.schedule.steps import (
    STEP_KINDS,
    Atomic,
    ComputeAt,
    ComputeRoot,
    Fuse,
    Memory,
    NeverPartition,
    Parallel,
    Reorder,
    Schedule,
    Split,
    Step,
    StoreIn,
    Tail,
    Unroll,
    Vectorize,
    schedule_from_json,
    schedule_to_json,
    step_text,
)

__all__ = [
    "STEP_KINDS",
    "Atomic",
    "Choice",
    "ComputeAt",
    "ComputeRoot",
    "Configuration",
    "Fuse",
    "Knob",
    "Memory",
    "NeverPartition",
    "Parallel",
    "Reorder",
    "Schedule",
    "Space",
    "Split",
    "Step",
    "StoreIn",
    "Tail",
    "Unroll",
    "Values",
    "Vectorize",
    "schedule_from_json",
    "schedule_to_json",
    "step_text",
]
