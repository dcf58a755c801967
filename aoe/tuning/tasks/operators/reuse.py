"""What becomes of each operator of a model that was tuned before."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from aoe.bank.operators import OperatorBank
from aoe.tuning.reuse.earlier import EarlierResult
from aoe.tuning.reuse.kinds import Reuse, ReuseKind, ReuseSummary, dropped, nearest_change
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
    if lookup.stored is not None or lookup.invalid_reason:
        return ReuseKind.RETUNED, lookup.invalid_reason or lookup.reason
    known = bank.base_drift(workload)
    if known is not None:
        return ReuseKind.RETUNED, str(known) or "searched less, or noise decided then"
    if operator.key in base.operators:
        return ReuseKind.RETUNED, base.why_not_looked_up(bank.soc_version, bank.core_num)
    others = [*bank.base_workloads(workload.op_type)]
    others += [known.workload for known in base.operators.values()]
    change = nearest_change(workload, others)
    if change:
        return ReuseKind.RETUNED, change
    return ReuseKind.NEW, f"nothing like it in {base.name}"


def summary_of(
    base: EarlierResult, parts: Sequence[Reuse], *, maybe: Iterable[str] = ()
) -> ReuseSummary:
    """Return the reuse of all operators, those the model no longer has included.

    Args:
        base: The earlier result.
        parts: The operators of the model.
        maybe: Keys of those it may turn out to have.
    """
    still = {part.key for part in parts}.union(maybe)
    return ReuseSummary(base=base.name, parts=(*parts, *_dropped(base, still)))


def _dropped(base: EarlierResult, still: Collection[str]) -> list[Reuse]:
    return [
        dropped(known.key, known.workload.op_type, known.op_names)
        for known in base.operators.values()
        if known.key not in still
    ]
