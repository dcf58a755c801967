"""The merge of a file as git hands it out, from bytes: a bank, a side-car or a quarantine.

Banks are merged record by record (`file.py`). Side-cars and quarantines are lists of lines, which
three versions of a file add to.
"""

from __future__ import annotations

from pathlib import Path

from aoebank.errors import BankFormatError
from aoebank.formats.protocol import ParsedFile, raise_if_broken
from aoebank.formats.provenance import SUFFIX, append_line_break
from aoebank.formats.registry import HEAD_BYTES, find_format, parse_name
from aoebank.formats.text.checks import BOM, is_blank
from aoebank.merging.decisions import FilePlan, MergeRules, Policy, Source, Three
from aoebank.merging.file import FileMerge, merge_file
from aoebank.merging.versions import MergeContext, Versions
from aoebank.model.quarantine import QuarantineEntry
from aoebank.storage.quarantine import FILE, FOLDER, parse_quarantine, serialize_quarantine

_ANCESTORS = MergeContext(rules=MergeRules(policy=Policy.FAIL), takes_base=True)
QUARANTINE = f"{FOLDER}/{FILE}"  # from the top of a bank
_BROKEN_HINT = "mend that side first: aoebank validate names everything that is wrong"
_SPACE = b" \t\r\n"

_Entries = dict[tuple[str | None, ...], QuarantineEntry]


def merge_ancestors(versions: Three[bytes | None], path: Path) -> bytes | None:
    """Return the merge of two bases of a merge that has several, for no one but that merge.

    What the two answer differently gets the record of their own base, or none: then the merge
    they are the base of sees that both sides changed it, and tells the conflict. For the same
    reason a version that is broken makes the older base the result.
    """
    try:
        return merge_bytes(versions, path, _ANCESTORS).data
    except BankFormatError:
        return versions.base


def merge_bytes(versions: Three[bytes | None], path: Path, context: MergeContext) -> FileMerge:
    """Return the merge of a file as git hands it out: a bank, a side-car or a quarantine.

    Args:
        versions: None where a side has none; the base may be empty then.
        path: Where the file will lie.

    Raises:
        BankFormatError: a version is broken, or they do not fit together.
    """
    if is_of_lines(path):
        return FileMerge(plan=FilePlan(name=path.as_posix()), data=merge_lines(versions, path))
    parsed = parse_versions(versions, path)
    return merge_file(parsed, path.as_posix(), context)


def parse_versions(versions: Three[bytes | None], path: Path) -> Versions:
    """Return the versions as files with records.

    Raises:
        BankFormatError: one is broken; the message tells which.
    """
    found: dict[Source, ParsedFile | None] = {}
    for source in Source:
        data = versions.of(source)
        if source is Source.BASE and data is not None and is_blank(data):
            data = None  # git's word for none is an empty one
        found[source] = parsed = parse_version(data, path)
        try:
            if parsed is not None:
                raise_if_broken(parsed)
        except BankFormatError as error:
            error.where = f"{source} of {error.where}"
            error.hint = _BROKEN_HINT
            raise
    base, ours, theirs = found.values()
    return Versions(base=base, ours=ours, theirs=theirs, named=parse_name(path))


def parse_version(data: bytes | None, path: Path) -> ParsedFile | None:
    """Return a version as a file; one without bytes is a file too, and broken.

    Raises:
        BankFormatError: neither its name nor its first bytes are those of a bank.
    """
    if data is None:
        return None
    known = find_format(path, data[:HEAD_BYTES])
    if known is None:
        raise BankFormatError(
            "is no bank file",
            path=path,
            hint="git check-attr -a names the attribute that sent it here",
        )
    return known.parse(data, path)


# ---- files of lines ----


def is_of_lines(path: Path) -> bool:
    """True if a path is one of a side-car or of a quarantine."""
    return path.name.endswith(SUFFIX) or path.parts[-2:] == (FOLDER, FILE)


def merge_lines(versions: Three[bytes | None], path: Path) -> bytes:
    """Return the merge of three versions of a side-car or of a quarantine.

    Raises:
        BankFormatError: a line of a quarantine is no entry.
    """
    texts = (versions.base or b"", versions.ours or b"", versions.theirs or b"")
    if path.name.endswith(SUFFIX):
        return merge_side_cars(*texts)
    return merge_quarantines(*texts, path)


def merge_side_cars(base: bytes, ours: bytes, theirs: bytes) -> bytes:
    """Return the lines of both sides, those of ours first, each once, in their order.

    Both sides only ever add lines, so all of them stay; but a line of the base that one side
    took out stays out. Bytes of ours stay as they are, but for the lines that theirs took out.

    Args:
        base: Empty where there is none.
    """
    if theirs in (base, ours):
        return ours
    if ours == base:
        return theirs
    ours_lines, theirs_lines = {*_lines(ours)}, {*_lines(theirs)}
    gone = {line for line in _lines(base) if line not in ours_lines or line not in theirs_lines}
    kept = ours
    if gone & ours_lines:
        whole = (line + b"\n" for line in ours.split(b"\n"))
        kept = b"".join(line for line in whole if _text(line) not in gone)[:-1]
    added = [line for line in dict.fromkeys(_lines(theirs)) if line not in ours_lines | gone]
    if not added:
        return kept
    newline = b"\r\n" if b"\r\n" in kept else b"\n"
    return append_line_break(kept) + b"".join(line + newline for line in added)


def merge_quarantines(base: bytes, ours: bytes, theirs: bytes, path: Path) -> bytes:
    """Return the quarantine both sides want; in doubt a bad record stays out.

    | ours, against the base | theirs | result |
    |---|---|---|
    | as it was | removed | removed |
    | changed, or new | removed, or not there | ours |
    | changed | changed another way | the newer of both |

    Raises:
        BankFormatError: a line of one of them is no entry.
    """
    old, left, right = (_entries(data, path) for data in (base, ours, theirs))
    kept = []
    for identity in dict.fromkeys([*left, *right]):
        before = old.get(identity)
        mine, other = left.get(identity), right.get(identity)
        if before is not None and before in (mine, other) and None in (mine, other):
            continue  # one side took it out, the other one did not touch it
        there = [entry for entry in (mine, other) if entry is not None]
        kept += [entry for entry in there if entry != before] or there
    return serialize_quarantine(kept)  # of equal identities it writes the newest


def _lines(data: bytes) -> list[bytes]:
    return [text for line in data.split(b"\n") if (text := _text(line))]


def _text(line: bytes) -> bytes:
    line = line.strip(_SPACE)
    while line.startswith(BOM):  # editors that each add one leave several
        line = line.removeprefix(BOM).strip(_SPACE)
    return line


def _entries(data: bytes, path: Path) -> _Entries:
    return {entry.identity: entry for entry in parse_quarantine(data, path)}
