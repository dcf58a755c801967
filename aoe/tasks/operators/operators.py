"""Operators to tune in a model: distinct workloads, their occurrences, their share of time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import onnx

from aoe.bank.operators import key_of
from aoe.bank.records.operator import workload_words
from aoe.graph.model_graph import ModelGraph
from aoe.graph.origins import Origins
from aoe.graph.regions import Partition, Refusal, Region, partition, unfuse
from aoe.kernels.registry import FUSIBLE, anchors, classify
from aoe.kernels.roofline import touched_elements
from aoe.operators.model_types import main_type
from aoe.ort.profile import ModelProfile
from aoe.results.progress_log import TaskLine
from aoe.tuner.operator_choice import OperatorChoice
from aoe.tuner.precision.plan import PrecisionPlan
from aoe.workload import Workload
from aoebank import plural

_LEAST_ELEMENTS = 16384
"""Workloads that touch fewer elements, all occurrences together, are left alone: a few
microseconds. The rule looks at sizes, not at times, so that every run of a model finds the same
operators."""
_NODE_ELEMENTS = 1024
"""What a node that becomes part of another one counts for: ONNX Runtime takes about a microsecond
to call it, however small it is. Source: a step of a decoder with 237 nodes, 4 KB each."""

_FLOAT_BYTES = 4
_SETTING_UP_BYTES_PER_S = 100e6
"""Of the constants of an operator, until it can be measured: made up, written, loaded into a
session of the default and one of the candidate, packed by both. Source: the first matrix product of
VGG-19, 411 MB, 4 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelNode:
    """A node of the user's model."""

    name: str
    op_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A workload of a model."""

    workload: Workload  # What is computed
    key: str  # Record key
    regions: tuple[Region, ...]  # Every occurrence in the model that computes it
    op_names: tuple[str, ...]  # Node of the optimised graph at the end of each occurrence
    share: float  # Part of the model's time it takes now, all occurrences together
    # Time of its nodes in one run of the model, all occurrences together; 0 of a block of rows,
    # whose default nobody has timed.
    default_us: float
    # Nodes of the user's model the first occurrence computes, in the order of the model; none
    # where they are not known.
    model_nodes: tuple[ModelNode, ...] = ()

    @property
    def op_name(self) -> str:
        """Name of the first occurrence, for reports: of the node of the user's model that names it.

        That is its product or what walks an axis, else the last node; ONNX Runtime's name only
        where no node of the model is known.
        """
        if not self.model_nodes:
            return self.op_names[0]
        main = main_type(self.workload.operations)
        named = [node for node in self.model_nodes if node.op_type == main]
        return (named or self.model_nodes)[-1].name

    @property
    def computes(self) -> str:
        """Its chain of operations and what it reads, as `aoebank` tells it of a record."""
        return workload_words(self.workload)

    @property
    def line(self) -> TaskLine:
        """How the log of a run names it."""
        return TaskLine(
            key=self.key,
            name=self.op_name,
            computes=self.computes,
            share=round(self.share, 5),
        )

    @property
    def model_op_names(self) -> tuple[str, ...]:
        """Names of all nodes of the user's model that the first occurrence computes."""
        return tuple(node.name for node in self.model_nodes) or self.op_names[:1]

    @property
    def setting_up_s(self) -> float:
        """Seconds until it can be measured, as far as its constants take them."""
        constants = sum(spec.size for spec in self.workload.inputs if spec.constant)
        return _FLOAT_BYTES * constants / _SETTING_UP_BYTES_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundOperators:
    """Operators to tune, and nodes left to ONNX Runtime."""

    # Sums of products and moves with the chain behind them, and normalisations with what turns
    # their channels, by falling share of time; where nothing is found for one, its parts are tuned
    # (`part_operators`).
    fused: tuple[Operator, ...]
    operators: tuple[Operator, ...]  # All others, likewise
    refusals: tuple[Refusal, ...]  # Nodes left alone, with the reason


def find_operators(
    graph: ModelGraph,
    profile: ModelProfile,
    plan: PrecisionPlan | None = None,
    origins: Origins | None = None,
) -> FoundOperators:
    """Cut the model into regions and group equal ones.

    Args:
        graph: ONNX Runtime's optimised model.
        profile: Where its time goes.
        plan: In which precisions regions are tuned, each as an operator of its own; without one
            all keep float32.
        origins: Under which names the user knows the nodes.
    """
    chosen = classify if plan is None else plan.classify
    parts = partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=chosen)
    return group_regions(graph, profile, _variants(graph, parts, plan), origins)


