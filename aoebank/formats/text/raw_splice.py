"""Put records, as bytes, in the place of others, between them, or take them out.

What a merge needs: it never makes a record, it only chooses among bytes that exist. So no
record is read here, and a million of them are one pass over the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby
from operator import itemgetter

from aoebank.formats.protocol import ParsedFile
from aoebank.formats.text.checks import BOM

_Edit = tuple[int, int, bytes]  # from this byte up to that one comes this instead


def splice_raw(
    parsed: ParsedFile,
    *,
    replaced: Mapping[int, bytes],
    removed: AbstractSet[int],
    added: Sequence[tuple[int, bytes]],
) -> bytes:
    """Return the file with some records replaced, removed and added, the rest as it was.

    Args:
        parsed: A file without error findings.
        replaced: New bytes by position.
        removed: Positions; none of them in `replaced`.
        added: Position of the record to follow, and bytes, sorted by position; -1 for the
            start of the file. None of the positions is in `removed`.
    """
    if is_blank(parsed.data):
        parsed = parsed.format.parse(parsed.format.empty, parsed.path)
    if not (replaced or removed or added):
        return parsed.data
    edits = [(parsed.starts[number], parsed.ends[number], raw) for number, raw in replaced.items()]
    groups = [(after, [raw for _, raw in group]) for after, group in groupby(added, itemgetter(0))]
    if not parsed.format.brackets:
        edits += _line_cuts(parsed, removed)
        edits += _new_lines(parsed, groups, removed)
    else:
        kept = [number for number in (*_ends(parsed, removed),) if number is not None]
        edits += _member_cuts(parsed, removed, kept)
        edits += _new_members(parsed, groups, kept)
    edits.sort(key=lambda edit: edit[:2])
    return b"".join(_pieces(parsed.data, edits))


def is_blank(data: bytes) -> bool:
    """Return whether a file holds white space at most; `strip` would copy gigabytes."""
    return not data or data.isspace()


def _pieces(data: bytes, edits: Iterable[_Edit]) -> Iterator[bytes | memoryview]:
    view = memoryview(data)  # a slice of it costs nothing, and most of the file is one slice
    place = 0
    for start, end, text in edits:
        yield view[place:start]
        yield text
        place = end
    yield view[place:]


def _ends(parsed: ParsedFile, removed: AbstractSet[int]) -> Iterator[int | None]:
    """Yield the first and the last record that stay, if any does."""
    numbers = range(len(parsed))
    for order in (numbers, reversed(numbers)):
        yield next((number for number in order if number not in removed), None)


def _line_cuts(parsed: ParsedFile, removed: AbstractSet[int]) -> Iterator[_Edit]:
    for number in removed:
        yield (*_whole_line(parsed.data, parsed.starts[number], parsed.ends[number]), b"")


def _whole_line(data: bytes, start: int, end: int) -> tuple[int, int]:
    first = data.rfind(b"\n", 0, start) + 1
    if first == 0 and data.startswith(BOM):
        first = len(BOM)
    newline = data.find(b"\n", end)
    return first, len(data) if newline < 0 else newline + 1


def _new_lines(
    parsed: ParsedFile, groups: Iterable[tuple[int, list[bytes]]], removed: AbstractSet[int]
) -> Iterator[_Edit]:
    data = parsed.data
    newline = b"\r\n" if b"\r\n" in data else b"\n"
    first = next(_ends(parsed, removed))
    for after, texts in groups:
        if after >= 0:
            place = parsed.ends[after]
            yield place, place, b"".join(newline + text for text in texts)
        elif first is not None:
            place = parsed.starts[first]
            yield place, place, b"".join(text + newline for text in texts)
        elif len(parsed):  # all go: where the first of them stands, so that no blank line comes
            place = _whole_line(data, parsed.starts[0], parsed.ends[0])[0]
            yield place, place, b"".join(text + newline for text in texts)
        else:
            yield _lines_at_the_end(data, texts, newline)


def _lines_at_the_end(data: bytes, texts: Iterable[bytes], newline: bytes) -> _Edit:
    has_end = not data.removeprefix(BOM) or data.endswith(b"\n")
    lead = b"" if has_end else newline
    return len(data), len(data), lead + b"".join(text + newline for text in texts)


def _member_cuts(
    parsed: ParsedFile, removed: AbstractSet[int], kept: Sequence[int]
) -> Iterator[_Edit]:
    """Yield the removals, each with one comma."""
    if not removed:
        return
    if not kept:
        yield parsed.starts[0], parsed.ends[-1], b""
        return
    last = kept[1]
    for number in removed:
        if number < last:
            yield parsed.starts[number], parsed.starts[number + 1], b""
    if last < len(parsed) - 1:
        yield parsed.ends[last], parsed.ends[-1], b""


def _new_members(
    parsed: ParsedFile,
    groups: Iterable[tuple[int, list[bytes]]],
    kept: Sequence[int],
) -> Iterator[_Edit]:
    data = parsed.data
    brackets, separator = parsed.format.brackets, _separator(parsed)
    for after, texts in groups:
        if after >= 0:
            place = parsed.ends[after]
            yield place, place, b"".join(separator + text for text in texts)
        elif kept:
            place = parsed.starts[kept[0]]
            yield place, place, b"".join(text + separator for text in texts)
        elif len(parsed):
            yield parsed.starts[0], parsed.starts[0], separator.join(texts)
        else:
            start, end = data.find(brackets[:1]) + 1, data.rfind(brackets[1:])
            lead = separator[1:]
            yield start, end, lead + separator.join(texts) + _line_end(separator)


def _separator(parsed: ParsedFile) -> bytes:
    """Return what stands between two records here, or would."""
    data = parsed.data
    if len(parsed) > 1:
        return data[parsed.ends[-2] : parsed.starts[-1]]
    if len(parsed):
        return b"," + data[data.find(parsed.format.brackets[:1]) + 1 : parsed.starts[0]]
    return b",\r\n" if b"\r\n" in data else b",\n"


def _line_end(separator: bytes) -> bytes:
    return b"\r\n" if b"\r\n" in separator else b"\n"
