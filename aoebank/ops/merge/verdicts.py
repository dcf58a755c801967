"""What a person decided about keys, read from a saved list of decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aoebank.errors import HistoryError, UsageError
from aoebank.model.digest import sha256_of
from aoebank.ops.merge.choose import Choice
from aoebank.ops.merge.plan import Action, Reason, Source
from aoebank.ops.merge.versions import Places, Versions


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One decision as a person left it.

    Attributes:
        action: None for a conflict that is still open.
        sha256: Of the record of each version that has one.
    """

    action: Action | None
    sha256: Mapping[Source, str]


@dataclass(slots=True)
class Verdicts:
    """The verdicts about one file, by key; remembers which of them came up."""

    by_key: Mapping[str, Verdict] = field(default_factory=dict)
    _used: set[str] = field(default_factory=set)

    def find(self, versions: Versions, places: Places, choice: Choice) -> Choice | None:
        """Return the choice of a person where it is not `choice`, or None.

        Raises:
            HistoryError: the verdict is about other records than these.
            UsageError: it asks for what is not there.
        """
        verdict = self.by_key.get(places.key)
        if verdict is None:
            return None
        self._used.add(places.key)
        for source in Source:
            number = places.of(source)
            digest = number if number is None else sha256_of(versions.raw(source, number))
            if digest != verdict.sha256.get(source):
                raise _stale(places.key, f"another record in {source}")
        action = verdict.action
        if action is None or (action is choice.action and not choice.conflict):
            return None
        if choice.reason is Reason.QUARANTINE:
            raise UsageError(
                "key is under quarantine",
                where=places.key,
                got=action,
                expected=choice.action,
                hint=f"aoebank quarantine rm {places.key}",
            )
        _demand_possible(action, versions, places)
        return Choice(action=action, reason=Reason.PERSON, note=f"instead of {choice.reason}")

    def demand_all_used(self, name: str) -> None:
        """Raise `HistoryError` if there is a verdict about a key that needs none."""
        for key in self.by_key:
            if key not in self._used:
                raise _stale(key, f"nothing to decide in {name}")


def _demand_possible(action: Action, versions: Versions, places: Places) -> None:
    problem = ""
    if action is Action.TAKE_BASE and places.base is None:
        problem = "the base has no such record"
    if action is Action.KEEP_BOTH:
        if versions.any().format.name != "unified":
            problem = "this format keeps one answer per key"
        elif places.ours is None or places.theirs is None:
            problem = "only one side has such a record"
    if problem:
        raise UsageError(problem, where=places.key, got=action, expected="another action")


def _stale(key: str, got: str) -> HistoryError:
    return HistoryError(
        "decision does not fit the sides any more",
        where=key,
        got=got,
        expected="the records it was made about",
        hint="save the decisions again: --decisions",
    )
