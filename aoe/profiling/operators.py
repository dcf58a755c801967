"""From the times of nodes to profiles of operators: what each computes, and how well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx

from aoe.graph.model_graph import ModelGraph, names_read
from aoe.graph.origins import Origins
from aoe.graph.rewrite import InlinedModel, computed_nodes
from aoe.operators import Shape, is_reorder
from aoe.ort.profile import ModelProfile
from aoe.profiling.figures import OperatorProfile
from aoe.profiling.peak import LeastTime, MachinePeak, NodeWork, OperatorBound
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
    """What profiles of operators are made of; `model_bytes` are those all of them touch."""

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
