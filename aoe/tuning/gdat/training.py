"""What gradient tuning is given to work with, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from aoe.gradients.cost import CostSample
from aoe.gradients.segmentation import Segmentation
from aoe.gradients.timeline import Timeline
from aoe.gradients.trace import GradientTrace
from aoe.measurement import Measurement, MeasurePolicy, SpeedupEstimate
from aoe.results.files import RepoOutcome
from aoe.results.gradients import GdatReport
from aoe.tuning.policies import step_final_policy, step_screen_policy

DEFAULT_LOOPS = 8
GRID_MIB = (1.0, 5.0, 10.0, 25.0, 50.0, 100.0)
"""Values of `bucket_cap_mb` people try by hand; measured beside the computed groupings."""
T = TypeVar("T")


class Training(Protocol):
    """Seam to the framework: a training run whose gradients can be regrouped between steps.

    Every process of the group makes the same calls and gets the same answers.
    """

    steps: int
    """Training steps run so far."""

    @property
    def model_hash(self) -> int:
        """Identity of the model in a gradient bank."""
        ...

    @property
    def sizes_bytes(self) -> tuple[int, ...]:
        """Sizes of the gradients as the model lists them."""
        ...

    @property
    def world_size(self) -> int:
        """Processes in the group."""
        ...

    @property
    def backend(self) -> str:
        """Communication library of the group."""
        ...

    @property
    def is_first(self) -> bool:
        """True in the process that writes and prints."""
        ...

    @property
    def default(self) -> Segmentation:
        """What the framework does by itself, in the order of readiness known so far."""
        ...

    @property
    def default_name(self) -> str:
        """The same for people."""
        ...

    def order_by(self, trace: GradientTrace) -> bool:
        """Take the order of readiness from a stored trace; False if it does not fit."""
        ...

    def record(self, loops: int) -> GradientTrace:
        """Run training steps and return when their gradients became ready."""
        ...

    def cost_samples(self) -> tuple[CostSample, ...]:
        """Measure the all-reduce of the group at several sizes."""
        ...

    def compare(
        self, candidate: Segmentation, policy: MeasurePolicy, best_ratio: float | None
    ) -> Measurement:
        """Time training steps with a segmentation against the default, in pairs."""
        ...

    def timeline(self, segmentation: Segmentation | None) -> Timeline | None:
        """Return when the groups are really sent; None for the default, None if unknown."""
        ...

    def apply(self, segmentation: Segmentation | None) -> None:
        """Leave the model with a segmentation for good, None for the default."""
        ...

    def from_first(self, value: T) -> T:
        """Return the value of the first process in all of them."""
        ...

    def agree(self, error: Exception | None) -> None:
        """Raise in all processes what the first one brings."""
        ...


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


@dataclass(frozen=True, slots=True, kw_only=True)
class GdatResult:
    """What gradient tuning did.

    Attributes:
        outcome: What became of the record.
        reason: Why, in words.
        segmentation: What the model is left with, None for its default.
        estimate: Speed-up of a training step this run proves; None if it measured or kept nothing.
        stored_speedup: What the bank says about a grouping that was used as it is.
        report: Everything, as the result file has it.
        steps: Training steps that were run.
    """

    outcome: RepoOutcome
    reason: str
    segmentation: Segmentation | None
    estimate: SpeedupEstimate | None
    report: GdatReport
    steps: int
    stored_speedup: float | None = None
