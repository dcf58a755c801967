"""Decisions saved for a person, and read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aoebank.errors import BankFormatError, BankNotFoundError
from aoebank.model.json_value import JsonValue
from aoebank.ops.merge.document import (
    OPEN,
    decision_document,
    iter_decisions,
    read_document,
    write_document,
)
from aoebank.ops.merge.plan import Action, Decision, Source
from aoebank.ops.merge.verdicts import PersonalVerdict
from aoebank.storage.bank import read_file

SCHEMA = "aoebank.merge-decisions/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDecisions:
    """The decisions of merging one side.

    Attributes:
        theirs: How a person wrote that side.
    """

    theirs: str
    decisions: tuple[Decision, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedVerdicts:
    """Verdicts by side and file."""

    by_step: Mapping[str, Mapping[str, Mapping[str, PersonalVerdict]]] = field(default_factory=dict)


def serialize_decisions(steps: Sequence[StepDecisions], *, base: str | None, ours: str) -> bytes:
    """Return decisions as a document a person can edit."""
    decisions: list[JsonValue] = [
        {"theirs_side": step.theirs, **decision_document(each)}
        for step in steps
        for each in step.decisions
    ]
    choices = ", ".join(Action)
    return write_document(
        {
            "schema": SCHEMA,
            "base_side": base,
            "ours_side": ours,
            "how_to_edit": f"An action is one of {choices}; {OPEN!r} is one nobody chose yet. Then "
            "run the merge of the same sides with --apply THIS_FILE.",
            "decisions": decisions,
        }
    )


def load_verdicts(path: Path) -> SavedVerdicts:
    """Read decisions a person may have edited.

    Raises:
        BankNotFoundError: there is no such file.
        BankFormatError: it is no list of decisions, or one of them is none.
    """
    data = read_file(path)
    if data is None:
        raise BankNotFoundError("no such file", path=path, expected="saved decisions")
    document = read_document(data, path, [SCHEMA])
    steps: dict[str, dict[str, dict[str, PersonalVerdict]]] = {}
    for members, action in iter_decisions(document, path):
        side, file, key = (str(members.get(name)) for name in ("theirs_side", "file", "key"))
        verdicts = steps.setdefault(side, {}).setdefault(file, {})
        if key in verdicts:
            raise BankFormatError("decision comes twice", path=path, got=key)
        verdicts[key] = PersonalVerdict(action=action, sha256=_digests(members))
    return SavedVerdicts(by_step=steps)


def _digests(members: Mapping[str, JsonValue]) -> dict[Source, str]:
    found = {}
    for source in Source:
        version = members.get(source)
        if isinstance(version, Mapping):
            found[source] = str(version["sha256"])
    return found
