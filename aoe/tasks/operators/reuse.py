"""What becomes of each operator of a model that was tuned before."""

from __future__ import annotations

from collections.abc import Iterator

from aoe.bank.operators import OperatorBank
from aoe.tasks.operators.lookup import OperatorLookup
from aoe.tasks.operators.operators import Operator
from aoe.tuner.mode import JobType
from aoe.tuner.reuse.book import kind_of
from aoe.tuner.reuse.earlier import EarlierResult
from aoe.tuner.reuse.kinds import Reuse, ReuseKind, nearest_change


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
