"""What a person decided about keys, read from a saved list of decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aoebank.errors import BankFormatError, BankNotFoundError
from aoebank.merging.decisions import Action, Source
from aoebank.merging.document import DECISIONS, iter_decisions, read_document
from aoebank.model.json_value import JsonValue
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


Verdicts = Mapping[str, Mapping[str, Mapping[str, PersonalVerdict]]]
"""By side, file and key."""


def load_verdicts(path: Path, *, all_open: Source | None = None) -> Verdicts:
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
    return steps


def _digests(members: Mapping[str, JsonValue]) -> dict[Source, str]:
    found = {}
    for source in Source:
        version = members.get(source)
        if isinstance(version, Mapping):
            found[source] = str(version["sha256"])
    return found
