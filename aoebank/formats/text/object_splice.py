"""Replace, remove and add members of a JSON object or list, all other bytes untouched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from aoebank.formats.protocol import ParsedFile
from aoebank.model.record import Record

_Edit = tuple[int, int, bytes]  # from this byte up to that one comes this instead


def splice_object(
    parsed: ParsedFile,
    changes: Mapping[str, Record | None],
    render: Callable[[Record], bytes],
    *,
    brackets: bytes = b"{}",
    indent: bytes = b"",
) -> bytes:
    """Return the file with its changed members rendered and the rest as it was.

    A replaced key takes the place readers use; further members of the same key go, so that
    no older answer comes back when the file is edited later.

    Args:
        parsed: One object of records, or one list of them.
        changes: As for `Format.serialize`.
        render: Gives the text of a record.
        brackets: What opens and closes the file.
        indent: What stands before a record in a file that shows no example.
    """
    edits, gone = _old_members(parsed, changes, render)
    added = [
        render(record)
        for key, record in changes.items()
        if record is not None and parsed.find(key) is None
    ]
    kept = _last_kept(len(parsed), gone)
    edits += _cuts(parsed, gone, kept)
    if added:
        edits.append(_insertion(parsed, added, kept, brackets, indent))
    return _apply(parsed.data, sorted(edits, key=lambda edit: edit[:2]))


def _old_members(
    parsed: ParsedFile,
    changes: Mapping[str, Record | None],
    render: Callable[[Record], bytes],
) -> tuple[list[_Edit], set[int]]:
    """Return the replacements of old members, and the positions of those to remove."""
    edits: list[_Edit] = []
    gone: set[int] = set()
    for number, key in enumerate(parsed.keys):
        if key not in changes:
            continue
        record = changes[key]
        if record is None or parsed.find(key) != number:
            gone.add(number)
        else:
            edits.append((parsed.starts[number], parsed.ends[number], render(record)))
    return edits, gone


def _last_kept(length: int, gone: set[int]) -> int | None:
    return next((number for number in reversed(range(length)) if number not in gone), None)


def _cuts(parsed: ParsedFile, gone: set[int], kept: int | None) -> Iterable[_Edit]:
    """Yield the removals, each with one comma."""
    if not gone:
        return
    if kept is None:
        yield parsed.starts[0], parsed.ends[-1], b""
        return
    for number in gone:
        if number < kept:
            yield parsed.starts[number], parsed.starts[number + 1], b""
    if kept < len(parsed) - 1:
        yield parsed.ends[kept], parsed.ends[-1], b""


def _insertion(
    parsed: ParsedFile, added: list[bytes], kept: int | None, brackets: bytes, indent: bytes
) -> _Edit:
    data = parsed.data
    newline = b"\r\n" if b"\r\n" in data else b"\n"
    separator = b"," + newline + indent
    if len(parsed) > 1:
        separator = data[parsed.ends[-2] : parsed.starts[-1]]
    text = separator.join(added)
    if kept is not None:
        return parsed.ends[kept], parsed.ends[kept], separator + text
    if len(parsed):
        return parsed.starts[0], parsed.starts[0], text
    start, end = data.find(brackets[:1]), data.rfind(brackets[1:])
    return start + 1, end, newline + indent + text + newline


def _apply(data: bytes, edits: list[_Edit]) -> bytes:
    view = memoryview(data)  # a slice of it costs nothing, and most of the file is one slice
    parts: list[bytes | memoryview] = []
    place = 0
    for start, end, text in edits:
        parts += (view[place:start], text)
        place = end
    parts.append(view[place:])
    return b"".join(parts)
