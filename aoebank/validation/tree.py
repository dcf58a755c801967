"""Findings about files and trees, where the content of one file is not enough."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from aoebank.formats.protocol import ParsedFile
from aoebank.formats.provenance import ProvenanceLog, bank_file_of
from aoebank.formats.registry import bank_folders
from aoebank.model.codes import Severity
from aoebank.model.finding import Finding, Location, make_finding
from aoebank.model.provenance import Event
from aoebank.storage.bank import GRAPH_FOLDER
from aoebank.storage.readers.soc_versions import usual_case
from aoebank.storage.tree import FileKind, TreeEntry, leads_back

_WITHOUT_RECORD = (Event.UNSATISFIED, Event.DROPPED)


def check_entry(entry: TreeEntry, *, is_named: bool = False) -> Iterator[Finding]:
    """Yield the finding about what is neither a bank file nor a side-car.

    Args:
        is_named: Whether a person named this very file, and takes it for a bank file.
    """
    place = Location(path=entry.path)
    match entry.kind:
        case FileKind.UNREADABLE:
            yield make_finding("AB101", place, f"cannot be read: {entry.reason}")
        case FileKind.LEFT_OVER:
            yield make_finding(
                "AB505",
                place,
                "left-over of a write that died",
                hint="compare it with the bank file, then remove it",
            )
        case FileKind.LINK:
            yield _link(entry)
        case FileKind.UNKNOWN if is_named:
            yield replace(_named_stray(entry.path), severity=Severity.ERROR)
        case FileKind.UNKNOWN:
            yield _stray(place)


def _stray(place: Location) -> Finding:
    return make_finding("AB504", place, "file is no bank file", hint="move it out of the bank")


def _named_stray(path: Path) -> Finding:
    from aoebank.formats.optuna.study import STUDY, is_study  # it loads sqlite3

    if not is_study(path):
        return _stray(Location(path=path))
    return make_finding(
        "AB504",
        Location(path=path),
        f"{STUDY} and no bank file",
        hint="move it out of the bank; aoebank convert FILE -o DIR makes T4 results of it",
    )


def is_foreign(entry: TreeEntry) -> bool:
    """True if a file is no bank file and lies where no reader looks for banks."""
    in_bank = entry.path.absolute().parent.name in bank_folders()
    return entry.kind is FileKind.UNKNOWN and not in_bank


def _link(entry: TreeEntry) -> Finding:
    """Return the finding about a folder met a second time; readers that follow loops never end."""
    if leads_back(entry.path):
        return make_finding(
            "AB511",
            Location(path=entry.path),
            "folder is a link back to a folder above it",
            got=entry.reason,
            hint="remove the link; nothing behind it is checked twice",
        )
    return replace(
        make_finding(
            "AB511",
            Location(path=entry.path),
            "folder is in the tree a second time",
            got=entry.reason,
        ),
        severity=Severity.NOTE,
    )


def check_name(parsed: ParsedFile) -> Iterator[Finding]:
    """Yield the contradictions between the name of a bank file and its folder."""
    path, name = parsed.path, parsed.name
    if name is None:
        told = [*parsed.format.check_name(path)]
        yield from told
        if told or not parsed.format.is_found_by_name:
            return
        yield make_finding(
            "AB502",
            Location(path=path),
            "file name does not follow the pattern",
            got=path.name,
            expected=parsed.format.name_pattern,
            hint="rename it as expected; readers find banks by name only",
        )
        return
    if name.soc_version is None:
        return
    folder = path.absolute().parent
    soc_version = soc_of_folder(folder)
    if soc_version is not None and not parsed.format.fits_folder(name.soc_version, soc_version):
        yield make_finding(
            "AB503",
            Location(path=path),
            "soc_version in the name is not the one of the folder",
            got=name.soc_version,
            expected=soc_version,
            hint="move it to the folder of its soc_version; readers look there only",
        )
    elif soc_version is not None and soc_version[1:] != usual_case(soc_version)[1:]:
        # the first letter alone is small in some folders of the toolkit itself
        yield make_finding(
            "AB503",
            Location(path=path),
            "folder has the soc_version in another case than the toolkit",
            got=soc_version,
            expected=usual_case(soc_version),
            hint="move it to the folder of its soc_version; readers look there only",
        )


def soc_of_folder(folder: Path) -> str | None:
    """Return the soc_version the layout of a bank tree gives a folder, None without one."""
    # a folder of a revision is called `git:REV:FOLDER`
    own, above = (path.name.rpartition(":")[2] for path in (folder, folder.parent))
    if own in bank_folders():
        return above
    return own if above == GRAPH_FOLDER else None


def check_side_car(path: Path, log: ProvenanceLog, bank: ParsedFile | None) -> Iterator[Finding]:
    """Yield the contradictions between a side-car and its bank file.

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
                "AB506",
                Location(path=path),
                "provenance without its bank file",
                expected=bank_file_of(path).name,
                hint="bring that file back, or remove this one; the two travel together",
            )
        return
    for entry in stored:
        if bank.find(entry.key) is None and entry.location is not None:
            yield make_finding(
                "AB507",
                entry.location,
                "key is not in the bank",
                got=f"{entry.event} of {entry.key}",
            )
