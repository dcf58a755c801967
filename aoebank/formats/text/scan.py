"""A scan of a file: the places of its records, and what is wrong on the way to them."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from aoebank.formats.lines import LineIndex
from aoebank.formats.protocol import Format, ParsedFile
from aoebank.formats.text import json_text
from aoebank.formats.text.checks import check_text, is_lfs_pointer
from aoebank.formats.text.problem import Problem, RecordText
from aoebank.model.codes import Severity
from aoebank.model.finding import Finding, Location, make_finding
from aoebank.processes import count_processes, map_in_order

MOST_LISTED = 1000  # findings of one code about places in a file; nobody reads on, memory ends
_MARKERS = (b"<<<<<<< ", b"=======", b"||||||| ", b">>>>>>> ")


class ScannedPart(NamedTuple):
    """Results of scanning a part of a file, small enough to pass between processes."""

    keys: list[str]
    starts: array[int]
    ends: array[int]
    findings: list[Finding]
    left_out: Counter[str]


_Piece = tuple[int, int]
SpreadPieces = Callable[
    [Callable[[_Piece], ScannedPart], Sequence[_Piece], int], Iterator[ScannedPart]
]
"""Does the same with pieces of a file, bytes from and to, in so many processes."""


@dataclass(slots=True)
class FileScan:
    """Records and findings of a file; a format fills them while it reads."""

    data: bytes
    path: Path
    lines: LineIndex
    keys: list[str] = field(default_factory=list)
    starts: array[int] = field(default_factory=lambda: array("Q"))
    ends: array[int] = field(default_factory=lambda: array("Q"))
    # What is odd about the text as a whole, and bad records as they are met.
    findings: list[Finding] = field(default_factory=list)
    # How many more bad records there are, by code, beyond those listed.
    left_out: Counter[str] = field(default_factory=Counter)
    _listed: Counter[str] = field(default_factory=Counter)

    def add(self, key: str, start: int, end: int) -> None:
        """Note the record between two bytes."""
        self.keys.append(key)
        self.starts.append(start)
        self.ends.append(end)

    def text_at(self, start: int, end: int, prefix: tuple[str, ...] = ()) -> RecordText:
        """Return the text between two bytes, ready to tell where a problem is."""
        return RecordText(
            path=self.path,
            lines=self.lines,
            start=start,
            end=end,
            prefix=prefix,
            text=self.data[start:end].decode("utf-8", errors="replace"),
        )

    def report(self, problem: Problem, start: int, end: int) -> None:
        """Add a finding about a line."""
        if not self._is_enough(problem.code):
            self.findings.append(self.text_at(start, end).finding(problem))

    def report_at(self, text: RecordText, problem: Problem) -> None:
        """Add a finding about a text that is at hand already."""
        if not self._is_enough(problem.code):
            self.findings.append(text.finding(problem))

    def report_bad(self, error: json_text.JsonTextError, start: int, end: int) -> None:
        """Add the finding about a line that is no JSON; conflict markers have theirs."""
        if self.data.startswith(_MARKERS, start) or self._is_enough(error.code):
            return
        place = self.lines.location(self.path, self.text_at(start, end).byte(error.offset), end)
        hint = "restore the line from git, or remove it"
        self.findings.append(make_finding(error.code, place, error.problem, hint=hint))

    def report_error(self, error: json_text.JsonTextError) -> None:
        """Add the finding about a file that is no JSON; conflict markers have theirs."""
        if not any(found.code in ("AB102", "AB104") for found in self.findings):
            place = self.lines.location(self.path, error.offset, error.offset)
            hint = "restore the file from git, or mend it in an editor"
            self.findings.append(make_finding(error.code, place, error.problem, hint=hint))

    def take_over(self, later: ScannedPart) -> None:
        """Add what a scan of later bytes found."""
        self.keys += later.keys
        self.starts += later.starts
        self.ends += later.ends
        self.findings += [found for found in later.findings if not self._is_enough(found.code)]
        self.left_out.update(later.left_out)

    def _is_enough(self, code: str) -> bool:
        """True if a further finding of a code is only counted."""
        if self._listed[code] < MOST_LISTED:
            self._listed[code] += 1
            return False
        self.left_out[code] += 1
        return True

    def file(self, format_: Format) -> ParsedFile:
        """Return the file as scanned; one without a record says so, unless it is broken."""
        if is_lfs_pointer(self.data):  # what else is wrong with its text says nothing
            self.findings = [found for found in self.findings if found.code == "AB117"]
        if not self.keys and all(found.severity is not Severity.ERROR for found in self.findings):
            place = Location(path=self.path)
            self.findings.append(make_finding("AB115", place, "file holds no record"))
        self.findings += not_listed(self.path, self.left_out)
        return ParsedFile(
            path=self.path,
            format=format_,
            name=format_.parse_name(self.path.name),
            data=self.data,
            keys=self.keys,
            starts=self.starts,
            ends=self.ends,
            findings=tuple(self.findings),
            lines=self.lines,
        )


def not_listed(path: Path, left_out: Mapping[str, int]) -> Iterator[Finding]:
    """Yield a finding per code about the places that were only counted."""
    for code, number in sorted(left_out.items()):
        yield make_finding(
            code, Location(path=path), "more lines like those listed", got=f"{number} more"
        )


def start_scan(data: bytes, path: Path) -> FileScan:
    """Return a scan that holds the findings about the bytes of a file, and no record yet."""
    lines = LineIndex(data)
    return FileScan(data=data, path=path, lines=lines, findings=[*check_text(data, path, lines)])


def scan_lines(
    scan: FileScan,
    work: Callable[[FileScan, int, int], None],
    count: Callable[[int], int] = count_processes,
    spread: SpreadPieces = map_in_order,
) -> None:
    """Let `work` fill `scan` from all bytes of its file; parts of a large one at the same time.

    Args:
        scan: Nothing found in it yet but what is odd about the text as a whole.
        work: Adds the records and findings of whole lines between two bytes.
        count: Says how many processes scan so many bytes.
        spread: Does the parts in these processes, as `map_in_order`.
    """
    size = len(scan.data)
    processes = count(size)
    # each line in the part its first byte is in
    cuts = {scan.data.find(b"\n", size * part // processes) + 1 for part in range(1, processes)}
    places = sorted({0, size, *cuts})
    if len(places) <= 2:
        work(scan, 0, size)
        return

    def scan_part(part: tuple[int, int]) -> ScannedPart:
        own = FileScan(data=scan.data, path=scan.path, lines=scan.lines)
        work(own, *part)
        return ScannedPart(own.keys, own.starts, own.ends, own.findings, own.left_out)

    for found in spread(scan_part, [*pairwise(places)], processes):
        scan.take_over(found)
