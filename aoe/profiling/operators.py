"""Profiles of operators from the times of nodes; their warm times, and AOE's classes of fusions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import helper

from aoe.errors import RunError
from aoe.graph.fusing import FUSION_CLASSES, FusionGroup, find_groups, without_limits
from aoe.graph.model_graph import ModelGraph, names_read, subgraphs
from aoe.graph.origins import Origins
from aoe.graph.protos import value_info
from aoe.graph.rewrite import InlinedModel, computed_nodes
from aoe.operators import Shape, is_reorder
from aoe.ort.profile import ModelProfile
from aoe.ort.sessions import bound_run, random_feed, session_options, session_source
from aoe.profiling.figures import FusionLimit, OperatorProfile
from aoe.profiling.peak import LeastTime, MachinePeak, NodeWork, OperatorBound
from aoe.profiling.subject import ProfileSubject
from aoe.profiling.work import graph_work


def profile_operators(
    running: onnx.ModelProto,
    graph: ModelGraph,
    inlined: InlinedModel,
    times: ModelProfile,
    *,
    origins: Origins,
    peak: MachinePeak | None,
    by_threads: Mapping[int, ModelProfile] | None = None,
) -> tuple[OperatorProfile, ...]:
    """Return a profile of each node that ran, in the order of the graph.

    Args:
        running: The graph that ran, with kernels as nodes.
        graph: The same with kernels spelled out.
        inlined: Which nodes of `graph` each node of `running` is.
        times: Of the nodes.
        origins: Which nodes of the user's model they compute.
        peak: What the machine does at its best; None leaves rooflines out.
        by_threads: Times with other numbers of threads.
    """
    collected = _Collection(
        graph, inlined, times, origins, peak, by_threads or {}, graph.bytes_touched()
    )
    makers = {name: node.name for node in running.graph.node for name in node.output if name}
    return tuple(
        collected.operator(node, makers)
        for node in running.graph.node
        if node.name in times.node_us
    )


def profile_tuning(
    running: onnx.ModelProto,
    graph: ModelGraph,
    times: ModelProfile,
    *,
    imported: onnx.ModelProto,
    peak: MachinePeak | None,
) -> tuple[OperatorProfile, ...]:
    """Return a profile of each node of a model that is tuned, or of what it was tuned from.

    Kernels are known by the nodes they took the places of: no shape is inferred anew.

    Args:
        running: The graph that ran.
        graph: The graph it was tuned from, which may be the same.
        times: Of the nodes of `running`.
        imported: The user's model.
        peak: What the machine does at its best; None leaves rooflines out.
    """
    places = {node.name: at for at, node in enumerate(graph.nodes)}
    parts: dict[str, tuple[int, ...]] = {}
    for node in running.graph.node:
        names = computed_nodes(node) or (node.name,)
        parts[node.name] = tuple(places[name] for name in names if name in places)
    origins = Origins(imported, graph.proto)
    inlined = InlinedModel(proto=graph.proto, parts=parts)
    return profile_operators(running, graph, inlined, times, origins=origins, peak=peak)


@dataclass(frozen=True, slots=True)
class _Collection:
    """Sources of operator profiles; `model_bytes` are the bytes that all operators touch."""

    graph: ModelGraph
    inlined: InlinedModel
    times: ModelProfile
    origins: Origins
    peak: MachinePeak | None
    by_threads: Mapping[int, ModelProfile]
    model_bytes: int

    def operator(self, node: onnx.NodeProto, makers: Mapping[str, str]) -> OperatorProfile:
        parts = self.inlined.parts[node.name]
        work = graph_work(self.graph, parts) if parts else None
        least = self._least_time(work)
        fused = self._fused(parts)
        median_us = self.times.node_us[node.name]
        reads = (makers[name] for name in names_read(node) if name in makers)
        return OperatorProfile(
            name=node.name,
            op_names=tuple(origin.name for origin in fused),
            op_type=_full_type(node),
            op_types=tuple(origin.op_type for origin in fused),
            reads=tuple(dict.fromkeys(reads)),
            input_shapes=tuple(self._shape(name) for name in node.input if name),
            output_shapes=tuple(self._shape(name) for name in node.output if name),
            dtype=self._dtype(node),
            layout=self._layout(node),
            median_us=median_us,
            min_us=self.times.node_min_us.get(node.name, median_us),
            work=work,
            roofline_us=least.us if least is not None else None,
            bound=least.bound if least is not None else OperatorBound.UNKNOWN,
            us_by_threads={
                threads: times.node_us[node.name]
                for threads, times in self.by_threads.items()
                if node.name in times.node_us
            },
        )

    def _least_time(self, work: NodeWork | None) -> LeastTime | None:
        if work is None or self.peak is None:
            return None
        return self.peak.least_time(work, model_bytes=self.model_bytes)

    def _fused(self, parts: Sequence[int]) -> tuple[onnx.NodeProto, ...]:
        """Return the nodes of the user's model, each once, in the order of the graph's nodes."""
        found = {
            id(origin): origin
            for index in parts
            for origin in self.origins.fused(self.graph.nodes[index])
        }
        return tuple(found.values())

    def _shape(self, name: str) -> Shape | None:
        info = self.graph.find_info(name)
        return None if info is None else info.shape

    def _dtype(self, node: onnx.NodeProto) -> str:
        info = self.graph.find_info(next(filter(None, node.output), ""))
        return "" if info is None else info.dtype

    def _layout(self, node: onnx.NodeProto) -> str:
        """Return the layout of its result, and that of what it reads where it is another."""
        made = self._layout_of(node.output[:1])
        computed = [name for name in node.input if name not in self.graph.initializers]
        read = self._layout_of(computed)
        changes = is_reorder(node) or read != made
        return f"{read} -> {made}" if changes and computed and read != made else made

    def _layout_of(self, names: list[str]) -> str:
        blocked = any(name in self.graph.blocked for name in names)
        return f"NCHW{self.graph.block}c" if blocked else "plain"


def _full_type(node: onnx.NodeProto) -> str:
    return f"{node.domain}:{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type


def fusion_limits(
    imported: onnx.ModelProto, operators: Sequence[OperatorProfile]
) -> tuple[FusionLimit, ...]:
    """Return the fusions of a model, in the order of their first nodes.

    Args:
        imported: The user's model.
        operators: What runs here.
    """
    graph = ModelGraph(imported, {}, block=0)
    lifted = {group.nodes[0]: group for group in find_groups(graph, without_limits(FUSION_CLASSES))}
    owners = {name: operator for operator in operators for name in operator.op_names}
    return tuple(_limit(graph, group, lifted, owners) for group in find_groups(graph))


def _limit(
    graph: ModelGraph,
    group: FusionGroup,
    lifted: dict[int, FusionGroup],
    owners: dict[str, OperatorProfile],
) -> FusionLimit:
    nodes = [graph.nodes[index] for index in group.nodes]
    following = graph.nodes[group.stopped_at] if group.stopped_at is not None else None
    joined = graph.nodes[group.through_cache] if group.through_cache is not None else None
    found = {owners[node.name].name: owners[node.name] for node in nodes if node.name in owners}
    last = owners.get(nodes[-1].name)
    beyond = owners.get(following.name) if following is not None else None
    more = lifted.get(group.nodes[0])
    return FusionLimit(
        fusion_class=group.fusion_class.name,
        op_names=tuple(node.name for node in nodes),
        op_types=tuple(node.op_type for node in nodes),
        through_cache=joined.name if joined is not None else "",
        stop=group.stop,
        stopped_at=following.name if following is not None else "",
        stopped_type=following.op_type if following is not None else "",
        without_limits=len(more.nodes) if more is not None else len(nodes),
        runs_as=len(found),
        goes_on_here=last is not None and last is beyond,
        median_us=sum(operator.median_us for operator in found.values()),
    )


_LEAST_SHARE = 0.01
"""Of the time of all operators; others are not worth a session of their own."""
_RUNS = 20


def with_warm_times(
    operators: Sequence[OperatorProfile], subject: ProfileSubject, threads: int
) -> tuple[OperatorProfile, ...]:
    """Return the operators; the slow ones have the time they need on warm operands.

    Operators whose shapes are not proven, or which cannot be run alone, stay as they are.

    Args:
        operators: Of the model.
        subject: The model.
        threads: Of their runs.
    """
    least_us = _LEAST_SHARE * sum(operator.median_us for operator in operators)
    nodes = {node.name: node for node in subject.running.graph.node}
    return tuple(
        replace(operator, warm_us=_warm_us(nodes[operator.name], subject, threads))
        if operator.median_us >= least_us
        else operator
        for operator in operators
    )


def _warm_us(node: onnx.NodeProto, subject: ProfileSubject, threads: int) -> float | None:
    model = single_node_model(node, subject.graph, subject.running)
    if model is None:
        return None
    options = session_options(threads=threads, optimize=False, library=subject.library)
    try:
        session = subject.device.open_session(session_source(model, options), options)
        run = bound_run(session, random_feed(session, seed=0))
    except RunError:
        return None  # made-up operands are not what it takes
    sample = subject.device.timer(run, repeats=1)
    return float(np.median([sample() for _ in range(_RUNS)]))


def single_node_model(
    node: onnx.NodeProto, graph: ModelGraph, running: onnx.ModelProto
) -> onnx.ModelProto | None:
    """Return a model of one node with its constants, None where a shape is not proven.

    Args:
        node: One of `running`.
        graph: Knows shapes and constants.
        running: The model the node is taken from.
    """
    if any(True for _ in subgraphs(node)):
        return None
    names = dict.fromkeys(names_read(node))
    computed = [name for name in names if name not in graph.initializers]
    made = [name for name in node.output if name]
    infos = {name: graph.find_info(name) for name in (*computed, *made)}
    if not computed or any(info is None for info in infos.values()):
        return None
    values = {name: value_info(name, info) for name, info in infos.items() if info is not None}
    alone = helper.make_graph(
        [node],
        "alone",
        [values[name] for name in computed],
        [values[name] for name in made],
        [graph.initializers[name] for name in names if name in graph.initializers],
    )
    return helper.make_model(
        alone,
        opset_imports=running.opset_import,
        ir_version=running.ir_version,
        functions=running.functions,
    )
