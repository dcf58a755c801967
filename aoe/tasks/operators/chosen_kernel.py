"""Kernels that go into a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aoe.device.compiler import KernelSource
from aoe.graph.regions import Region
from aoe.tasks.operators.operator import TunedOperator
from aoe.workload import Precision, Workload

_FASTER = 1.02


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenKernel:
    """A kernel that goes into the model."""

    source: KernelSource  # Name, workload and schedule
    key: str  # Record key
    regions: tuple[Region, ...]  # Places in the model it computes
    op_names: tuple[str, ...]  # Node at the end of each occurrence
    # Time it has proven, alone, to save in one run of the model, all occurrences together.
    gain_us: float
    # Workloads of the records it is made of, where these are not those of its parts.
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


def lowest_precision(
    kernels: Sequence[ChosenKernel], graph: Precision = Precision.FLOAT32
) -> Precision:
    """Return the lowest precision any of the kernels computes in, or the graph without them."""
    found = (graph, *(kernel.source.workload.precision for kernel in kernels))
    lower = [precision for precision in found if precision.is_lower]
    return max(lower, key=lambda precision: precision.rank, default=Precision.FLOAT32)


def kernels_of(tuned: Sequence[TunedOperator]) -> list[ChosenKernel]:
    """Return the kernels that have won alone, by their names: shares are noisy, names are not."""
    found = [_chosen(item) for item in worth_lowering(tuned) if item.schedule is not None]
    return sorted(found, key=lambda kernel: kernel.source.name)


def _chosen(tuned: TunedOperator) -> ChosenKernel:
    assert tuned.schedule is not None
    workload = tuned.operator.workload
    return ChosenKernel(
        source=KernelSource.of(workload, tuned.schedule),
        key=tuned.operator.key,
        regions=tuned.operator.regions,
        op_names=tuned.operator.op_names,
        gain_us=tuned.saved_us * len(tuned.operator.regions),
    )


def worth_lowering(operators: Sequence[TunedOperator]) -> tuple[TunedOperator, ...]:
    """Return operators without those of lower precision that a higher one is as fast as.

    Speeds are compared as the bank keeps them, so that a second run chooses alike.
    """
    best: dict[str, dict[Precision, float]] = {}
    for tuned in operators:
        for region in tuned.operator.regions:
            best.setdefault(region.output, {})[tuned.operator.workload.precision] = _speedup(tuned)

    def is_faster(tuned: TunedOperator) -> bool:
        precision = tuned.operator.workload.precision
        higher = [
            speedup
            for region in tuned.operator.regions
            for known, speedup in best[region.output].items()
            if known.rank < precision.rank
        ]
        return _speedup(tuned) > _FASTER * max(higher, default=0.0)

    return tuple(
        tuned
        for tuned in operators
        if not tuned.operator.workload.precision.is_lower or is_faster(tuned)
    )


def _speedup(tuned: TunedOperator) -> float:
    """Return the speed-up over ONNX Runtime, 1 where there is none."""
    found = tuned.speedup if tuned.schedule is not None else None
    return round(found, 4) if found is not None else 1.0
