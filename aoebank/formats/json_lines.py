"""Files of one JSON value per line: where the lines are, and edits that spare the others."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aoebank.formats import json_text
from aoebank.formats.lines import LineIndex
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.text_checks import BOM, check_text
from aoebank.model.finding import Finding, make_finding
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Record

_SPACE = b" \t\r\n"
_MARKERS = (b"<<<<<<< ", b"=======", b"||||||| ", b">>>>>>> ")


@dataclass(slots=True)
class LineScan:
    """What the lines of a file hold; filled by a format while it reads them.

    Attributes:
        findings: What is odd about the text as a whole, and bad lines as they are met.
        bad_lines: Lines a reader of the format trips over.
    """

    data: bytes
    path: Path
    lines: LineIndex
    keys: list[str] = field(default_factory=list)
    starts: array[int] = field(default_factory=lambda: array("Q"))
    ends: array[int] = field(default_factory=lambda: array("Q"))
    findings: list[Finding] = field(default_factory=list)
    bad_lines: int = 0

    def add(self, key: str, start: int, end: int) -> None:
        """Note the record between two bytes."""
        self.keys.append(key)
        self.starts.append(start)
        self.ends.append(end)

    def report(
        self, code: str, start: int, end: int, message: str, *, offset: int = 0,
        got: str | None = None, expected: str | None = None, hint: str = "",
    ) -> None:  # fmt: skip
        """Add a finding about a line, at a character offset in it."""
        text = self.data[start:end].decode("utf-8", errors="replace")[:offset]
        place = self.lines.location(self.path, start + len(text.encode("utf-8")), end)
        self.findings.append(
            make_finding(code, place, message, got=got, expected=expected, hint=hint)
        )

    def report_bad(self, error: json_text.JsonTextError, start: int, end: int) -> None:
        """Add the finding about a line that is no JSON; conflict markers have theirs."""
        self.bad_lines += 1
        if not self.data.startswith(_MARKERS, start):
            self.report(
                error.code, start, end, error.problem, offset=error.offset,
                hint="restore the line from git, or remove it",
            )  # fmt: skip


def start_scan(data: bytes, path: Path) -> LineScan:
    """Return a scan that holds the findings about the bytes of a file, and no record yet."""
    lines = LineIndex(data)
    return LineScan(data=data, path=path, lines=lines, findings=[*check_text(data, path, lines)])


def iter_lines(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield first byte and end of each line, white space around it left out.

    A blank line has no length; the empty end of a file is no line.
    """
    place = len(BOM) if data.startswith(BOM) else 0
    length = len(data)
    while place < length:
        newline = data.find(b"\n", place)
        end = length if newline < 0 else newline
        text = data[place:end]
        stripped = text.strip(_SPACE)
        if len(stripped) == len(text):
            yield place, end
        else:
            start = place + len(text) - len(text.lstrip(_SPACE)) if stripped else place
            yield start, start + len(stripped)
        place = end + 1


def read_line(text: str) -> JsonValue:
    """Return the value of a line, fast; numbers may lose their spelling.

    Raises:
        JsonTextError: it is no JSON value, or something follows it.
    """
    value, end = json_text.scan(text, 0)
    if end != len(text):
        raise json_text.JsonTextError("text after the end of the JSON value", end, "AB107")
    return value


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
