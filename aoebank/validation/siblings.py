"""Sibling files: banks of related chips carry the same keys and get the same edits.

Siblings lie side by side, or each in the folder of its soc_version, and have the same format,
operator, kind and number of cores; their soc_versions are of one family, as a data file tells.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aoebank.diffing.fields import FieldChange, diff_fields
from aoebank.errors import AoebankError, RecordError, shell_word
from aoebank.formats.names import BankName
from aoebank.formats.protocol import ParsedFile, find_error
from aoebank.formats.registry import bank_folders, find_format
from aoebank.formats.text.json_text import dumps
from aoebank.model.digest import canonical_text
from aoebank.model.finding import Finding, Location, make_finding
from aoebank.model.record import Record
from aoebank.storage.readers.soc_versions import soc_family
from aoebank.storage.tree import FileKind, TreeEntry
from aoebank.validation.source import DiskFiles

SiblingGroup = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sibling:
    """One file: the hash of each key readers use, and of the bytes of its record."""

    path: Path
    keys: array[int]
    digests: array[int]

    def records(self) -> dict[int, int]:
        return dict(zip(self.keys, self.digests, strict=True))


class SiblingCheck:
    """Remembers files that have siblings by their names, and tells how they differ at the end.

    Of a record stays 16 bytes; files are read again only where siblings differ.

    Args:
        entries: All files that will be checked.
        files: Where they are read.
    """

    def __init__(self, entries: Iterable[TreeEntry], files: DiskFiles) -> None:
        self._files = files
        groups: dict[SiblingGroup, list[Path]] = {}
        for entry in entries:
            group = sibling_group(entry.path) if entry.kind is FileKind.BANK else None
            if group is not None:
                groups.setdefault(group, []).append(entry.path)
        self._groups = {
            path: group for group, paths in groups.items() if len(paths) > 1 for path in paths
        }
        self._seen: dict[SiblingGroup, list[_Sibling]] = {}

    def add(self, parsed: ParsedFile) -> None:
        """Remember a file, if it has siblings; a broken or an empty one has none."""
        group = self._groups.get(parsed.path)
        if group is None or not len(parsed) or find_error(parsed) is not None:
            return
        used = [number for number, key in enumerate(parsed.keys) if parsed.find(key) == number]
        sibling = _Sibling(
            path=parsed.path,
            keys=array("q", (hash(parsed.keys[number]) for number in used)),
            digests=array("q", (hash(parsed.raw(number)) for number in used)),
        )
        self._seen.setdefault(group, []).append(sibling)

    def findings(self) -> Iterator[Finding]:
        """Yield at most two findings per file: records that differ, and records it lacks."""
        for siblings in self._seen.values():
            yield from _compare(_related(siblings), self._files)


def sibling_group(path: Path) -> SiblingGroup | None:
    """Return the group of siblings a name belongs to; None for a file that has none.

    >>> name = "Ascend910B2/unified_bank/Ascend910B2_24_AiCore_matmul.json"
    >>> sibling_group(Path(name)) == sibling_group(Path(name.replace("B2", "B1")))
    True
    """
    format_ = find_format(path)
    name: BankName | None = format_.parse_name(path.name) if format_ else None
    spelled = name.soc_version if name else None
    family = soc_family(spelled) if spelled else None
    if format_ is None or name is None or spelled is None or family is None:
        return None
    if name.op_type is None:
        return None
    folder = path.parent
    is_own = folder.name in bank_folders() and format_.fits_folder(spelled, folder.parent.name)
    place = (str(folder.parent.parent), folder.name) if is_own else (str(folder), "")
    cores = (str(name.core_num), name.core_type or "")
    return (*place, format_.name, name.op_type, *cores, family)


def _related(siblings: Sequence[_Sibling]) -> list[_Sibling]:
    """Return the files of which half of the keys are in others; the rest was tuned apart."""
    found = [*siblings]
    while True:
        counts = Counter(key for sibling in found for key in sibling.keys)
        kept = [
            sibling
            for sibling in found
            if 2 * sum(counts[key] > 1 for key in sibling.keys) >= len(sibling.keys)
        ]
        if len(kept) == len(found):
            return kept
        found = kept


def _compare(siblings: Sequence[_Sibling], source: DiskFiles) -> Iterator[Finding]:
    if len(siblings) < 2:
        return
    records = [sibling.records() for sibling in siblings]
    counts = Counter(key for keys in records for key in keys)
    digests: dict[int, set[int]] = {}
    for keys in records:
        for key, digest in keys.items():
            digests.setdefault(key, set()).add(digest)
    suspects = {key for key, found in digests.items() if len(found) > 1}
    most = {key for key, number in counts.items() if 2 * number > len(siblings) - 1}
    lacking = [bool(most - keys.keys()) for keys in records]
    if not suspects and not any(lacking):
        return
    try:
        files = [_File(source.load(sibling.path), suspects | most) for sibling in siblings]
    except (AoebankError, OSError):  # gone or broken meanwhile
        return
    for number, file in enumerate(files):
        others = [*files[:number], *files[number + 1 :]]
        yield from _differing(file, files, suspects & records[number].keys())
        yield from _missing(file, others, most - records[number].keys())


class _File:
    """A sibling read again, its records by the hash of their key."""

    def __init__(self, parsed: ParsedFile, wanted: set[int]) -> None:
        self.parsed = parsed
        self.path = parsed.path
        self.keys = {hash(key): key for key in self.parsed.keys if hash(key) in wanted}

    def find(self, key: int) -> Record | None:
        """Return a record, None if it is not here or cannot be read."""
        number = self.parsed.find(self.keys[key]) if key in self.keys else None
        try:
            return None if number is None else self.parsed.format.record(self.parsed, number)
        except RecordError:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Difference:
    """A record that is not as most siblings have it; `other` is one of theirs."""

    record: Record
    other: Record
    place: Path


def _differing(file: _File, files: Sequence[_File], keys: Iterable[int]) -> Iterator[Finding]:
    found = [difference for key in keys if (difference := _difference(file, files, key))]
    if not found:
        return
    example = min(found, key=lambda difference: difference.record.key)
    first = diff_fields(example.other.strategy, example.record.strategy)[0]
    record = example.record
    finding = make_finding(
        "AB516",
        record.location or Location(path=file.path),
        "records are not as sibling files have them",
        got=f"{len(found)} such, for example {record.key} with {_spell(first, of_b=True)}",
        expected=f"{_spell(first, of_b=False)} as in {example.place.name}",
        hint=_hint(example.place, file.path),
    )
    yield replace(finding, key=record.key)


def _difference(file: _File, files: Sequence[_File], key: int) -> _Difference | None:
    """Return the difference of a record from most of its siblings, of equally many the first."""
    records: Mapping[Path, Record] = {
        other.path: record for other in files if (record := other.find(key)) is not None
    }
    texts = {path: canonical_text(record.strategy) for path, record in records.items()}
    common, _ = Counter(texts.values()).most_common(1)[0] if texts else ("", 0)
    if file.path not in texts or texts[file.path] == common:
        return None
    place = next(path for path, text in texts.items() if text == common)
    return _Difference(record=records[file.path], other=records[place], place=place)


def _missing(file: _File, others: Sequence[_File], keys: set[int]) -> Iterator[Finding]:
    if not keys:
        return
    held = ((other, key) for other in others for key in keys if key in other.keys)
    key, place = min((other.keys[key], other.path) for other, key in held)
    yield make_finding(
        "AB517",
        Location(path=file.path),
        "records that sibling files have are missing",
        got=f"{len(keys)} missing, for example {key}",
        expected=f"as in {place.name}",
        hint=_hint(place, file.path),
    )


def _hint(sibling: Path, path: Path) -> str:
    files = f"{shell_word(sibling)} {shell_word(path)}"
    return f"make them alike, if they should be; aoebank diff {files} shows all"


def _spell(change: FieldChange, *, of_b: bool) -> str:
    if not (change.has_b if of_b else change.has_a):
        return f"no {change.member}"
    return f"{change.member} {dumps(change.b if of_b else change.a)}"
