"""What a user of gradient tuning may choose."""

from __future__ import annotations

from dataclasses import dataclass, field

from aoe.measurement import MeasurePolicy
from aoe.tuning.policies import step_final_policy, step_screen_policy

DEFAULT_LOOPS = 8
GRID_MIB = (1.0, 5.0, 10.0, 25.0, 50.0, 100.0)
"""Values of `bucket_cap_mb` people try by hand; measured beside the computed groupings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GdatSettings:
    """One gradient tuning run.

    Attributes:
        loops: Backward passes that are recorded, more than three.
        repeat_tune: True to tune what the bank already has.
        tuning_time_limit_s: No further grouping is tried after so many seconds; None: no limit.
        grid_mib: Bucket sizes tried beside the computed groupings.
        screen: Policy for every candidate.
        final: Policy for the best one.
    """

    loops: int = DEFAULT_LOOPS
    repeat_tune: bool = False
    tuning_time_limit_s: float | None = None
    grid_mib: tuple[float, ...] = GRID_MIB
    screen: MeasurePolicy = field(default_factory=step_screen_policy)
    final: MeasurePolicy = field(default_factory=step_final_policy)
