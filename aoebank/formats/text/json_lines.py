"""Files of one JSON value per line: where the lines are, and edits that spare the others."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aoebank.formats.lines import LineIndex
from aoebank.formats.protocol import Format, ParsedFile
from aoebank.formats.text import json_text
from aoebank.formats.text.checks import BOM, check_text
from aoebank.formats.text.problem import Problem, RecordText
from aoebank.model.finding import Finding, Location, make_finding
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Record

MOST_LISTED = 1000  # findings of one code about lines of a file; nobody reads on, memory ends
_SPACE = b" \t\r\n"
_MARKERS = (b"<<<<<<< ", b"=======", b"||||||| ", b">>>>>>> ")


@dataclass(slots=True)
class LineScan:
    """What the lines of a file hold; filled by a format while it reads them.

    Attributes:
        findings: What is odd about the text as a whole, and bad lines as they are met.
        left_out: How many more bad lines there are, by code, beyond those listed.
    """

    data: bytes
    path: Path
    lines: LineIndex
    keys: list[str] = field(default_factory=list)
    starts: array[int] = field(default_factory=lambda: array("Q"))
    ends: array[int] = field(default_factory=lambda: array("Q"))
    findings: list[Finding] = field(default_factory=list)
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

    def take_over(self, findings: Iterable[Finding], left_out: Mapping[str, int]) -> None:
        """Add what a scan of later lines found."""
        self.findings += [each for each in findings if not self._is_enough(each.code)]
        self.left_out.update(left_out)

    def _is_enough(self, code: str) -> bool:
        """Return whether a further finding of a code is only counted."""
        if self._listed[code] < MOST_LISTED:
            self._listed[code] += 1
            return False
        self.left_out[code] += 1
        return True

    def file(self, format_: Format) -> ParsedFile:
        """Return the file as scanned."""
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
    """Yield a finding per code about the lines that were only counted."""
    for code, number in sorted(left_out.items()):
        yield make_finding(
            code, Location(path=path), "more lines like those listed", got=f"{number} more"
        )


def start_scan(data: bytes, path: Path) -> LineScan:
    """Return a scan that holds the findings about the bytes of a file, and no record yet."""
    lines = LineIndex(data)
    return LineScan(data=data, path=path, lines=lines, findings=[*check_text(data, path, lines)])


def iter_lines(data: bytes, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield first byte and end of each line, white space around it left out.

    A blank line has no length; the empty end of a file is no line.

    Args:
        data: A whole file.
        start: Where a line starts.
        stop: Where another one does; the end of the file by default.
    """
    place = max(start, len(BOM)) if data.startswith(BOM) else start
    length = len(data) if stop is None else stop
    while place < length:
        newline = data.find(b"\n", place)
        end = length if newline < 0 else newline
        text = data[place:end]
        stripped = text.strip(_SPACE)
        if len(stripped) == len(text):
            yield place, end
        else:
            first = place + len(text) - len(text.lstrip(_SPACE)) if stripped else place
            yield first, first + len(stripped)
        place = end + 1


def record_text(parsed: ParsedFile, number: int) -> RecordText:
    """Return the text of a record, ready to tell where a problem in it is."""
    return RecordText(
        path=parsed.path,
        lines=parsed.lines,
        text=parsed.text(number),
        start=parsed.starts[number],
        end=parsed.ends[number],
    )


def duplicate_identity(
    parsed: ParsedFile,
    number: int,
    tokens: tuple[str, ...],
    is_equal: Callable[[Mapping[str, JsonValue]], bool],
    conflict_hint: str,
) -> Iterator[Problem]:
    """Yield the problem of a record whose identity an earlier or later one has.

    Args:
        parsed: A file of one object per record.
        number: Position of the record.
        tokens: Where in it its workload stands.
        is_equal: Whether the record readers use, as an object, has the same strategy.
        conflict_hint: What to do when it has not.
    """
    used = parsed.find(parsed.keys[number])
    if used is None or used == number:
        return
    line, _ = parsed.lines.position(parsed.starts[used])
    other = json_text.scan(parsed.text(used), 0)[0]
    same = isinstance(other, Mapping) and is_equal(other)
    yield Problem(
        code="AB305" if same else "AB306",
        tokens=tokens,
        message="same workload as another record" + ("" if same else " with another strategy"),
        got=f"line {line}",
        expected="each workload once",
        hint="remove this line" if same else conflict_hint,
    )


def splice_lines(
    parsed: ParsedFile,
    changes: Mapping[str, Record | None],
    render: Callable[[Record], bytes],
) -> bytes:
    """Return the file with its changed records rendered and the other lines as they were.

    A replaced key takes the place readers use; further records of the same key go.
    """
    if not changes:
        return parsed.data
    data, parts, place = parsed.data, [], 0
    for number, key in enumerate(parsed.keys):
        if key not in changes:
            continue
        start, end = parsed.starts[number], parsed.ends[number]
        record = changes[key]
        text = b"" if record is None or parsed.find(key) != number else render(record)
        if not text:
            start, end = _whole_line(data, start, end)
        parts += [data[place:start], text]
        place = end
    parts.append(data[place:])
    added = [
        render(record)
        for key, record in changes.items()
        if record is not None and parsed.find(key) is None
    ]
    return _append(b"".join(parts), added, b"\r\n" if b"\r\n" in data else b"\n")


def _whole_line(data: bytes, start: int, end: int) -> tuple[int, int]:
    first = data.rfind(b"\n", 0, start) + 1
    if first == 0 and data.startswith(BOM):
        first = len(BOM)
    newline = data.find(b"\n", end)
    return first, len(data) if newline < 0 else newline + 1


def _append(data: bytes, added: list[bytes], newline: bytes) -> bytes:
    if not added:
        return data
    has_end = not data.removeprefix(BOM) or data.endswith(b"\n")
    text = newline.join(added)
    return data + text + newline if has_end else data + newline + text
