"""Seam to the framework that trains: a run whose gradients can be regrouped between steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar, runtime_checkable

from aoe.gradients.compression import Compression
from aoe.gradients.cost import CostSample
from aoe.gradients.segmentation import Segmentation
from aoe.gradients.timeline import Timeline
from aoe.gradients.trace import GradientTrace
from aoe.measurement import CpuUse, MachineLoad

T = TypeVar("T")


class Training(Protocol):
    """A training run, between two of its steps.

    Every process of the group makes the same calls and gets the same answers.
    """

    steps: int
    """Training steps run so far."""

    compression: Compression | None
    """Type that groupings other than the default are summed in; None for all bits."""

    @property
    def model_name(self) -> str:
        """Name of the model, for people."""
        ...

    @property
    def soc_version(self) -> str:
        """Target whose backward times are measured; names the bank."""
        ...

    @property
    def machine(self) -> Mapping[str, str | int]:
        """Environment of the measurements: machine, device, versions."""
        ...

    @property
    def versions(self) -> Mapping[str, str]:
        """Of the framework, by name."""
        ...

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
        """Grouping the framework uses by itself, in the order of readiness known so far.

        Once `look_at_default` has seen it; computed before. The nearest segments where the
        framework's groups follow another order: for pictures and estimates.
        """
        ...

    def is_default(self, segmentation: Segmentation) -> bool:
        """True if a grouping gives the very groups the framework uses by itself."""
        ...

    def look_at_default(self) -> None:
        """Run training steps until the framework keeps the groups it uses by itself; note them."""
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

    def cost_samples(self, *, briefly: bool = False) -> tuple[CostSample, ...]:
        """Measure the all-reduce of the group at several sizes; briefly: in half a second."""
        ...

    def sample_us(self, segmentation: Segmentation | None, steps: int) -> float:
        """Time some training steps with a segmentation, None for the default.

        Returns:
            Mean time of a step of the slowest process, us; steps that are not timed come first if
            another segmentation was in use before.
        """
        ...

    def step_us(self, steps: int) -> float:
        """Return the median time of some steps with the segmentation in use, slowest process."""
        ...

    def timeline(self, segmentation: Segmentation | None) -> Timeline | None:
        """Return when the groups are really sent; None for the default, None if unknown."""
        ...

    def apply(self, segmentation: Segmentation | None) -> None:
        """Leave the model with a segmentation for good, None for the default."""
        ...

    def compressed(self, compression: Compression, base: Segmentation | None) -> CompressedTraining:
        """Return the same training in which groupings are tried in 16 bits.

        Args:
            compression: The type.
            base: Grouping in full that is its default, None for the framework's own.
        """
        ...

    def usage(self) -> CpuUse:
        """Return the counters of this process as they stand; only differences mean something."""
        ...

    def load_since(self, before: CpuUse) -> MachineLoad:
        """Return the load since `before`, as the process that got the least CPU time saw it."""
        ...

    def from_first(self, value: T) -> T:
        """Return the value of the first process in all of them."""
        ...

    def agree(self, error: Exception | None) -> None:
        """Raise in all processes what the first one brings."""
        ...


class CompressedTraining(Training, Protocol):
    """A training run in which groupings other than the default are summed in 16 bits."""

    def problem(self) -> str | None:
        """Return why it cannot be compressed, None if it can; the same in all processes."""
        ...

    def deviation(self) -> float:
        """Return the deviation of the sums from the full sums, as a share of their length.

        Steps of the training are run for it, with the full sums.
        """
        ...

    def leave_alone(self) -> None:
        """Give the model its default back, in full and without asking other processes."""
        ...


@runtime_checkable
class TrainingProgram(Protocol):
    """A program that trains a model and lets its gradients be tuned on the way."""

    @property
    def name(self) -> str:
        """Name of the program, for people."""
        ...

    def run(self, tune: Callable[[Training], T]) -> tuple[T, int]:
        """Run it to its end; return what `tune` made of its training, and its exit code.

        Raises:
            RunError: the program failed, or ended before there was enough to tune with.
        """
        ...
