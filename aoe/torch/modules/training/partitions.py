"""Partition of a joint graph into forward and backward, remembered for the next process.

PyTorch merges equal nodes of the joint graph of AOTAutograd and solves a minimum cut for the values
the backward pass reads. Merging imports Inductor's pattern matcher, which takes longer than most of
the tracing. Both answers depend on the graph alone, so they are kept by its digest. On replay
PyTorch's partitioner does everything else, and each part of a kept answer is checked first.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch._functorch import config, partitioners
from torch._functorch.partitioners import min_cut_rematerialization_partition

_SOLVER = "solve_min_cut"
"""Function of PyTorch's partitioner that decides which values are saved."""
_SPECIAL = ("recompute", "ac_graph_id", "memory_budget", "custom")
"""Marks of checkpoints and of memory budgets on nodes: their graphs are always solved."""
Graphs = tuple[torch.fx.GraphModule, torch.fx.GraphModule]


class Decisions(Protocol):
    """Keeps decisions for the next process; see `loops.LoopCompiler`."""

    def digest(self, *texts: str) -> str:
        """Return a digest of texts."""

    def verdict(self, digest: str) -> str | None:
        """Return a decision of an earlier process, None if there is none."""

    def keep(self, digest: str, reason: str) -> None:
        """Keep a decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """Decisions of PyTorch's partitioner about one joint graph; nodes are given by name."""

    equal: Mapping[str, str]  # Nodes that were merged, and the equal node each one is replaced by
    saved: Sequence[str]  # Nodes whose values the backward pass reads, in order

    @classmethod
    def parse(cls, text: str) -> _Answer | None:
        """Return the answer in a kept text, None if it holds none."""
        try:
            value = json.loads(text)
            equal, saved = value["equal"], value["saved"]
        except (ValueError, KeyError, TypeError):
            return None
        if not isinstance(equal, dict) or not isinstance(saved, list):
            return None
        if not all(isinstance(name, str) for name in (*equal.values(), *saved)):
            return None
        return cls(equal=equal, saved=saved)


def partition(
    find_decisions: Callable[[], Decisions | None],
    joint_module: torch.fx.GraphModule,
    joint_inputs: Any,
    **given: Any,
) -> Graphs:
    """Return the forward and backward graphs of a joint graph, as PyTorch's minimum cut has them.

    Args:
        find_decisions: Returns the store of partitions, None if there is none.
        joint_module: Graph of AOTAutograd, which is changed.
        joint_inputs: Passed on to the partitioner.
        given: Number of results and other arguments of the partitioner.
    """
    own = getattr(partitioners, _SOLVER)
    seen: list[tuple[torch.fx.Graph, Sequence[torch.fx.Node]]] = []

    def solve(joint_graph: torch.fx.Graph, *args: Any, **options: Any) -> Any:
        found, *others = own(joint_graph, *args, **options)
        # such an input holds other numbers in the backward pass: before 2.15 PyTorch fails there
        copies = _copies(joint_graph)
        saved = list(dict.fromkeys(copies.get(node, node) for node in found))
        seen.append((joint_graph, saved))
        return saved, *others

    def solved(solver: Callable[..., Any]) -> Graphs:
        with _solver(solver):
            graphs: Graphs = min_cut_rematerialization_partition(
                joint_module, joint_inputs, **given
            )
        return graphs

    joint_module.graph.eliminate_dead_code()  # as the partitioner does first
    if not _is_plain(joint_module) or (decisions := find_decisions()) is None:
        return solved(solve)
    graph = joint_module.graph
    text = _text(graph, given)
    digest = decisions.digest("partition", text)
    kept = decisions.verdict(digest)
    answer = None if kept is None else _Answer.parse(kept)
    if answer is not None and _merge(graph, answer.equal):
        saved = _saved_nodes(graph, answer.saved, given.get("num_fwd_outputs", 0))
        if saved is not None:
            with config.patch(cse=False):
                return solved(lambda *_, **__: (saved, set()))
    graphs = solved(solve)
    # a kept answer that was merged in part and then refused has changed the graph of the digest
    if answer is None and len(seen) == 1:
        equal = _merged(graph, seen[0][0])
        if equal is not None:
            names = [node.name for node in seen[0][1]]
            decisions.keep(digest, json.dumps({"equal": equal, "saved": names}))
    return graphs


@contextmanager
def _solver(solve: Callable[..., Any]) -> Iterator[None]:
    """Let PyTorch's partitioner ask a function which values are saved.

    Dynamo compiles one graph at a time, so no other graph is partitioned meanwhile.
    """
    own = getattr(partitioners, _SOLVER)
    setattr(partitioners, _SOLVER, solve)
    try:
        yield
    finally:
        setattr(partitioners, _SOLVER, own)


def _is_plain(joint_module: torch.fx.GraphModule) -> bool:
    """True for a graph of functional operators of fixed extents, without marks of checkpoints.

    The same graph may write to an input, or return what is written there: it is not plain.
    """
    if not config.cse or config.activation_memory_budget != 1 or _copies(joint_module.graph):
        return False
    for node in joint_module.graph.nodes:
        if node.op not in ("placeholder", "call_function", "output"):
            return False
        if any(node.meta.get(mark) for mark in _SPECIAL):
            return False
        if node.op == "output":
            continue
        is_item = node.op == "placeholder" or node.target is operator.getitem
        if not is_item and not isinstance(node.target, torch._ops.OpOverload):
            return False
        if not all(map(_is_fixed, _items(node.meta.get("val")))):
            return False
    return True


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, tuple | list) else (value,)


