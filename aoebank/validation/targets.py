"""Targets of the files of a tree: copies, names in two spellings, versions a reader falls back to.

same records and times to the last digit under two targets     copied, not measured
one target in two spellings                                    each reader finds half of them
one workload of one target in two files of a folder            the spelling of the name decides
a folder per version of the tool, a name in newer ones only    strategies of a newer compiler
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from aoebank.formats.protocol import ParsedFile, find_error, iter_or_none
from aoebank.formats.registry import parse_name
from aoebank.model.digest import canonical_text
from aoebank.model.finding import Finding, Location, make_finding
from aoebank.storage.tree import FileKind, TreeEntry

# Without a time two devices may well choose alike; with one, a second equal time is no accident.
_FEWEST_UNTIMED = 4
_FEWEST_TIMED = 3
_VERSION = re.compile(r"triton_(\d+(?:_\d+)*)", re.ASCII)  # folders of SGLang
_SPELLING = re.compile(r"[^0-9a-z]")

_Group = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A file of one target: a hash of each record, by the hash of its key."""

    path: Path
    target: str
    records: Mapping[int, int]
    is_timed: bool


class TargetCheck:
    """Remembers the targets of files, and tells at the end which contradict each other.

    Args:
        entries: All files that will be checked.
    """

    def __init__(self, entries: Iterable[TreeEntry]) -> None:
        self._targets: dict[_Group, set[str]] = {}
        self._paths: dict[tuple[str, str], list[Path]] = {}  # By format and target
        self._workloads: dict[tuple[Path, str, str, str], list[Path]] = {}
        self._versions: dict[Path, dict[str, set[str]]] = {}
        self._groups: dict[Path, _Group] = {}
        self._seen: dict[_Group, list[_Seen]] = {}
        self._found: list[Finding] = []
        for entry in entries:
            if entry.kind is FileKind.BANK:
                self._note(entry.path)

    def _note(self, path: Path) -> None:
        named = parse_name(path)
        target = named[1].soc_version if named is not None else None
        if named is None or target is None:
            return
        format_, op_type = named[0], named[1].op_type or ""
        self._paths.setdefault((format_.name, target), []).append(path)
        if format_.is_of_one_target:
            self._workloads.setdefault((path.parent, format_.name, target, op_type), []).append(
                path
            )
            if _VERSION.fullmatch(path.parent.name):
                names = self._versions.setdefault(path.parent.parent, {})
                names.setdefault(path.parent.name, set()).add(path.name)
        if format_.is_of_one_target or format_.keeps_times:
            group = (format_.name, op_type)
            self._groups[path] = group
            self._targets.setdefault(group, set()).add(target)

    def add(self, parsed: ParsedFile) -> None:
        """Remember the records of a file whose workloads other targets have too."""
        if find_error(parsed) is not None:
            return
        if parsed.format.has_target_in_rows:
            self._found += _copied_rows(parsed)
            return
        group = self._groups.get(parsed.path)
        if group is None or parsed.name is None or len(self._targets[group]) < 2:
            return
        is_timed = parsed.format.keeps_times
        times = parsed.format.iter_times_us(parsed) if is_timed else iter(())
        timed = [time is not None for time in times] or [True] * len(parsed)
        records = {
            hash(key): hash(b"".join(parsed.raw(number).split()))
            for number, key in enumerate(parsed.keys)
            if timed[number]
        }
        target = str(parsed.name.soc_version)
        seen = _Seen(path=parsed.path, target=target, records=records, is_timed=is_timed)
        self._seen.setdefault(group, []).append(seen)

    def findings(self) -> Iterator[Finding]:
        """Yield copies between targets, targets and workloads in two spellings, and fall-backs."""
        yield from self._found
        for files in self._seen.values():
            yield from _copies(files)
        yield from _spellings(self._paths)
        for paths in self._workloads.values():
            yield from _twice(sorted(paths))
        for folder, versions in self._versions.items():
            yield from _fall_backs(folder, versions)


# ---- copies ----


