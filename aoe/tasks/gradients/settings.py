"""What a user of gradient tuning may choose."""

from __future__ import annotations

from dataclasses import dataclass, field

from aoe.errors import OptionError
from aoe.gradients.compression import Compression
from aoe.measurement import MeasurePolicy, RacePolicy
from aoe.tuner.policies import step_final_policy, step_race_policy

DEFAULT_LOOPS = 8
GRID_MIB = (1.0, 5.0, 10.0, 25.0, 50.0, 100.0)
"""Values of `bucket_cap_mb` people try by hand; measured beside the computed groupings."""

ACCEPT_STEP_SPEEDUP = 1.01
"""Lower bound of the speed-up of a training step. The same bound as for a whole model."""
_FEWEST_LOOPS = 4
"""Of each gradient the three slowest times do not count."""


def checked_loops(run_loop: int | None) -> int:
    """Return the number of backward passes recorded.

    Raises:
        OptionError: `RUN_LOOP` leaves nothing to take a mean of.
    """
    if run_loop is not None and run_loop < _FEWEST_LOOPS:
        raise OptionError(
            "RUN_LOOP",
            "too few for gradient tuning, which leaves the three slowest out",
            got=run_loop,
            expected=f"{_FEWEST_LOOPS} or more",
        )
    return run_loop or DEFAULT_LOOPS


@dataclass(frozen=True, slots=True, kw_only=True)
class GdatSettings:
    """One gradient tuning run.

    Attributes:
        loops: Backward passes that are recorded, more than three.
        repeat_tune: True to tune what the bank already has.
        tuning_time_limit_s: No further grouping is tried after so many seconds; None: no limit.
        grid_mib: Bucket sizes tried beside the computed groupings.
        race: Policy for all candidates beside each other.
        final: Policy for the best one.
        least_speedup: What the lower end of its interval has to exceed.
        accept_busy: True to say nothing of a busy machine.
        compression: What gradients may be summed in, so that results differ in rounding; None for
            all their bits.
    """

    loops: int = DEFAULT_LOOPS
    repeat_tune: bool = False
    tuning_time_limit_s: float | None = None
    grid_mib: tuple[float, ...] = GRID_MIB
    race: RacePolicy = field(default_factory=step_race_policy)
    final: MeasurePolicy = field(default_factory=step_final_policy)
    least_speedup: float = ACCEPT_STEP_SPEEDUP
    accept_busy: bool = False
    compression: Compression | None = None

    def __post_init__(self) -> None:
        if self.loops < _FEWEST_LOOPS:
            raise ValueError(f"loops must be {_FEWEST_LOOPS} or more (got {self.loops})")
        if any(mib <= 0 for mib in self.grid_mib):
            raise ValueError(f"grid_mib must hold sizes above 0 (got {self.grid_mib})")
