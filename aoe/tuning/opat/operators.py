"""What there is to tune in a model: distinct workloads, their places, their share of time."""

from __future__ import annotations

from dataclasses import dataclass

from aoe.bank.operators import key_of
from aoe.graph.model_graph import ModelGraph
from aoe.graph.regions import Refusal, Region, partition
from aoe.kernels.registry import FUSIBLE, anchors, classify
from aoe.ort.profile import ModelProfile
from aoe.tuning.precision.plan import PrecisionPlan
from aoe.workload import Workload

_LEAST_ELEMENTS = 16384
"""Workloads that touch fewer elements, all places together, are left alone: a few microseconds.
The rule looks at sizes, not at times, so that every run of a model finds the same operators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A workload of a model.

    Attributes:
        workload: What is computed.
        key: Record key.
        regions: Every place in the model that computes it.
        op_names: Node at the end of each place.
        share: Part of the model's time it takes now, all places together.
        default_us: Time of its nodes in one run of the model, all places together.
    """

    workload: Workload
    key: str
    regions: tuple[Region, ...]
    op_names: tuple[str, ...]
    share: float
    default_us: float

    @property
    def op_name(self) -> str:
        """Name of the first place, for reports."""
        return self.op_names[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundOperators:
    """Operators by falling share of time, and what is left to ONNX Runtime."""

    operators: tuple[Operator, ...]
    refusals: tuple[Refusal, ...]


def find_operators(
    graph: ModelGraph, profile: ModelProfile, plan: PrecisionPlan | None = None
) -> FoundOperators:
    """Cut the model into regions and group equal ones.

    Args:
        graph: ONNX Runtime's optimised model.
        profile: Where its time goes.
        plan: In which precisions regions are tuned, each as an operator of its own; without one
            all keep float32.
    """
    chosen = classify if plan is None else plan.classify
    parts = partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=chosen)
    regions, refused = (parts.regions, ()) if plan is None else plan.variants(graph, parts.regions)
    grouped: dict[str, list[Region]] = {}
    for region in regions:
        grouped.setdefault(key_of(region.workload), []).append(region)
    total_us = sum(profile.node_us.values()) or 1.0
    operators, refusals = [], [*parts.refusals, *refused]
    for key, equal in grouped.items():
        operator = _operator(graph, profile, key, equal, total_us)
        elements = _touched_elements(operator.workload) * len(equal)
        if elements >= _LEAST_ELEMENTS:
            operators.append(operator)
            continue
        reason = f"touches {elements} elements only"
        refusals.append(
            Refusal(node=operator.op_name, op_type=operator.workload.op_type, reason=reason)
        )
    operators.sort(key=lambda operator: (-operator.share, operator.key))
    return FoundOperators(operators=tuple(operators), refusals=tuple(refusals))


def _operator(
    graph: ModelGraph, profile: ModelProfile, key: str, regions: list[Region], total_us: float
) -> Operator:
    default_us = sum(
        profile.node_us.get(graph.nodes[index].name, 0.0)
        for region in regions
        for index in region.nodes
    )
    return Operator(
        workload=regions[0].workload,
        key=key,
        regions=tuple(regions),
        op_names=tuple(_op_name(graph, region) for region in regions),
        share=default_us / total_us,
        default_us=default_us,
    )


def _touched_elements(workload: Workload) -> int:
    return workload.output.size + sum(spec.size for spec in workload.inputs)


def _op_name(graph: ModelGraph, region: Region) -> str:
    """Return the name of the region's main node: the last that is no reorder."""
    computing = [i for i in region.nodes if not graph.nodes[i].op_type.startswith("Reorder")]
    return str(graph.nodes[computing[-1]].name)
