"""Subgraphs of an earlier run (bank, `subgraph_tuning/`, tuned model), and their reuse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from aoe.bank.records.subgraph import NodeFeature, features_from_json
from aoe.bank.remembered import remembered_from_json
from aoe.bank.subgraphs import SubgraphBank
from aoe.om.file import Manifest
from aoe.tasks.rewrites.lookup import SubgraphLookup
from aoe.tasks.rewrites.subgraphs import Subgraph, features_of
from aoe.tuner.mode import JobType
from aoe.tuner.reuse.book import ReuseBook, kind_of
from aoe.tuner.reuse.earlier import EarlierResult, EarlierTarget, EarlierTask
from aoe.tuner.reuse.kinds import Reuse, shape_change
from aoebank import Bank, Record, make_graph_record

DETAILS = "subgraph_tuning"
OP_TYPE = "subgraph"


def has_records(bank: Bank, soc_version: str) -> bool:
    """True if the bank has subgraphs of the target; see `EarlierTasks`."""
    return bank.graph_file(soc_version).exists()


def task_of_details(members: Mapping[str, Any], target: EarlierTarget) -> EarlierTask | None:
    """Return the subgraph in details; see `EarlierTasks`."""
    graph_id, names = members.get("graph_id"), members.get("nodes")
    if not isinstance(graph_id, str) or not isinstance(names, list) or not names:
        return None
    return _task(graph_id, (str(names[-1]),), members, target)


def tasks_of_model(manifest: Manifest, target: EarlierTarget) -> Iterable[EarlierTask]:
    """Return the subgraphs a tuned model has in another rewrite; see `EarlierTasks`."""
    return [_task(use.graph_id, use.op_names, use.record, target) for use in manifest.subgraphs]


def _task(
    graph_id: str, op_names: tuple[str, ...], members: Mapping[str, Any], target: EarlierTarget
) -> EarlierTask:
    """Return a subgraph; its nodes may not be known."""
    record, lines = None, remembered_from_json(members).lines
    try:
        record = _record(graph_id, members, target.soc_version)
    except (ValueError, TypeError, KeyError):  # somebody has edited it
        lines = ()
    return EarlierTask(
        key=graph_id,
        op_type=OP_TYPE,
        op_names=op_names,
        subject=features_from_json(members.get("feature")),
        file_in=lambda bank: bank.graph_file(target.soc_version),
        record=record if target.soc_version else None,
        lines=lines if target.soc_version else (),
    )


def _record(graph_id: str, members: Mapping[str, Any], soc_version: str) -> Record | None:
    strategy = remembered_from_json(members).strategy
    if strategy is None:
        return None
    record = make_graph_record(
        graph_id=graph_id,
        feature=members["feature"]["feature"],
        groups=strategy["group"],
        end_to_end_ns=strategy["end2EndTime"],
        model_name=strategy.get("modelName"),
    )
    return replace(record, soc_version=soc_version)


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
        op_names=subgraph.occurrence_names,
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
        return "another rewrite of the same operators"
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
