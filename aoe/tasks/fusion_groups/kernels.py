"""Kernels that won alone, and the subgraphs that use them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from aoe.bank.operators import key_of
from aoe.bank.records.subgraph import ComputeLevel, FusionGroup
from aoe.device.compiler import KernelSource
from aoe.graph.model_graph import ModelGraph
from aoe.graph.regions import Region
from aoe.results.files import DEFAULT_WAS_BEST, NOTHING_BETTER
from aoe.schedule import ComputeAt, ComputeRoot, Schedule, Split
from aoe.tasks.operators.chosen_kernel import ChosenKernel
from aoe.tasks.operators.operator import TunedOperator
from aoe.tasks.rewrites.lookup import TunedSubgraph
from aoe.tasks.rewrites.subgraphs import Subgraph


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


_HOPELESS = frozenset({NOTHING_BETTER, DEFAULT_WAS_BEST})


class WonKernels:
    """Kernels that are faster alone, by the key of what they compute."""

    def __init__(self, tuned: Mapping[str, TunedOperator]) -> None:
        self._tuned = tuned
        self._won = {key: one for key, one in tuned.items() if one.schedule is not None}
        self._dropped: set[str] = set()

    def chosen(self) -> list[ChosenKernel]:
        """Return the kernels that won, to be compiled."""
        return [
            ChosenKernel(
                source=source_of(one),
                key=key,
                regions=one.operator.regions,
                op_names=one.operator.op_names,
                gain_us=saved_us(one) * len(one.operator.regions),
            )
            for key, one in self._won.items()
        ]

    def drop(self, errors: Mapping[str, str]) -> None:
        """Forget what cannot be compiled, as without the time for it: nothing is decided then."""
        self._dropped |= {key for key, o in self._won.items() if source_of(o).name in errors}
        self._won = {key: o for key, o in self._won.items() if source_of(o).name not in errors}

    def find(self, subgraph: Subgraph, group: FusionGroup) -> TunedOperator | None:
        """Return the kernel of a fusion group, None if there is none."""
        region = subgraph.groups[group].regions[0]
        return self._won.get(key_of(region.workload)) if region is not None else None

    def of(self, subgraph: Subgraph) -> dict[FusionGroup, TunedOperator]:
        """Return the kernels of a subgraph by fusion group."""
        found = {}
        for group in subgraph.groups:
            tuned = self.find(subgraph, group)
            if tuned is not None and tuned.schedule is not None:
                found[replace(group, level=level_of(tuned.schedule))] = tuned
        return found

    def saved_us(self, subgraph: Subgraph) -> float:
        """Return the most the kernels of a subgraph save, all occurrences together, in us."""
        return len(subgraph.occurrences) * sum(saved_us(one) for one in self.of(subgraph).values())

    def is_open(self, subgraph: Subgraph) -> bool:
        """True if a limit, a busy machine or a compiler has left one of its scopes undecided."""
        for group in subgraph.allowed_fusion_groups:
            region = subgraph.groups[group].regions[0]
            key = key_of(region.workload) if region is not None else ""
            one = self._tuned.get(key)
            if key in self._dropped:
                return True
            if one is not None and one.schedule is None and one.reason not in _HOPELESS:
                return True
        return False

    def used(self, graph: ModelGraph, tuned: Iterable[TunedSubgraph]) -> list[TunedOperator]:
        """Return the kernels strategies use, each with just the occurrences where they do."""
        occurrences: dict[str, dict[tuple[int, ...], Region]] = {}
        for one in tuned:
            for group in one.strategy.groups if one.strategy is not None else ():
                for region in one.subgraph.groups[group].regions:
                    if region is not None and key_of(region.workload) in self._won:
                        occurrences.setdefault(key_of(region.workload), {})[region.nodes] = region
        return [
            _at(self._won[key], graph, tuple(found.values())) for key, found in occurrences.items()
        ]


def _at(tuned: TunedOperator, graph: ModelGraph, regions: tuple[Region, ...]) -> TunedOperator:
    names = dict(
        zip((r.nodes for r in tuned.operator.regions), tuned.operator.op_names, strict=True)
    )
    ordered = tuple(sorted(regions, key=lambda region: region.nodes[-1]))
    op_names = tuple(names.get(r.nodes, graph.nodes[r.nodes[-1]].name) for r in ordered)
    return replace(tuned, operator=replace(tuned.operator, regions=ordered, op_names=op_names))


def source_of(tuned: TunedOperator) -> KernelSource:
    """Return the kernel of an operator that was won."""
    assert tuned.schedule is not None
    return KernelSource.of(tuned.operator.workload, tuned.schedule)


def saved_us(tuned: TunedOperator) -> float:
    """Return the time a kernel is proven to save at one occurrence, in us."""
    return (tuned.before_us or 0.0) * (1 - 1 / (tuned.proven_speedup or tuned.speedup or 1.0))
