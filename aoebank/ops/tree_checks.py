"""Findings about files and trees, where the content of one file is not enough."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from aoebank.formats.protocol import ParsedFile
from aoebank.formats.provenance import SUFFIX, ProvenanceLog, bank_file_of
from aoebank.model.codes import Severity
from aoebank.model.finding import Finding, make_finding
from aoebank.model.location import Location
from aoebank.model.provenance import Event
from aoebank.storage.bank import UNIFIED_FOLDER
from aoebank.storage.tree import FileKind, TreeEntry

_WITHOUT_RECORD = (Event.UNSATISFIED, Event.DROPPED)


def check_entry(entry: TreeEntry) -> Iterator[Finding]:
    """Yield the finding about a file that is neither a bank file nor a side-car."""
    place = Location(path=entry.path)
    match entry.kind:
        case FileKind.UNREADABLE:
            yield make_finding("AB101", place, f"cannot be read: {entry.reason}")
        case FileKind.LEFT_OVER:
            yield make_finding(
                "AB505", place, "left-over of a write that died",
                hint="compare it with the bank file, then remove it",
            )  # fmt: skip
        case FileKind.UNKNOWN:
            stray = make_finding(
                "AB504", place, "file is no bank file", hint="keep other files elsewhere"
            )  # fmt: skip
            in_bank = entry.path.absolute().parent.name == UNIFIED_FOLDER
            yield stray if in_bank else replace(stray, severity=Severity.NOTE)


def check_name(parsed: ParsedFile) -> Iterator[Finding]:
    """Yield what is wrong between the name of a bank file and its folder."""
    path, name = parsed.path, parsed.name
    if name is None:
        yield make_finding(
            "AB502", Location(path=path), "file name does not follow the pattern",
            got=path.name, expected="<soc_version>_<cores>_<AiCore|VectorCore>_<op_type>.json",
            hint="rename it; readers find banks by name only",
        )  # fmt: skip
        return
    folder = path.absolute().parent
    if folder.name == UNIFIED_FOLDER and folder.parent.name != name.soc_version:
        yield make_finding(
            "AB503", Location(path=path), "soc_version in the name is not the one of the folder",
            got=name.soc_version, expected=folder.parent.name,
            hint=f"move it to {name.soc_version}/{UNIFIED_FOLDER}/",
        )  # fmt: skip


def check_side_car(path: Path, log: ProvenanceLog, bank: ParsedFile | None) -> Iterator[Finding]:
    """Yield what does not fit between a side-car and its bank file.

    Args:
        path: The side-car.
        log: Its content.
        bank: The bank file, or None if there is none.
    """
    newest = {entry.key: entry for entry in log.entries}
    stored = [entry for entry in newest.values() if entry.event not in _WITHOUT_RECORD]
    if bank is None:
        if stored:
            yield make_finding(
                "AB506", Location(path=path), "provenance without its bank file",
                expected=bank_file_of(path).name,
                hint=f"a bank file and its {SUFFIX} travel together",
            )  # fmt: skip
        return
    for entry in stored:
        if bank.find(entry.key) is None and entry.location is not None:
            yield make_finding(
                "AB507", entry.location, "key is not in the bank",
                got=f"{entry.event} of {entry.key}",
            )  # fmt: skip
