"""Merge side-cars: both sides only ever add lines, so all of them stay."""

from __future__ import annotations

from aoebank.formats.provenance import append_line_break
from aoebank.formats.text.checks import BOM


def merge_side_cars(base: bytes, ours: bytes, theirs: bytes) -> bytes:
    """Return the lines of both sides, those of ours first, each once, in their order.

    A line of the base that one side took out stays out. Bytes of ours stay as they are,
    but for the lines that theirs took out.

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


def _lines(data: bytes) -> list[bytes]:
    return [text for line in data.split(b"\n") if (text := _text(line))]


def _text(line: bytes) -> bytes:
    return line.removeprefix(BOM).strip(b" \t\r\n")
