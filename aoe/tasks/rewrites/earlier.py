"""Subgraphs of an earlier run: in the bank, in `subgraph_tuning/`, in a tuned model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from aoe.bank.records.subgraph import features_from_json
from aoe.bank.remembered import remembered_from_json
from aoe.om.file import Manifest
from aoe.tuner.reuse.earlier import EarlierTarget, EarlierTask
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
    """Return the subgraphs a tuned model has in another form; see `EarlierTasks`."""
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
