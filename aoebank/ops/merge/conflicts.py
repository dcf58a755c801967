"""The conflict file: what nobody decided yet, beside the bank file it is about.

It holds the records of both sides and of the base, so nothing is lost even where the sides are
gone, as after a merge by git. `aoebank merge --apply FILE` settles it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from aoebank.model.json_value import JsonValue
from aoebank.ops.merge.document import OPEN, decision_document, write_document
from aoebank.ops.merge.plan import Action, Decision, FilePlan

SCHEMA = "aoebank.merge-conflicts/1"
SUFFIX = ".conflicts"


def conflict_path(path: Path) -> Path:
    """Return the conflict file of a bank file.

    No reader of CANN takes it for a bank: the name does not end in `.json`.
    """
    return path.with_name(path.name + SUFFIX)


def conflict_file(plans: Iterable[FilePlan]) -> bytes:
    """Return the conflicts of plans as a document, empty bytes if there are none."""
    return conflict_document([each for plan in plans for each in plan.conflicts])


def conflict_document(
    conflicts: Iterable[Decision], written: Mapping[str, str | None] | None = None
) -> bytes:
    """Return conflicts as a document a person can read and edit; empty bytes for none.

    Args:
        written: SHA-256 of the record the bank has for a key now, None if it has none; for
            keys that do not have what ours had.
    """
    found: list[JsonValue] = [_document(each, written or {}) for each in conflicts]
    if not found:
        return b""
    choices = ", ".join(Action)
    document: dict[str, JsonValue] = {
        "schema": SCHEMA,
        "how_to_settle": f"Replace each action {OPEN!r} by one of {choices} (those that apply), "
        "then run: aoebank merge --apply THIS_FILE. Until then the bank has the record of ours.",
        "decisions": found,
    }
    return write_document(document)


def _document(decision: Decision, written: Mapping[str, str | None]) -> dict[str, JsonValue]:
    members = decision_document(decision)
    ours = decision.ours.sha256 if decision.ours else None
    return {**members, "written_sha256": written.get(decision.key, ours)}
