"""Kernels that go into a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aoe.device.compiler import KernelSource
from aoe.graph.regions import Region
from aoe.workload import Precision, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenKernel:
    """A kernel that goes into the model.

    Attributes:
        source: Name, workload and schedule.
        key: Record key.
        regions: Places in the model it computes.
        op_names: Node at the end of each place.
        gain_us: Time it has proven, alone, to save in one run of the model, all places together.
        recorded: Workloads of the records it is made of, where these are not those of its parts.
    """

    source: KernelSource
    key: str
    regions: tuple[Region, ...]
    op_names: tuple[str, ...]
    gain_us: float
    recorded: tuple[Workload, ...] = ()

    @property
    def workloads(self) -> tuple[Workload, ...]:
        """Those of the records it is made of."""
        return self.recorded or tuple(part.workload for part in self.source.parts)

    @property
    def name(self) -> str:
        """Name of the kernel."""
        return self.source.name

    @property
    def kind(self) -> str:
        """Its family: kernels of one lose for one reason."""
        return self.source.workload.op_type


def lowest_precision(kernels: Sequence[ChosenKernel]) -> Precision:
    """Return the lowest precision any of the kernels computes in; float32 without any."""
    found = (kernel.source.workload.precision for kernel in kernels)
    lower = [precision for precision in found if precision.is_lower]
    return max(lower, key=lambda precision: precision.rank, default=Precision.FLOAT32)
