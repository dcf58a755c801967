"""Subgraphs to tune in a model: the distinct ones, and the rewrites and kernels of each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from aoe.bank.records.subgraph import AppliedRule, FusionGroup, NodeFeature, SubgraphStrategy
from aoe.graph.fusing import FusionRuling
from aoe.graph.model_graph import ModelGraph, attributes_of
from aoe.graph.regions import Region
from aoe.graph.rewrites.protocol import RewriteMatch, RewriteRefusal, RewriteRule
from aoe.graph.rewrites.registry import ONLY_AT_O1
from aoe.graph.rewrites.registry import RULES as WRITTEN_RULES
from aoe.graph.subgraphs.chunks import chunkings
from aoe.graph.subgraphs.identity import graph_id
from aoe.graph.subgraphs.partition import partition
from aoe.graph.subgraphs.plain import is_blocked_by_default
from aoe.graph.subgraphs.rewrite_candidates import find_rewrites
from aoe.graph.subgraphs.segment import Segment, cut_out
from aoe.ort.transformers_optimizer import OFFLINE_RULE
from aoe.profiling.work import graph_work
from aoe.results.progress_log import TaskLine
from aoe.tuner.mode import OptimizationLevel
from aoe.tuner.parts import EngineParts

RULES: Mapping[str, RewriteRule] = MappingProxyType(
    {**WRITTEN_RULES, OFFLINE_RULE.name: OFFLINE_RULE}
)
"""What rewrites are made by: the rules of the engine, then ONNX Runtime's offline optimiser."""
_ITEM_BYTES = {"bool": 1, "float16": 2, "float64": 8, "int16": 2, "int64": 8, "int8": 1, "uint8": 1}
_OPERATIONS_PER_BYTE = 10
"""Where operations and memory take equally long: some 200 GFLOP/s and 20 GB/s on two cores."""
_GEOMETRY = ("kernel_shape", "strides", "dilations")


def rules_of(engine: EngineParts) -> Mapping[str, RewriteRule]:
    """Return the rewrite rules of a run: all rules unless the run is given others."""
    return RULES if engine.rules is None else engine.rules


def untried_rules(engine: EngineParts, level: OptimizationLevel) -> frozenset[str]:
    """Return the rules a search does not try at a level; what a run is given is always tried."""
    is_given = engine.rules is not None
    return frozenset() if is_given or level is OptimizationLevel.O1 else ONLY_AT_O1


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionCandidate:
    """Nodes of a subgraph that could become one kernel."""

    ruling: FusionRuling  # Whether AOE's classes allow it
    # Positions no other kernel may compute; reorders may be computed by several.
    owned: frozenset[int]
    # What the kernel would compute at each occurrence, None where that is something else.
    regions: tuple[Region | None, ...]
    is_operator: bool = False  # True if operator tuning would cut the first occurrence like that


@dataclass(frozen=True, slots=True, kw_only=True)
class Subgraph:
    """A subgraph of a model, tuned once for all its occurrences."""

    graph_id: str  # Its identity, the record key
    # Every occurrence in the model that computes it; options are of the first.
    occurrences: tuple[Segment, ...]
    # Places of rules in it, of those that are tried.
    matches: Mapping[AppliedRule, RewriteMatch] = field(default_factory=dict)
    # Places of the other rules: they are used where a record says so.
    only_recorded: tuple[AppliedRule, ...] = ()
    refusals: tuple[RewriteRefusal, ...] = ()  # What the rules looked at and left alone
    chunkings: tuple[tuple[int, ...], ...] = ()  # Ways its batch can be cut
    may_be_plain: bool = False  # True if ONNX Runtime's blocked layout could be kept out of it
    # What could become one kernel; of a subgraph of ONNX Runtime's optimised graph.
    groups: Mapping[FusionGroup, FusionCandidate] = field(default_factory=dict)
    # Node of the user's model at the end of each occurrence; none where the occurrences are those
    # of the imported graph, whose nodes have these names.
    model_names: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Its identity as a tuning task."""
        return self.graph_id

    @property
    def segment(self) -> Segment:
        """Its first occurrence."""
        return self.occurrences[0]

    @property
    def op_name(self) -> str:
        """The node at the end of the first occurrence, for messages and reports."""
        return self.occurrence_names[0]

    @property
    def occurrence_names(self) -> tuple[str, ...]:
        """The node at the end of each occurrence, for messages and reports."""
        return self.model_names or tuple(segment.op_names[-1] for segment in self.occurrences)

    @property
    def line(self) -> TaskLine:
        """How the log of a run names it."""
        types = dict.fromkeys(node.op_type for node in self.segment.graph.nodes)
        return TaskLine(key=self.key, name=self.op_name, computes=" + ".join(types))

    @property
    def has_options(self) -> bool:
        """True if there is anything to choose, or a record could say what to do."""
        options = self.matches or self.only_recorded or self.chunkings or self.allowed_fusion_groups
        return self.may_be_plain or bool(options)

    @property
    def allowed_fusion_groups(self) -> tuple[FusionGroup, ...]:
        """Fusion groups that AOE's classes allow."""
        return tuple(group for group, found in self.groups.items() if not found.ruling.why)

    @property
    def options(self) -> tuple[str, ...]:
        """Options in words: a search among other options proves nothing about them."""
        words = [f"{applied} {list(applied.nodes)}" for applied in self.matches]
        words += ["+".join(map(str, chunks)) for chunks in self.chunkings]
        words += [f"{group.family} {list(group.nodes)}" for group in self.allowed_fusion_groups]
        return (*words, *(["plain"] if self.may_be_plain else []))


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSubgraphs:
    """The subgraphs of a model."""

    subgraphs: tuple[Subgraph, ...]  # Those with something to choose, in the order of the model
    without_options: int  # How many distinct ones have nothing to choose
    # Pieces that cannot be tuned by themselves: first node and reason.
    refused: tuple[tuple[str, str], ...]
    work: float = 0.0  # What all have to do, those without options too, see `work_of`
    # Rules that have failed, with the error; the first of each.
    faults: Mapping[str, str] = field(default_factory=dict)


