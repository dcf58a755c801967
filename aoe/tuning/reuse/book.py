"""What becomes of the parts of a run, noted as they are looked up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from aoe.bank.task_bank import TaskBank
from aoe.tuning.reuse.earlier import EarlierResult
from aoe.tuning.reuse.kinds import Reuse, ReuseSummary

Part = TypeVar("Part")
Found = TypeVar("Found")
Bank = TypeVar("Bank", bound=TaskBank[Any])


class ReuseBook(Generic[Part, Found, Bank]):
    """What becomes of the parts of a run, as far as they have been looked up.

    Args:
        base: The earlier result; without one nothing is noted.
        reuse_of: Returns what becomes of a part, by what the banks say of it.
        summary_of: Returns what became of all, those the model has no more included.
    """

    def __init__(
        self,
        base: EarlierResult | None,
        reuse_of: Callable[[Part, Found, Bank, EarlierResult], Reuse],
        summary_of: Callable[[EarlierResult, Sequence[Reuse]], ReuseSummary],
    ) -> None:
        self._base = base
        self._reuse_of = reuse_of
        self._summary_of = summary_of
        self._parts: dict[str, Reuse] = {}

    def add(self, bank: Bank, part: Part, found: Found) -> None:
        """Note what the banks say of a part."""
        if self._base is not None:
            reuse = self._reuse_of(part, found, bank, self._base)
            self._parts[reuse.key] = reuse

    def summary(self) -> ReuseSummary | None:
        """Return the reuse of all parts, None without an earlier result."""
        if self._base is None:
            return None
        return self._summary_of(self._base, [*self._parts.values()])
