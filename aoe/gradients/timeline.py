"""Timeline of a backward pass, and of the all-reduce of each segment behind it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from aoe.gradients.cost import CostModel
from aoe.gradients.segmentation import Segmentation
from aoe.gradients.trace import GradientTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTime:
    """One all-reduce; times count from the start of backward."""

    gradients: int  # How many gradients it holds
    bytes: int  # Their size together
    ready_us: float  # When the last of them is ready
    start_us: float  # When the channel takes it up
    end_us: float  # When all ranks have the sum


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A backward pass with its communication, simulated or measured."""

    segments: tuple[SegmentTime, ...]  # In the order they are sent
    backward_end_us: float  # When the last gradient is ready

    @property
    def end_us(self) -> float:
        """End of backward and communication."""
        return max((segment.end_us for segment in self.segments), default=self.backward_end_us)

    @property
    def tail_us(self) -> float:
        """Time the step waits for communication after backward ended."""
        return max(0.0, self.end_us - self.backward_end_us)

    @property
    def communication_us(self) -> float:
        """Time of all all-reduces together."""
        return sum(segment.end_us - segment.start_us for segment in self.segments)

    @property
    def overlap_ratio(self) -> float:
        """Share of the communication that runs while backward does, 1 if there is none."""
        total_us = self.communication_us
        if total_us <= 0:
            return 1.0
        hidden_us = sum(
            max(0.0, min(segment.end_us, self.backward_end_us) - segment.start_us)
            for segment in self.segments
        )
        return min(1.0, hidden_us / total_us)


def simulate(trace: GradientTrace, segmentation: Segmentation, cost: CostModel) -> Timeline:
    """Return the timeline of one serial channel, as `finish_us` computes it.

    A segment waits for its last gradient and for the segment before it. There is no jitter, and
    communication does not slow the computation down.

    Raises:
        ValueError: the segmentation is of another number of gradients.
    """
    if segmentation.ends[-1] != len(trace):
        raise ValueError(
            f"the segmentation is of {segmentation.ends[-1]} gradients, not {len(trace)}"
        )
    prefix = (0, *accumulate(trace.sizes_bytes))
    segments, end_us = [], 0.0
    for first, end in segmentation.ranges:
        size, ready_us = prefix[end] - prefix[first], trace.ready_us[end - 1]
        start_us = max(end_us, ready_us)
        end_us = start_us + cost.cost_us(size)
        segments.append(
            SegmentTime(
                gradients=end - first,
                bytes=size,
                ready_us=ready_us,
                start_us=start_us,
                end_us=end_us,
            )
        )
    return Timeline(segments=tuple(segments), backward_end_us=trace.backward_end_us)