def find_subgraphs(
    graph: ModelGraph,
    rules: Mapping[str, RewriteRule],
    *,
    uneven: bool,
    blocked: bool,
    untried: Collection[str] = (),
) -> FoundSubgraphs:
    """Cut a model into subgraphs and find what could be done with each.

    Args:
        graph: The imported model in the form rules read.
        rules: By name.
        uneven: True if batches may be cut into pieces of different size.
        blocked: True if ONNX Runtime has a layout of its own here.
        untried: Names of rules that are used where a record says so, and not tried.
    """
    rules = {name: rule for name, rule in rules.items() if not rule.is_done_anyway}
    occurrences, refused = occurrences_by_id(graph, rules)
    found = [
        _subgraph(key, segments, rules, untried, uneven=uneven, blocked=blocked)
        for key, segments in occurrences.items()
    ]
    return FoundSubgraphs(
        subgraphs=tuple(subgraph for subgraph in found if subgraph.has_options),
        without_options=sum(not subgraph.has_options for subgraph in found),
        refused=refused,
        work=sum(map(work_of, found)),
        faults=_faults(found),
    )


def _faults(found: Iterable[Subgraph]) -> Mapping[str, str]:
    faults: dict[str, str] = {}
    for refusal in (refusal for subgraph in found for refusal in subgraph.refusals):
        if refusal.is_fault:
            faults.setdefault(refusal.rule, refusal.why)
    return faults


def occurrences_by_id(
    graph: ModelGraph, rules: Mapping[str, RewriteRule]
) -> tuple[dict[str, list[Segment]], tuple[tuple[str, str], ...]]:
    """Return every subgraph of a model by its identity, whether there is anything to choose or not.

    Args:
        graph: The imported model in the form rules read.
        rules: By name; what one of them takes at once is not cut apart.

    Returns:
        The occurrences of each, and the pieces that cannot be tuned: first node and reason.
    """
    together = [
        found.edit.removed
        for rule in rules.values()
        if not rule.is_divisible and not rule.is_done_anyway
        for found in rule.findings(graph)
        if isinstance(found, RewriteMatch)
    ]
    occurrences: dict[str, list[Segment]] = {}
    refused = []
    for run in partition(graph, together):
        segment = cut_out(graph, run)
        if isinstance(segment, str):
            refused.append((graph.nodes[run.start].name, segment))
        else:
            occurrences.setdefault(graph_id(segment), []).append(segment)
    return occurrences, tuple(refused)


def _subgraph(
    key: str,
    segments: Iterable[Segment],
    rules: Mapping[str, RewriteRule],
    untried: Collection[str],
    *,
    uneven: bool,
    blocked: bool,
) -> Subgraph:
    occurrences = tuple(segments)
    found = find_rewrites(occurrences[0], rules)
    return Subgraph(
        graph_id=key,
        occurrences=occurrences,
        matches={one: match for one, match in found.matches.items() if one.rule not in untried},
        only_recorded=tuple(one for one in found.matches if one.rule in untried),
        refusals=found.refusals,
        chunkings=chunkings(occurrences[0], uneven=uneven),
        may_be_plain=blocked and is_blocked_by_default(occurrences[0].graph),
    )


def work_of(subgraph: Subgraph) -> float:
    """Return the work of a subgraph at all its occurrences, to compare it with others.

    In operations; a byte read or written counts as ten. What is not known counts as nothing.
    """
    segment = subgraph.segment
    work = graph_work(segment.graph, range(len(segment.nodes)))
    if work is None:
        return 0.0
    moved = work.weight_bytes + work.activation_bytes
    return float((work.flops or 0) + _OPERATIONS_PER_BYTE * moved) * len(subgraph.occurrences)


def structure_of(segment: Segment) -> Hashable:
    """Return the structure subgraphs share whose gains predict each other: all but extents."""
    return tuple(
        (
            node.op_type,
            *(str(attributes.get(name)) for name in _GEOMETRY),
            attributes.get("group", 1) == 1,
        )
        for node in segment.graph.nodes
        for attributes in (attributes_of(node),)
    )


def features_of(segment: Segment) -> list[NodeFeature]:
    """Return the node features of a subgraph for its record."""
    features = []
    for node in segment.graph.nodes:
        infos = [segment.graph.find_info(name) if name else None for name in node.input]
        features.append(
            NodeFeature(
                op_type=node.op_type,
                shapes=tuple(info.shape if info is not None else () for info in infos),
                item_bytes=tuple(
                    _ITEM_BYTES.get(info.dtype, 4) if info is not None else 0 for info in infos
                ),
            )
        )
    return features


def log_rules(found: FoundSubgraphs, on_event: Callable[[str], None]) -> None:
    """Tell every rule that was tried: what matched, and what was refused and why."""
    for subgraph in found.subgraphs:
        for applied, match in subgraph.matches.items():
            on_event(f"{applied}: matched {', '.join(match.nodes)}")
        for refusal in subgraph.refusals:
            on_event(f"{refusal.rule}: refused {', '.join(refusal.nodes)}: {refusal.why}")
        for group in subgraph.groups.values():
            on_event(str(group.ruling))


DEFAULT = SubgraphStrategy()
"""ONNX Runtime's own way."""
