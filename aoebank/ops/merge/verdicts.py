"""What a person decided about keys, read from a saved list of decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aoebank.errors import BankFormatError, BankNotFoundError, HistoryError, UsageError
from aoebank.model.digest import sha256_of
from aoebank.model.json_value import JsonValue
from aoebank.ops.merge.choose import Choice
from aoebank.ops.merge.document import DECISIONS, iter_decisions, read_document
from aoebank.ops.merge.plan import Action, Reason, Source
from aoebank.ops.merge.versions import KeyVersions
from aoebank.storage.bank import read_file


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonalVerdict:
    """One decision as a person left it.

    Attributes:
        action: None for a conflict that is still open.
        sha256: Of the record of each version that has one.
    """

    action: Action | None
    sha256: Mapping[Source, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedVerdicts:
    """Verdicts by side and file."""

    by_step: Mapping[str, Mapping[str, Mapping[str, PersonalVerdict]]] = field(default_factory=dict)


def load_verdicts(path: Path, *, all_open: Source | None = None) -> SavedVerdicts:
    """Read decisions a person may have edited.

    Args:
        all_open: Whose records the conflicts still open take.

    Raises:
        BankNotFoundError: there is no such file.
        BankFormatError: it is no list of decisions, or one of them is none.
    """
    data = read_file(path)
    if data is None:
        raise BankNotFoundError("no such file", path=path, expected="saved decisions")
    document = read_document(data, path, [DECISIONS])
    steps: dict[str, dict[str, dict[str, PersonalVerdict]]] = {}
    for members, action in iter_decisions(document, path, all_open=all_open):
        side, file, key = (str(members.get(name)) for name in ("theirs_side", "file", "key"))
        verdicts = steps.setdefault(side, {}).setdefault(file, {})
        if key in verdicts:
            raise BankFormatError("decision comes twice", path=path, got=key)
        verdicts[key] = PersonalVerdict(action=action, sha256=_digests(members))
    return SavedVerdicts(by_step=steps)


def apply_verdict(verdict: PersonalVerdict, key: KeyVersions, choice: Choice) -> Choice:
    """Return the choice of a person, or `choice` where that is no other one.

    Raises:
        HistoryError: it is about other records than these.
        UsageError: it asks for what is not there.
    """
    for source in Source:
        if sha256_of(key.raw(source)) != verdict.sha256.get(source):
            raise stale_verdict(key.key, f"another record in {source}")
    action = verdict.action
    if action is None or (action is choice.action and not choice.conflict):
        return choice
    if choice.reason is Reason.QUARANTINE:
        raise UsageError(
            "key is under quarantine",
            where=key.key,
            got=action,
            expected=choice.action,
            hint=f"aoebank quarantine rm {key.key}",
        )
    _demand_possible(action, key)
    return Choice(action=action, reason=Reason.PERSON, note=f"instead of {choice.reason}")


def stale_verdict(key: str, got: str) -> HistoryError:
    """Return the error of a verdict about something else than what is merged."""
    return HistoryError(
        "decision does not fit the sides any more",
        where=key,
        got=got,
        expected="the records it was made about",
        hint="save the decisions again: --decisions",
    )


def _demand_possible(action: Action, key: KeyVersions) -> None:
    problem = ""
    if action is Action.TAKE_BASE and key.base is None:
        problem = "the base has no such record"
    if action is Action.KEEP_BOTH:
        if not key.files.any().format.keeps_alternatives:
            problem = "this format keeps one answer per key"
        elif key.ours is None or key.theirs is None:
            problem = "only one side has such a record"
    if problem:
        raise UsageError(problem, where=key.key, got=action, expected="another action")


def _digests(members: Mapping[str, JsonValue]) -> dict[Source, str]:
    found = {}
    for source in Source:
        version = members.get(source)
        if isinstance(version, Mapping):
            found[source] = str(version["sha256"])
    return found
