"""Decisions as JSON: what `--decisions` saves, a person edits and `--apply` reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from aoebank.errors import BankFormatError
from aoebank.formats.text.json_text import JsonTextError, dumps, loads
from aoebank.model.json_value import JsonValue
from aoebank.ops.diff.fields import diff_fields, plain
from aoebank.ops.merge.plan import Action, Decision, KeptRecord, Source

OPEN = "conflict"  # the action of a decision nobody made yet


def decision_document(decision: Decision) -> dict[str, JsonValue]:
    """Return a decision as members; each record with its bytes and their digest."""
    action = OPEN if decision.conflict else str(decision.action)
    members: dict[str, JsonValue] = {
        "file": decision.file,
        "key": decision.key,
        "soc_version": decision.soc_version,
        "op_type": decision.op_type,
        "action": action,
        "reason": str(decision.reason),
    }
    if decision.note:
        members["note"] = decision.note
    if (
        decision.ours
        and decision.theirs
        and None
        not in (
            decision.ours.strategy,
            decision.theirs.strategy,
        )
    ):
        members["differs"] = [
            each.pointer for each in diff_fields(decision.ours.strategy, decision.theirs.strategy)
        ]
    records = (decision.base, decision.ours, decision.theirs)
    for source, record in zip(Source, records, strict=True):
        members[source] = None if record is None else _record_document(record)
    return members


def _record_document(record: KeptRecord) -> dict[str, JsonValue]:
    members: dict[str, JsonValue] = {"cost_us": plain(record.cost_us), "sha256": record.sha256}
    return {**members, "record": record.raw.decode("utf-8", errors="replace")}


def write_document(members: Mapping[str, JsonValue]) -> bytes:
    """Return a document as a person edits it: indented, one member per line."""
    return (json.dumps(members, indent=2, ensure_ascii=False, default=dict) + "\n").encode("utf-8")


def read_document(data: bytes, path: Path, schemas: Iterable[str]) -> Mapping[str, JsonValue]:
    """Return the members of a document of one of these schemas.

    Raises:
        BankFormatError: it is no such document.
    """
    try:
        value = loads(data.decode("utf-8"))
    except (UnicodeDecodeError, JsonTextError) as error:
        raise BankFormatError(
            "is no JSON document", path=path, got=str(error)[:80], expected="saved decisions"
        ) from error
    schema = value.get("schema") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or schema not in tuple(schemas):
        raise BankFormatError(
            "is no list of decisions",
            path=path,
            got=f"schema {dumps(schema)}",
            expected=" or ".join(schemas),
        )
    return value


def iter_decisions(
    document: Mapping[str, JsonValue], path: Path
) -> Iterable[tuple[Mapping[str, JsonValue], Action | None]]:
    """Yield each decision of a document with its action, None for one still open.

    Raises:
        BankFormatError: a decision is none.
    """
    decisions = document.get("decisions")
    if not isinstance(decisions, list):
        raise BankFormatError("decisions is no list", path=path, expected="a list of decisions")
    for number, each in enumerate(decisions):
        problem = _problem(each)
        if problem:
            raise BankFormatError(
                f"decision {number} {problem}",
                path=path,
                expected="what --decisions saved, only its actions edited",
            )
        action = each["action"]
        yield each, None if action == OPEN else Action(action)


def _problem(value: JsonValue) -> str:
    if not isinstance(value, Mapping):
        return "is no object"
    for name in ("file", "key", "action"):
        if not isinstance(value.get(name), str):
            return f"has no {name}"
    if value["action"] not in (OPEN, *Action):
        return f"has an unknown action {value['action']}"
    for source in Source:
        version = value.get(source)
        if version is None:
            continue
        if not isinstance(version, Mapping) or not all(
            isinstance(version.get(name), str) for name in ("sha256", "record")
        ):
            return f"has a bad {source}"
    return ""
