"""Operators of an earlier run (bank, `op_tuning/`, tuned model), and their reuse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from aoe.bank.operators import OperatorBank
from aoe.bank.remembered import RememberedOperator, remembered_from_json
from aoe.om.file import Manifest
from aoe.tasks.operators.lookup import OperatorLookup
from aoe.tasks.operators.operators import Operator
from aoe.tuner.mode import JobType
from aoe.tuner.reuse.book import kind_of
from aoe.tuner.reuse.earlier import EarlierResult, EarlierTarget, EarlierTask
from aoe.tuner.reuse.kinds import Reuse, ReuseKind, nearest_change
from aoe.workload import Workload, workload_from_json, workload_to_json
from aoebank import Bank, Event, Provenance, Record, make_unified_record, workload_key

DETAILS = "op_tuning"
_LONG_AGO = "1970-01-01T00:00:00Z"


def has_records(bank: Bank, soc_version: str) -> bool:
    """True: behind every bank are the built-in kernels; see `EarlierTasks`."""
    return True


def task_of_details(members: Mapping[str, Any], target: EarlierTarget) -> EarlierTask | None:
    """Return the operator in details; see `EarlierTasks`."""
    workload, names = _workload(members.get("workload")), members.get("op_names")
    if workload is None or not isinstance(names, list):
        return None
    op_names = tuple(map(str, names))
    remembered = remembered_from_json(members)
    if "provenance" not in members:  # written before details had it
        remembered = _of_old_details(members, workload, op_names, target)
    return _task(workload, op_names, remembered, target)


def tasks_of_model(manifest: Manifest, target: EarlierTarget) -> Iterable[EarlierTask]:
    """Return the operators a tuned model has kernels for; see `EarlierTasks`."""
    return [
        _task(workload, kernel.op_names, remembered_from_json(kernel.record), target)
        for kernel in manifest.kernels
        if (workload := _workload(kernel.record.get("workload"))) is not None
    ]


def _task(
    workload: Workload,
    op_names: tuple[str, ...],
    remembered: RememberedOperator,
    target: EarlierTarget,
) -> EarlierTask:
    has_file = bool(target.soc_version and target.core_num)
    return EarlierTask(
        key=workload_key(workload_to_json(workload)),
        op_type=workload.op_type,
        op_names=op_names,
        subject=workload,
        file_in=lambda bank: bank.unified_file(
            soc_version=target.soc_version, core_num=target.core_num, op_type=workload.op_type
        ),
        record=_record(workload, remembered, target.soc_version) if has_file else None,
        lines=remembered.lines if has_file else (),
    )


def _record(workload: Workload, remembered: RememberedOperator, soc_version: str) -> Record | None:
    if remembered.strategy is None:
        return None
    record = make_unified_record(
        workload=workload_to_json(workload),
        strategy=remembered.strategy,
        cost_us=remembered.cost_us,
        origin="aoe",
    )
    return replace(record, soc_version=soc_version, op_type=workload.op_type)


def _workload(members: Any) -> Workload | None:
    try:
        return workload_from_json(members)
    except (ValueError, TypeError, AttributeError):
        return None


def _of_old_details(
    members: Mapping[str, Any],
    workload: Workload,
    op_names: tuple[str, ...],
    target: EarlierTarget,
) -> RememberedOperator:
    """Return the record and lines in details that have a strategy and trials alone."""
    steps, speedup = members.get("strategy"), members.get("speedup")
    if not isinstance(steps, list):
        return RememberedOperator()
    trials = members.get("trials")
    tried = [
        trial
        for trial in (trials if isinstance(trials, list) else ())
        if isinstance(trial, dict) and isinstance(trial.get("speedup"), int | float)
    ]
    best = max(tried, key=lambda trial: trial["speedup"], default={})
    line = Provenance(
        key=workload_key(workload_to_json(workload)),
        event=Event.ADD,
        time=_LONG_AGO,
        engine="aoe",
        fingerprint=dict(target.fingerprint),
        op_names=op_names,
        speedup=speedup if isinstance(speedup, int | float) and speedup > 0 else None,
    )
    strategy = {
        "engine": "aoe",
        "version": 1,
        "knobs": best.get("configuration", {}),
        "steps": steps,
    }
    return RememberedOperator(strategy=strategy, lines=(line,))


def reuse_of(
    operator: Operator, lookup: OperatorLookup, bank: OperatorBank, base: EarlierResult
) -> Reuse:
    """Return the reuse of an operator, and the reason.

    Args:
        operator: Of the model.
        lookup: What the banks say.
        bank: Knows the earlier bank, too.
        base: The earlier result.
    """
    if lookup.tune and lookup.covering is not None:
        kind, reason = ReuseKind.RETUNED, lookup.unsearched
    else:
        kind, reason = kind_of(lookup, _changes(operator, bank, base), base)
    return Reuse(
        key=operator.key,
        op_type=operator.workload.op_type,
        op_names=operator.op_names,
        kind=kind,
        reason=reason,
    )


def _changes(operator: Operator, bank: OperatorBank, base: EarlierResult) -> Iterator[str | None]:
    workload, earlier = operator.workload, base.tasks_of(JobType.OPAT)
    drift = bank.base_drift(workload)
    if drift is not None:
        yield str(drift) or "searched less, or noise decided then"
    if operator.key in earlier:
        yield base.why_not_looked_up(bank.soc_version, bank.core_num)
    others = [*bank.base_workloads(workload.op_type)]
    yield nearest_change(workload, [*others, *(task.subject for task in earlier.values())])
