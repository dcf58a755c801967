"""Peak rates of a machine, and the least time an operator takes at them.

Roofline model: an operator lasts at least as long as its arithmetic takes in the units, and as long
as its operands take on the way from where they lie. Weights come from the level that holds all the
model touches between two runs, everything else from the level that holds what the operator touches.

Source: S. Williams et al., Roofline, Communications of the ACM 52(4), 2009.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class OperatorBound(StrEnum):
    """Resource that decides the least time of an operator."""

    COMPUTE = "compute"
    MEMORY = "memory"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthLevel:
    """Bandwidth of tensors that together take so much room."""

    name: str  # `l2`, `l3` or `memory`, by what such tensors fit into as a rule
    working_bytes: int  # Read and written by the probe
    bytes_per_us: float  # Read and written in a microsecond, all threads together


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWork:
    """Operations and bytes of an operator by its definition."""

    # Operations; a multiply-add is two. None for operators nothing is known about.
    flops: int | None
    weight_bytes: int  # Constants read
    activation_bytes: int  # Everything else read and written, each tensor once


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastTime:
    """Least time in microseconds at the machine's best, and the resource that decides it."""

    us: float
    bound: OperatorBound


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePeak:
    """Peak rates of a machine with so many threads."""

    threads: int  # Of the probe
    flops_per_us: float  # float32 operations of a large matrix product; a multiply-add is two
    levels: tuple[BandwidthLevel, ...]  # Bandwidths, the smallest working set first

    def __post_init__(self) -> None:
        sizes = [level.working_bytes for level in self.levels]
        if not sizes or sizes != sorted(set(sizes)):
            raise ValueError(f"levels: not of growing working sets (got {sizes})")
        if min(self.flops_per_us, *(level.bytes_per_us for level in self.levels)) <= 0:
            raise ValueError("peak: a rate is not positive")

    def level(self, working_bytes: int) -> BandwidthLevel:
        """Return the level of tensors of that size: of the largest probe that was not larger.

        So the bandwidth is never less than such tensors can have, and a least time is one.
        """
        fitting = [level for level in self.levels if level.working_bytes <= working_bytes]
        return fitting[-1] if fitting else self.levels[0]

    def least_time(self, work: NodeWork, *, model_bytes: int) -> LeastTime:
        """Return the least time an operator can take.

        Args:
            work: What it has to do.
            model_bytes: What one run of its model reads and writes.
        """
        touched = work.weight_bytes + work.activation_bytes
        around = self.level(max(model_bytes, touched))
        moving_us = work.weight_bytes / around.bytes_per_us
        moving_us += work.activation_bytes / self.level(touched).bytes_per_us
        computing_us = (work.flops or 0) / self.flops_per_us
        if computing_us >= moving_us and computing_us > 0:
            return LeastTime(us=computing_us, bound=OperatorBound.COMPUTE)
        return LeastTime(us=moving_us, bound=OperatorBound.MEMORY)
