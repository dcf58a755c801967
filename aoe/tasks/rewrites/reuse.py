"""What becomes of each subgraph of a model that was tuned before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from aoe.bank.records.subgraph import NodeFeature
from aoe.bank.subgraphs import SubgraphBank
from aoe.tasks.rewrites.earlier import OP_TYPE
from aoe.tasks.rewrites.lookup import SubgraphLookup
from aoe.tasks.rewrites.subgraphs import Subgraph, features_of
from aoe.tuner.mode import JobType
from aoe.tuner.reuse.book import ReuseBook, kind_of
from aoe.tuner.reuse.earlier import EarlierResult
from aoe.tuner.reuse.kinds import Reuse, shape_change

SubgraphReuseBook = ReuseBook[Subgraph, SubgraphLookup, SubgraphBank]


def subgraph_reuse(
    subgraph: Subgraph, lookup: SubgraphLookup, bank: SubgraphBank, base: EarlierResult
) -> Reuse:
    """Return the reuse of a subgraph, and the reason.

    Args:
        subgraph: Of the model.
        lookup: What the banks say.
        bank: Knows the earlier bank, too.
        base: The earlier result.
    """
    kind, reason = kind_of(lookup, _changes(subgraph, bank, base), base)
    return Reuse(
        key=subgraph.graph_id,
        op_type=OP_TYPE,
        op_names=subgraph.place_names,
        kind=kind,
        reason=reason,
    )


def _changes(subgraph: Subgraph, bank: SubgraphBank, base: EarlierResult) -> Iterator[str | None]:
    earlier = base.tasks_of(JobType.SGAT)
    then = bank.base_change(subgraph.graph_id)
    if then is not None:
        yield then or "other options, or noise decided then"
    if subgraph.graph_id in earlier:
        yield base.why_not_looked_up(bank.soc_version, bank.core_num)
    nodes = features_of(subgraph.segment)
    others = [task.subject for task in earlier.values() if task.subject]
    yield nearest_nodes_change(nodes, [*others, *(like.nodes for like in bank.alike(nodes))])


def nearest_nodes_change(
    nodes: Sequence[NodeFeature], others: Iterable[Sequence[NodeFeature]]
) -> str:
    """Return the difference from the most similar subgraph of the same operators.

    Args:
        nodes: Of the subgraph that is to be tuned.
        others: Of those that were tuned before.

    Returns:
        As in `shape changed 56->64`; the empty string if no other has the same operators.
    """
    kinds = [node.op_type for node in nodes]
    alike = [other for other in others if [node.op_type for node in other] == kinds]
    if not alike:
        return ""
    changed = min((_changed(other, nodes) for other in alike), key=len)
    if not changed:
        return "another form of the same operators"
    return f"shape changed {shape_change(changed)}"


def _changed(
    then: Sequence[NodeFeature], now: Sequence[NodeFeature]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the shapes that differ, node by node; an input more or less counts as one."""
    return [
        (before, after)
        for one, other in zip(then, now, strict=True)
        for before, after in _padded(one.shapes, other.shapes)
        if before != after
    ]


def _padded(
    then: Sequence[tuple[int, ...]], now: Sequence[tuple[int, ...]]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    count = max(len(then), len(now))
    filled = [(*shapes, *[()] * (count - len(shapes))) for shapes in (then, now)]
    return list(zip(*filled, strict=True))
