"""Files of one JSON value per line: where the lines are, and records that are one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aoebank.formats.protocol import ParsedFile
from aoebank.formats.text import json_text
from aoebank.formats.text.checks import BOM, is_stub
from aoebank.formats.text.problem import Problem, blank_line
from aoebank.formats.text.scan import FileScan
from aoebank.model.digest import canonical_text
from aoebank.model.json_value import JsonValue

_SPACE = b" \t\r\n"


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


def iter_values(scan: FileScan) -> Iterator[tuple[JsonValue, int, int]]:
    """Yield the value of each line with its first byte and end; what is none is reported.

    A file that holds `{}` and nothing else was emptied on purpose and has no line.
    """
    if is_stub(scan.data):
        return
    for start, end in iter_lines(scan.data):
        line = scan.data[start:end]
        try:
            value = json_text.scan_line(line.decode("utf-8", errors="replace"))
        except json_text.JsonTextError as error:
            if line:
                scan.report_bad(error, start, end)
            else:
                scan.report(blank_line(), start, end)
            continue
        yield value, start, end


def duplicate_identity(
    parsed: ParsedFile,
    number: int,
    tokens: tuple[str, ...],
    answer: str,
    conflict_hint: str,
) -> Iterator[Problem]:
    """Yield the problem of a record whose identity an earlier or later one has.

    Args:
        parsed: A file of one object per record.
        number: Position of the record.
        tokens: Where in it its workload stands.
        answer: Member that is the strategy.
        conflict_hint: What to do when it has not.
    """
    used = parsed.find(parsed.keys[number])
    if used is None or used == number:
        return
    line, _ = parsed.lines.position(parsed.starts[used])
    values = [json_text.loads(parsed.text(place)) for place in (number, used)]
    answers = [canonical_text(value[answer]) for value in values if isinstance(value, Mapping)]
    same = len(answers) == 2 and answers[0] == answers[1]
    yield Problem(
        code="AB305" if same else "AB306",
        tokens=tokens,
        message="same workload as another record" + ("" if same else " with another strategy"),
        got=f"line {line}",
        expected="each workload once",
        hint="remove this line" if same else conflict_hint,
    )
