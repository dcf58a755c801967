"""Look-ups in JSON documents: results of tuners, and what compilers leave beside a kernel."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from aoebank.reading.hits.result import BankLookup, LookupKind

Document = Mapping[str, Any]


def document_lookups(path: Path) -> Iterator[BankLookup]:
    """Yield the look-ups a document tells of; none where it is of another kind, or no JSON.

    Raises:
        OSError: it cannot be read.
    """
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return
    if isinstance(value, list):  # of CANN's reports, a member each
        value = {
            name: part for entry in value if isinstance(entry, dict) for name, part in entry.items()
        }
    if isinstance(value, dict):
        for reader in _READERS:
            yield from reader(path, value)


def _summary(path: Path, document: Document) -> Iterator[BankLookup]:
    """Read `summary.json` of aoe: an operator was found if its outcome says so."""
    if document.get("schema") != "aoe.summary/1":
        return
    for row in _objects(document.get("operators")):
        outcome = str(row.get("outcome", ""))
        is_used = row.get("in_model")
        names = row.get("op_names")
        yield BankLookup(
            source=path,
            kind=LookupKind.OPERATOR,
            name=", ".join(map(str, names)) if isinstance(names, list) else "",
            is_hit=outcome in ("reserved", "update") or is_used is True,
            reason=outcome + ("" if is_used is None else ", used" if is_used else ", not used"),
            key=str(row.get("key", "")),
        )


def _tune_result(path: Path, document: Document) -> Iterator[BankLookup]:
    """Read `tune_result_*.json` of Auto Tune: a member for each operator."""
    for names, entry in document.items():
        status = entry.get("status_data") if isinstance(entry, dict) else None
        if isinstance(status, dict) and isinstance(status.get("bank_hit"), bool):
            yield BankLookup(
                source=path,
                kind=LookupKind.OPERATOR,
                name=names.strip("[]"),
                is_hit=status["bank_hit"],
                reason=", ".join(name for name, value in status.items() if value is True),
            )


def _operator_report(path: Path, document: Document) -> Iterator[BankLookup]:
    """Read `aoe_result_opat_*.json`: it names only what it changed, and counts the rest."""
    if (path.parent / "summary.json").exists():  # tells the same, with keys
        return
    section = document.get("OPAT")
    changed = section.get("repo_modified_operators") if isinstance(section, dict) else None
    if isinstance(changed, dict):  # as reports were written up to CANN 6.2
        for member, is_hit in (("add_repo_operators", False), ("update_repo_operators", True)):
            for row in _objects(changed.get(member)):
                yield _changed(path, row, is_hit)
    for row in _objects(changed):
        kinds = row.get("tune_performance")
        modes = {str(kind.get("update_mode")) for kind in _objects(_values(kinds))}
        yield _changed(path, row, "update" in modes)


def _changed(path: Path, row: Document, is_hit: bool) -> BankLookup:
    return BankLookup(
        source=path,
        kind=LookupKind.OPERATOR,
        name=str(row.get("op_name", "")),
        is_hit=is_hit,
        reason="update" if is_hit else "add",
    )


def _kernel(path: Path, document: Document) -> Iterator[BankLookup]:
    """Read the document beside a compiled kernel."""
    told = document.get("KBHit")
    if isinstance(told, bool | int):
        yield BankLookup(
            source=path,
            kind=LookupKind.KERNEL,
            name=str(document.get("kernelName") or document.get("binFileName") or path.stem),
            is_hit=bool(told),
        )


def _objects(value: object) -> Sequence[Document]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _values(value: object) -> list[Any]:
    if isinstance(value, dict):
        return [*value.values()]
    return [part for entry in _objects(value) for part in entry.values()]


_READERS: tuple[Callable[[Path, Document], Iterator[BankLookup]], ...] = (
    _summary,
    _tune_result,
    _operator_report,
    _kernel,
)
"""One for each kind of document; a new kind is a function more."""
