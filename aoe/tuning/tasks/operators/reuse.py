"""What becomes of each operator of a model that was tuned before."""

from __future__ import annotations

from aoe.bank.operators import OperatorBank
from aoe.tuning.mode import JobType
from aoe.tuning.reuse.earlier import EarlierResult
from aoe.tuning.reuse.kinds import Reuse, ReuseKind, nearest_change
from aoe.tuning.tasks.operators.lookup import Lookup
from aoe.tuning.tasks.operators.operators import Operator


def reuse_of(operator: Operator, lookup: Lookup, bank: OperatorBank, base: EarlierResult) -> Reuse:
    """Return the reuse of an operator, and the reason.

    Args:
        operator: Of the model.
        lookup: What the banks say.
        bank: Knows the earlier bank, too.
        base: The earlier result.
    """
    kind, reason = _kind_of(operator, lookup, bank, base)
    return Reuse(
        key=operator.key,
        op_type=operator.workload.op_type,
        op_names=operator.op_names,
        kind=kind,
        reason=reason,
    )


def _kind_of(
    operator: Operator, lookup: Lookup, bank: OperatorBank, base: EarlierResult
) -> tuple[ReuseKind, str]:
    if not lookup.tune:
        doubts = lookup.stored.doubts if lookup.stored is not None else ()
        return ReuseKind.REUSED, "; ".join((lookup.reason, *doubts))
    workload = operator.workload
    if lookup.covering is not None:
        return ReuseKind.RETUNED, lookup.unsearched
    if lookup.stored is not None or lookup.invalid_reason:
        return ReuseKind.RETUNED, lookup.invalid_reason or lookup.reason
    known = bank.base_drift(workload)
    if known is not None:
        return ReuseKind.RETUNED, str(known) or "searched less, or noise decided then"
    earlier = base.tasks_of(JobType.OPAT)
    if operator.key in earlier:
        return ReuseKind.RETUNED, base.why_not_looked_up(bank.soc_version, bank.core_num)
    others = [*bank.base_workloads(workload.op_type)]
    others += [task.subject for task in earlier.values()]
    change = nearest_change(workload, others)
    if change:
        return ReuseKind.RETUNED, change
    return ReuseKind.NEW, f"nothing like it in {base.name}"
