"""Reuse of the tasks of a run, noted as they are looked up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from aoe.bank.stored import Lookup
from aoe.bank.task_bank import TaskBank
from aoe.tuner.mode import JobType
from aoe.tuner.reuse.earlier import EarlierResult
from aoe.tuner.reuse.kinds import Reuse, ReuseKind, ReuseSummary

Task = TypeVar("Task")
Found = TypeVar("Found")
Bank = TypeVar("Bank", bound=TaskBank[Any])


class ReuseBook(Generic[Task, Found, Bank]):
    """Reuse of the tasks of a run, as far as they have been looked up.

    Args:
        base: The earlier result; without one nothing is noted.
        job: Kind of the tasks.
        reuse_of: Returns what becomes of a task, by what the banks say of it.
    """

    def __init__(
        self,
        base: EarlierResult | None,
        job: JobType,
        reuse_of: Callable[[Task, Found, Bank, EarlierResult], Reuse],
    ) -> None:
        self._base = base
        self._job = job
        self._reuse_of = reuse_of
        self._parts: dict[str, Reuse] = {}

    def add(self, bank: Bank, task: Task, found: Found) -> None:
        """Note the answer of the banks for a task."""
        if self._base is not None:
            reuse = self._reuse_of(task, found, bank, self._base)
            self._parts[reuse.key] = reuse

    def summary(self) -> ReuseSummary | None:
        """Return the reuse of all tasks, None without an earlier result."""
        if self._base is None:
            return None
        return reuse_summary(self._base, self._job, [*self._parts.values()])


def kind_of(
    lookup: Lookup[Any], changes: Iterator[str | None], base: EarlierResult
) -> tuple[ReuseKind, str]:
    """Return the fate of a task, and the reason.

    Args:
        lookup: What the banks say of it.
        changes: What may have changed since the earlier result, the surest first; None and the
            empty string where nothing is known. It is asked as far as is needed.
        base: The earlier result.
    """
    if not lookup.tune:
        remeasure_reasons = lookup.stored.remeasure_reasons if lookup.stored is not None else ()
        return ReuseKind.REUSED, "; ".join((lookup.reason, *remeasure_reasons))
    if lookup.has_record:
        return ReuseKind.RETUNED, lookup.invalid_reason or lookup.reason
    change = next(filter(None, changes), None)
    if change is not None:
        return ReuseKind.RETUNED, change
    return ReuseKind.NEW, f"nothing like it in {base.name}"


def reuse_summary(
    base: EarlierResult, job: JobType, parts: Sequence[Reuse], *, maybe: Iterable[str] = ()
) -> ReuseSummary:
    """Return the reuse of all tasks of a kind, with tasks the model no longer has.

    Args:
        base: The earlier result.
        job: The kind.
        parts: The tasks of the model.
        maybe: Keys of those it may turn out to have.
    """
    still = {part.key for part in parts}.union(maybe)
    gone = [
        Reuse(
            key=known.key,
            op_type=known.op_type,
            op_names=known.op_names,
            kind=ReuseKind.DROPPED,
            reason="not in the model any more",
        )
        for known in base.tasks_of(job).values()
        if known.key not in still
    ]
    return ReuseSummary(base=base.name, parts=(*parts, *gone))
