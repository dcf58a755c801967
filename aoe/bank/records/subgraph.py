"""The record of a subgraph (format E), to and fro: our meaning of its fields.

`docs/formats.md` has the table. In short: `cut` is the number of pieces of the batch a node runs
in, `scopeId` says which nodes are written anew, or become one kernel, together, `fusionType`
whether a node is, and `ubPass` names what was done: a rule with its version and the nodes it took,
a kernel with where its inner values live and its nodes, or a layout.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from aoebank import JsonObject, JsonValue, Record, words_of

_RULE = re.compile(r"(?P<rule>[A-Za-z0-9_.-]+)@(?P<version>[0-9]{1,6})(?:#[0-9]{1,6})?")
_KERNEL = re.compile(r"kernel\.(?P<family>[a-z0-9_]+)\.(?P<level>[a-z]+)(?:#[0-9]{1,6})?")
_PLAIN = "layout.plain"
_CHUNKS = "chunks"
_NS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedRule:
    """A rewrite rule at one place of a subgraph."""

    rule: str  # Its name
    version: int  # Its version
    nodes: tuple[int, ...]  # Positions of the nodes that go, in the order of the subgraph

    def __str__(self) -> str:
        return f"{self.rule}@{self.version}"


class ComputeLevel(StrEnum):
    """Place where intermediate results of one kernel are computed."""

    INLINED = "inlined"
    """In registers: element by element, where the next node reads it."""
    TILE = "tile"
    """For each tile of the result: in registers or the first cache."""
    ROW = "row"
    """For each turn of an outer loop: in the caches."""
    MATERIALISED = "materialised"
    """In memory: all elements before any is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionGroup:
    """Nodes of a subgraph one kernel computes; the kernel has its own record, by its workload."""

    family: str  # Kernel family
    # Their positions in the order of the subgraph, the last one makes the result.
    nodes: tuple[int, ...]
    # What the schedule of its kernel does; it tells, and decides nothing.
    level: ComputeLevel = field(default=ComputeLevel.INLINED, compare=False)

    def __str__(self) -> str:
        return f"{self.family} kernel for {len(self.nodes)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubgraphStrategy:
    """Strategy of a subgraph; an empty one is the default."""

    # Rules that are applied, none of them to a node of another.
    rewrites: tuple[AppliedRule, ...] = ()
    # False to keep ONNX Runtime's blocked layout out of it. There is no third one: its convolutions
    # over NHWC images in float32 are for Arm CPUs with SME, and there it takes them by itself.
    # Source: onnxruntime/core/optimizer/nhwc_transformer.cc.
    blocked: bool = True
    chunks: tuple[int, ...] = ()  # Pieces the batch is cut into; empty for the whole batch at once
    groups: tuple[FusionGroup, ...] = ()  # Nodes that become one kernel each

    def __str__(self) -> str:
        taken = [*(one.nodes for one in self.rewrites), *(one.nodes for one in self.groups)]
        group = group_to_json(self, max((at for nodes in taken for at in nodes), default=0) + 1)
        record = Record(key="-", format="graph", workload={}, strategy={"group": [group]})
        return words_of(record).strategy[0]

    @property
    def is_default(self) -> bool:
        """True if nothing is done."""
        return self == SubgraphStrategy()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFeature:
    """Node as a record describes it."""

    op_type: str  # Its operator
    # Of its inputs; empty for one that is not there or not known.
    shapes: tuple[tuple[int, ...], ...]
    item_bytes: tuple[int, ...]  # Bytes of an element of each input, 0 where not known


def feature_to_json(nodes: Sequence[NodeFeature]) -> list[JsonObject]:
    """Return the only part a subgraph of ours has."""
    struct: list[JsonValue] = [
        {
            "op": node.op_type,
            "in": [list(shape) or [-1] for shape in node.shapes],
            "dsize": list(node.item_bytes),
        }
        for node in nodes
    ]
    return [{"struct": struct}]


def features_from_json(workload: Any) -> tuple[NodeFeature, ...]:
    """Return the node features of a record; none for a record of another engine."""
    parts = workload.get("feature") if isinstance(workload, Mapping) else None
    if not isinstance(parts, list) or len(parts) != 1 or not isinstance(parts[0], Mapping):
        return ()
    struct = parts[0].get("struct")
    try:
        return tuple(
            NodeFeature(
                op_type=str(node["op"]),
                shapes=tuple(() if shape == [-1] else tuple(shape) for shape in node["in"]),
                item_bytes=tuple(node["dsize"]),
            )
            for node in (struct if isinstance(struct, list) else ())
        )
    except (KeyError, TypeError):
        return ()