def part_operators(
    graph: ModelGraph,
    profile: ModelProfile,
    found: FoundOperators,
    lost: Iterable[Region],
    plan: PrecisionPlan | None = None,
    origins: Origins | None = None,
    known: dict[tuple[int, ...], Partition] | None = None,
) -> FoundOperators:
    """Return the parts to tune of fused operators for which nothing was found.

    Parts may be fused themselves, of two convolutions each with its chain: those are `fused`.

    Args:
        graph: The model.
        profile: Its times.
        found: From `find_operators`.
        lost: Places of `found.fused`, or of such parts, whose parts are to be tuned; equal parts,
            of other occurrences of the model too, are one operator.
        plan: As there.
        origins: As there.
        known: Parts of places that were cut before, by their nodes; new ones are added. Operators
            are lost one after another, and to cut all places anew each time took a third of a
            short run of EfficientNet-B0.
    """
    chosen = classify if plan is None else plan.classify
    known = {} if known is None else known
    regions = [region for operator in found.operators for region in operator.regions]
    refusals, cut_out = list(found.refusals), list[Region]()
    for region in {region.nodes: region for region in lost}.values():
        if region.nodes not in known:
            cut = unfuse(graph, region, fusible=FUSIBLE, anchors=anchors(), classify=chosen)
            known[region.nodes] = _variants(graph, cut, plan)
        parts = known[region.nodes]
        cut_out += parts.regions
        refusals += parts.refusals
    keys = {key_of(region.workload) for region in cut_out}
    equal = (one for one in found.fused if one.key in keys)
    regions += [*cut_out, *(region for one in equal for region in one.regions)]
    regions.sort(key=lambda region: region.nodes[-1])
    left = Partition(regions=tuple(regions), refusals=tuple(refusals))
    return group_regions(graph, profile, left, origins)


def _variants(graph: ModelGraph, parts: Partition, plan: PrecisionPlan | None) -> Partition:
    """Return every region once for each precision it is tuned in."""
    if plan is None:
        return parts
    regions, refused = plan.variants(graph, parts.regions)
    return Partition(regions=regions, refusals=(*parts.refusals, *refused))


def group_regions(
    graph: ModelGraph, profile: ModelProfile, parts: Partition, origins: Origins | None = None
) -> FoundOperators:
    """Return equal regions as one operator each, without small ones, most of the time first."""
    grouped: dict[str, list[Region]] = {}
    for region in parts.regions:
        grouped.setdefault(key_of(region.workload), []).append(region)
    operators, refusals = [], list(parts.refusals)
    for key, equal in grouped.items():
        operator = _operator(graph, profile, key, equal)
        if origins is not None:
            operator = replace(operator, model_nodes=_model_nodes(graph, equal[0], origins))
        elements = touched_elements(operator.workload) * len(equal)
        spared = sum(len(region.nodes) - 1 for region in equal)
        if elements + _NODE_ELEMENTS * spared >= _LEAST_ELEMENTS:
            operators.append(operator)
            continue
        reason = f"touches {plural(elements, 'element')} only"
        refusals.append(
            Refusal(node=operator.op_name, op_type=operator.workload.op_type, reason=reason)
        )
    operators.sort(key=lambda one: (-one.share, -one.workload.precision.rank, one.key))
    return FoundOperators(
        fused=tuple(item for item in operators if item.regions[0].may_be_unfused),
        operators=tuple(item for item in operators if not item.regions[0].may_be_unfused),
        refusals=tuple(refusals),
    )


def _operator(
    graph: ModelGraph, profile: ModelProfile, key: str, regions: list[Region]
) -> Operator:
    nodes = [graph.nodes[index] for region in regions for index in region.nodes]
    return Operator(
        workload=regions[0].workload,
        key=key,
        regions=tuple(regions),
        op_names=tuple(_op_name(graph, region) for region in regions),
        share=profile.share_of(nodes),
        default_us=profile.us_of(nodes),
    )


def _model_nodes(graph: ModelGraph, region: Region, origins: Origins) -> tuple[ModelNode, ...]:
    """Return the nodes of the user's model that a region computes."""
    return tuple(
        ModelNode(name=node.name, op_type=node.op_type)
        for index in region.nodes
        for node in origins.fused(graph.nodes[index])
        if node.name
    )


class ChosenOperators:
    """The choice of a model's operators to tune.

    Args:
        choice: What the user names.
        graph: The graph the operators are of.
        imported: The model before it was optimised: the user's names are its.
    """

    def __init__(
        self, choice: OperatorChoice, graph: ModelGraph, imported: onnx.ModelProto
    ) -> None:
        self._choice = choice
        self._graph = graph
        self._imported = imported
        self._origins = Origins(imported, graph.proto)

    def __call__(self, operator: Operator) -> bool:
        """True if a node at any of its occurrences has one of the names or types."""
        nodes = [
            node for region in operator.regions for at in region.nodes for node in self._at(at)
        ]
        return self._choice.takes(*_names_and_types(nodes))

    def strangers(self) -> tuple[str, ...]:
        """Return the patterns that match no node of the model, see `OperatorChoice.strangers`."""
        nodes = [*self._imported.graph.node, *self._graph.nodes]
        return self._choice.strangers(*_names_and_types(nodes))

    def _at(self, index: int) -> tuple[onnx.NodeProto, ...]:
        """Return a node of the optimised graph and the imported nodes it was made from."""
        node = self._graph.nodes[index]
        return (node, *self._origins.fused(node))


def _names_and_types(nodes: Iterable[onnx.NodeProto]) -> tuple[list[str], list[str]]:
    """Return the names of nodes and of their results, and their types.

    tf2onnx names nodes anew and keeps TensorFlow's name in that of the result, `dense/MatMul:0`.
    """
    known = list(nodes)
    results = [name for node in known for name in node.output]
    names = [*(node.name for node in known), *results, *(one.removesuffix(":0") for one in results)]
    return [name for name in dict.fromkeys(names) if name], [node.op_type for node in known]


def _op_name(graph: ModelGraph, region: Region) -> str:
    """Return the name of the region's main node: the last that is no reorder."""
    computing = [i for i in region.nodes if not graph.nodes[i].op_type.startswith("Reorder")]
    return str(graph.nodes[computing[-1]].name)