def _is_fixed(value: Any) -> bool:
    """True for no value, or a tensor without symbolic extents."""
    if value is None:
        return True
    return isinstance(value, torch.Tensor) and all(type(extent) is int for extent in value.shape)


def _text(graph: torch.fx.Graph, given: Mapping[str, Any]) -> str:
    """Return everything the partitioner decides by."""
    lines = [str(config.get_hash()), repr(sorted(given.items(), key=lambda item: item[0]))]
    for node in graph.nodes:
        facts = [
            (tuple(one.shape), one.stride(), one.dtype, one.device, one.requires_grad)
            for one in _items(node.meta.get("val"))
            if one is not None
        ]
        tag = node.meta.get("partitioner_tag")
        lines.append(f"{node.op} {node.name} {node.target} {node.args} {node.kwargs} {facts} {tag}")
    return "\n".join(lines)


# ---- equal nodes ----


def _merged(graph: torch.fx.Graph, merged: torch.fx.Graph) -> dict[str, str] | None:
    """Return the nodes that are not in a merged graph, each with the node it was replaced by.

    Args:
        graph: The graph before.
        merged: Its copy behind the merging; nodes that stayed have their names.
    """
    left = {node.name: node for node in merged.nodes}
    equal: dict[str, str] = {}
    for node in reversed(graph.nodes):  # users first: they say what replaces what they read
        other = left.get(equal.get(node.name, node.name))
        if other is None:
            return None
        reads, others = _reads(node), _reads(other)
        if len(reads) != len(others):
            return None
        pairs = zip(reads, others, strict=True)
        equal |= {read.name: new.name for read, new in pairs if read.name != new.name}
    return equal


def _reads(node: torch.fx.Node) -> list[torch.fx.Node]:
    """Return the nodes among the arguments of a node, in order and as often as they occur."""
    found: list[torch.fx.Node] = []
    torch.fx.map_arg((node.args, node.kwargs), found.append)
    return found


def _merge(graph: torch.fx.Graph, equal: Mapping[str, str]) -> bool:
    """Replace nodes by equal ones; False at the first that is not equal to its replacement.

    The graph computes the same in either case.
    """
    earlier: dict[str, torch.fx.Node] = {}
    merged = []
    for node in graph.nodes:
        if (name := equal.get(node.name)) is None:
            earlier[node.name] = node
            continue
        other = earlier.get(name)
        if other is None or not _is_equal(node, other):
            return False
        node.replace_all_uses_with(other)
        merged.append(node)
    if len(merged) != len(equal):
        return False
    for node in reversed(merged):
        graph.erase_node(node)
    return True


def _is_equal(node: torch.fx.Node, other: torch.fx.Node) -> bool:
    """True if two nodes compute the same: one operator, nothing random, the same arguments."""
    return (
        node.op == other.op == "call_function"
        and node.target is other.target
        and not _is_random(node)
        and repr((node.args, node.kwargs)) == repr((other.args, other.kwargs))
    )


def _is_random(node: torch.fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


# ---- saved values ----


def _copies(graph: torch.fx.Graph) -> dict[torch.fx.Node, torch.fx.Node]:
    """Return the inputs that are written to behind the forward pass, each with its only reader.

    Only those that the graph copies before it computes anything from them.
    """
    descriptions = graph.output_node().meta.get("desc") or ()
    written = {getattr(one, "mutated_input", None) for one in descriptions} - {None}
    found = {}
    for node in graph.find_nodes(op="placeholder"):
        if node.meta.get("desc") in written and len(node.users) == 1:
            (reader,) = node.users
            if reader.target is torch.ops.aten.clone.default:
                found[node] = reader
    return found


def _saved_nodes(
    graph: torch.fx.Graph, names: Sequence[str], results: int
) -> list[torch.fx.Node] | None:
    """Return the nodes of these names if the backward pass can be computed from their values.

    None if one is missing, needs a gradient itself, or leaves the backward pass with an input of
    the forward pass or a random number to compute again.

    Args:
        graph: The joint graph, gradients behind the results in its output.
        names: Of the saved nodes.
        results: Number of results of the forward pass.
    """
    by_name = {node.name: node for node in graph.nodes}
    if not all(name in by_name for name in names):
        return None
    saved = [by_name[name] for name in names]
    tangents = {node for node in graph.find_nodes(op="placeholder") if "tangents" in node.target}
    late = set(tangents)
    for node in graph.nodes:
        if not late.isdisjoint(node.all_input_nodes):
            late.add(node)
    if len(set(saved)) != len(saved) or not late.isdisjoint(saved):
        return None
    known = {*saved, *tangents}
    (made,) = graph.output_node().args
    waiting = [node for node in made[results:] if isinstance(node, torch.fx.Node)]
    while waiting:
        node = waiting.pop()
        if node in known:
            continue
        if node.op == "placeholder" or _is_random(node):
            return None
        known.add(node)
        waiting.extend(node.all_input_nodes)
    return saved