def group_to_json(strategy: SubgraphStrategy, count: int) -> JsonObject:
    """Return the group of a subgraph with so many nodes."""
    groups = list(range(-1, -count - 1, -1))
    fused = [False] * count
    passes: dict[str, JsonValue] = {}
    for applied in strategy.rewrites:
        passes[_free_name(passes, str(applied))] = list(applied.nodes)
        for at in applied.nodes:
            groups[at], fused[at] = groups[applied.nodes[0]], True
    for group in strategy.groups:
        name = _free_name(passes, f"kernel.{group.family}.{group.level}")
        passes[name] = list(group.nodes)
        for at in group.nodes:
            groups[at], fused[at] = groups[group.nodes[-1]], True
    if not strategy.blocked:
        passes[_PLAIN] = list(range(count))
    if strategy.chunks:
        passes[_CHUNKS] = list(strategy.chunks)
    cut = [max(1, len(strategy.chunks))] * count
    return {
        "cut": list[JsonValue](cut),
        "fusionType": list[JsonValue](fused),
        "scopeId": list[JsonValue](groups),
        "ubPass": passes,
    }


def _free_name(passes: Mapping[str, Any], name: str) -> str:
    """Return a name for one more place of what is done."""
    found, number = name, 1
    while found in passes:
        number += 1
        found = f"{name}#{number}"
    return found


def strategy_of(record: Record) -> SubgraphStrategy:
    """Return the strategy of a record.

    Raises:
        ValueError: it is not one of ours, or was edited into something that makes no sense.
    """
    strategy: Any = record.strategy
    groups = strategy.get("group") if isinstance(strategy, Mapping) else None
    if not isinstance(groups, list) or len(groups) != 1 or not isinstance(groups[0], Mapping):
        raise ValueError("a subgraph of this engine has one group")
    group = groups[0]
    passes, cut = group.get("ubPass"), group.get("cut")
    if not isinstance(passes, Mapping) or not isinstance(cut, list) or not cut:
        raise ValueError("ubPass: must be an object, cut: a list")
    count = len(cut)
    chunks = _positions(passes.get(_CHUNKS, []), _CHUNKS, None)
    if any(item != max(1, len(chunks)) for item in cut):
        raise ValueError(f"cut: does not fit chunks (got {cut!r:.60} and {list(chunks)})")
    if any(chunk < 1 for chunk in chunks):
        raise ValueError(f"{_CHUNKS}: must be positive (got {list(chunks)})")
    rewrites = tuple(_rules(passes, count))
    taken = [at for applied in rewrites for at in applied.nodes]
    if len(set(taken)) < len(taken):
        raise ValueError("ubPass: two rules take the same node")
    return SubgraphStrategy(
        rewrites=rewrites,
        blocked=_PLAIN not in passes,
        chunks=chunks,
        groups=tuple(_groups(passes, count)),
    )


def _groups(passes: Mapping[str, Any], count: int) -> Iterator[FusionGroup]:
    for name, nodes in passes.items():
        match = _KERNEL.fullmatch(name)
        if match is None:
            continue
        positions = _positions(nodes, name, count)
        if not positions or len(set(positions)) < len(positions):
            raise ValueError(f"ubPass: {name} takes no node, or one twice")
        if match["level"] not in tuple(ComputeLevel):
            raise ValueError(f"ubPass: no compute level (got {match['level']!r})")
        level = ComputeLevel(match["level"])
        yield FusionGroup(family=match["family"], nodes=positions, level=level)


def _rules(passes: Mapping[str, Any], count: int) -> Iterator[AppliedRule]:
    for name, nodes in passes.items():
        if name in (_PLAIN, _CHUNKS) or _KERNEL.fullmatch(name):
            continue
        match = _RULE.fullmatch(name)
        if match is None:
            raise ValueError(f"ubPass: no rule of this engine (got {name[:40]!r})")
        positions = _positions(nodes, name, count)
        if not positions:
            raise ValueError(f"ubPass: {name} takes no node")
        yield AppliedRule(rule=match["rule"], version=int(match["version"]), nodes=positions)


def _positions(value: Any, name: str, count: int | None) -> tuple[int, ...]:
    is_list = isinstance(value, list) and all(type(item) is int for item in value)
    if not is_list or any(at < 0 or (count is not None and at >= count) for at in value):
        raise ValueError(f"{name}: must be a list of nodes (got {value!r:.60})")
    return tuple(value)


def cost_us_of(record: Record) -> float | None:
    """Return the measured time of a record, None if it has none."""
    strategy: Any = record.strategy
    time = strategy.get("end2EndTime")
    if isinstance(time, bool) or not isinstance(time, int | float) or time <= 0:
        return None
    return float(time) / _NS


def nanoseconds(time_us: float) -> int:
    """Return a time as records have it."""
    return max(1, round(time_us * _NS))