def _copies(files: list[_Seen]) -> Iterator[Finding]:
    ordered = sorted(files, key=lambda seen: str(seen.path))
    for number, seen in enumerate(ordered):
        others = (other for other in ordered[:number] if other.target != seen.target)
        other = next((other for other in others if _is_copy(seen, other)), None)
        if other is not None:
            what = "records and times" if seen.is_timed else "records"
            yield make_finding(
                "AB519",
                Location(path=seen.path),
                f"{what} are those of another target, to the last digit",
                got=f"{_count_equal(seen, other)} of {len(seen.records)} as for {other.target}",
                expected=f"others than in {other.path.name}",
                hint="tune them on this target, or remove the file",
            )


def _count_equal(one: _Seen, other: _Seen) -> int:
    return sum(other.records.get(key) == digest for key, digest in one.records.items())


def _is_copy(one: _Seen, other: _Seen) -> bool:
    if one.is_timed:
        return _count_equal(one, other) >= _FEWEST_TIMED
    return len(one.records) >= _FEWEST_UNTIMED and one.records == other.records


def _copied_rows(parsed: ParsedFile) -> Iterator[Finding]:
    """Yield the pairs of targets that share rows with their times."""
    if len({*parsed.format.iter_targets(parsed)}) < 2:
        return
    by_answer: dict[str, dict[str, int]] = {}
    for number, record in enumerate(iter_or_none(parsed)):
        if record is not None and record.cost_us is not None and record.soc_version:
            answer = canonical_text([record.workload, record.strategy, record.cost_us])
            by_answer.setdefault(answer, {}).setdefault(record.soc_version, number)
    shared: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], int] = {}
    for targets in by_answer.values():
        for pair in combinations(sorted(targets), 2):
            shared[pair] += 1
            first.setdefault(pair, max(targets[target] for target in pair))
    for pair, number in shared.items():
        if number >= _FEWEST_TIMED:
            start, end = parsed.starts[first[pair]], parsed.ends[first[pair]]
            yield make_finding(
                "AB519",
                parsed.lines.location(parsed.path, start, end),
                "records and times are those of another target, to the last digit",
                got=f"{number} rows of {pair[1]} as for {pair[0]}",
                expected="times of each device",
                hint="tune them on this target, or remove the rows",
            )


# ---- names ----


def _spellings(paths: Mapping[tuple[str, str], list[Path]]) -> Iterator[Finding]:
    groups: dict[tuple[str, str], list[str]] = {}
    for format_name, target in paths:
        groups.setdefault((format_name, _SPELLING.sub("", target.lower())), []).append(target)
    for (format_name, _), targets in groups.items():
        usual = min(targets, key=lambda target: (-len(paths[format_name, target]), target))
        for target in targets:
            known = parse_name(paths[format_name, target][0])
            if target == usual or (known is not None and known[0].is_soc(target, usual)):
                continue
            yield make_finding(
                "AB520",
                Location(path=min(paths[format_name, target])),
                "one target in two spellings: a reader asks for one of them",
                got=f"{target} in {len(paths[format_name, target])} of the files",
                expected=usual,
                hint="rename the files as the reader spells the target",
            )


def _twice(paths: list[Path]) -> Iterator[Finding]:
    for path in paths[1:]:
        yield make_finding(
            "AB521",
            Location(path=path),
            "workload has two files in a folder: names differ by blanks",
            got=path.name,
            expected=paths[0].name,
            hint="merge them into the name the reader asks for",
        )


# ---- versions ----


def _fall_backs(folder: Path, versions: Mapping[str, set[str]]) -> Iterator[Finding]:
    """Yield the versions whose reader finds files of newer ones: it takes the newest there is."""
    newest: dict[str, str] = {}
    for version in sorted(versions, key=_number):
        newest.update(dict.fromkeys(versions[version], version))
    for version in sorted(versions, key=_number):
        newer = sorted(
            name
            for name, other in newest.items()
            if name not in versions[version] and _number(other) > _number(version)
        )
        if newer:
            yield make_finding(
                "AB522",
                Location(path=folder / version),
                "look-up falls back to files of a newer version of the tool",
                got=f"{len(newer)} names, such as {newer[0]} of {newest[newer[0]]}",
                expected="files of this version or of older ones",
            )


def _number(version: str) -> tuple[int, ...]:
    match = _VERSION.fullmatch(version)
    assert match is not None
    return tuple(map(int, match[1].split("_")))
