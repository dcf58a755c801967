"""Put records in the place of others, between them, or take them out; no other byte moves.

Both ways here end in edits of bytes: `splice` renders the records a bank is given by key,
`splice_raw` is what a merge needs, which never makes a record but chooses among bytes that
exist, so that a million of them are one pass over the file. `set_member` and `remove_member` edit
one object: what is added is spelled as its neighbours are, with their separators and their order.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import groupby, pairwise, zip_longest
from operator import itemgetter
from types import MappingProxyType

from aoebank.errors import BankFormatError
from aoebank.formats.protocol import ParsedFile, raise_if_broken
from aoebank.formats.text.checks import BOM, is_blank, is_stub
from aoebank.formats.text.json_text import dumps, iter_members, scan
from aoebank.model.record import Record

_COMMA_BEHIND = re.compile(rb"[ \t\r\n]*,")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """Offsets of a member: start of its name, start and end of its value."""

    name: str
    start: int
    value: int
    end: int


def set_member(text: str, place: int, name: str, value: str) -> str:
    """Return the text with a member set, added where there is none.

    Args:
        place: Offset of the object.
        value: JSON text; takes the place of each value of that name.
    """
    members = _members(text, place)
    same = [member for member in members if member.name == name]
    if not same:
        return _with_new(text, place, members, name, value)
    for member in reversed(same):
        text = text[: member.value] + value + text[member.end :]
    return text


def edit_members(text: str, place: int, values: Mapping[str, str], removed: Collection[str]) -> str:
    """Return a text whose object at `place` has other members.

    Args:
        text: JSON.
        place: Offset of the object.
        values: JSON by the name of the member that has it from here on.
        removed: Names of members it has no longer.
    """
    for name, value in values.items():
        text = set_member(text, place, name, value)
    for name in removed:
        text = remove_member(text, place, name)
    return text


def remove_member(text: str, place: int, name: str) -> str:
    """Return the text without the members of a name, each gone with one comma."""
    members = _members(text, place)
    for number in reversed(range(len(members))):
        if members[number].name != name:
            continue
        if number:
            start, end = members[number - 1].end, members[number].end
        elif len(members) > 1:
            start, end = members[0].start, members[1].start
        else:
            start, end = members[0].start, members[0].end
        text = text[:start] + text[end:]
        members = _members(text, place)
    return text


def _members(text: str, place: int) -> list[_Member]:
    return [
        _Member(name=name, start=start, value=value, end=scan(text, value)[1])
        for name, start, value in iter_members(text, place)
    ]


def _with_new(text: str, place: int, members: list[_Member], name: str, value: str) -> str:
    if not members:
        return f"{text[: place + 1]}{dumps(name)}: {value}{text[place + 1 :]}"
    first, last = members[0], members[-1]
    colon = text[last.start : last.value][len(_spelled_name(text, last)) :]
    member = f"{dumps(name)}{colon}{value}"
    before, gap = text[place + 1 : first.start], colon.partition(":")[2]
    comma = text[members[-2].end : last.start] if len(members) > 1 else f",{before or gap}"
    names = [member.name for member in members]
    number = sum(other < name for other in names) if names == sorted(names) else len(names)
    if number == 0:
        return text[: first.start] + member + comma + text[first.start :]
    end = members[number - 1].end
    return text[:end] + comma + member + text[end:]


def _spelled_name(text: str, member: _Member) -> str:
    return text[member.start : scan(text, member.start)[1]]


_Edit = tuple[int, int, bytes]  # from this byte up to that one comes this instead
_Group = tuple[int, list[bytes]]  # records to add, and the position of the one they follow


def splice(
    parsed: ParsedFile, changes: Mapping[str, Record | None], render: Callable[[Record], bytes]
) -> bytes:
    """Return the file with its changed records rendered and the rest as it was.

    A replaced key takes the place readers use; further records of the same key go, so that
    no older answer comes back when the file is edited later. New keys come last; in a file that is
    sorted by key, as CANN's own writers leave some, where they belong; in the order of `changes` in
    one without records.

    Args:
        changes: As for `Format.serialize`.
        render: Gives the bytes of a record that was not read from a file.
    """
    replaced: dict[int, bytes] = {}
    removed: set[int] = set()
    for number, key in enumerate(parsed.keys if changes else ()):
        if key not in changes:
            continue
        record = changes[key]
        if record is None or parsed.find(key) != number:
            removed.add(number)
        else:
            replaced[number] = _bytes_of(record, render)
    new = {
        key: _bytes_of(record, render)
        for key, record in changes.items()
        if record is not None and parsed.find(key) is None
    }
    kept = next((n for n in reversed(range(len(parsed))) if n not in removed), -1)
    groups = _placed(parsed, new, removed) if new else []
    if parsed.format.brackets:
        return _edited(parsed, replaced, removed, groups)
    added = groups.pop()[1] if groups and groups[-1][0] == kept else []
    data = _edited(parsed, replaced, removed, groups)  # behind the last line, whatever stands there
    return _append(_without_stub(parsed, data) if added else data, added, _newline(parsed.data))


def _placed(
    parsed: ParsedFile, new: Mapping[str, bytes], removed: AbstractSet[int]
) -> list[_Group]:
    """Return new records with the position of the one each follows, -1 for none."""
    numbers = [number for number in range(len(parsed)) if number not in removed]
    last = numbers[-1] if numbers else -1
    keys = [parsed.keys[number] for number in numbers]
    if not (keys and parsed.format.may_be_sorted) or any(a > b for a, b in pairwise(keys)):
        return [(last, [*new.values()])]
    followed: dict[int, list[bytes]] = {}
    for key in sorted(new):
        place = bisect_right(keys, key)
        followed.setdefault(numbers[place - 1] if place else -1, []).append(new[key])
    return sorted(followed.items())


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
    groups = [(after, [raw for _, raw in group]) for after, group in groupby(added, itemgetter(0))]
    return _edited(parsed, replaced, removed, groups)


def splice_checked(
    parsed: ParsedFile,
    *,
    replaced: Mapping[int, bytes] = MappingProxyType({}),
    removed: AbstractSet[int] = frozenset(),
    added: Sequence[tuple[int, bytes]] = (),
) -> ParsedFile:
    """Return the file `splice_raw` gives, read again: each record in it is one that was meant.

    Raises:
        BankFormatError: another record would change; a fault of this program.
    """
    data = splice_raw(parsed, replaced=replaced, removed=removed, added=added)
    after = parsed.format.parse(data, parsed.path)
    raise_if_broken(after)
    found = map(after.raw, range(len(after)))
    meant = _iter_meant(parsed, replaced, removed, added)
    if any(one != other for one, other in zip_longest(found, meant)):
        raise BankFormatError(
            "more records would change than were meant to, and nothing is written",
            path=parsed.path,
            hint="report this with the file, please",
        )
    return after


def _iter_meant(
    parsed: ParsedFile,
    replaced: Mapping[int, bytes],
    removed: AbstractSet[int],
    added: Sequence[tuple[int, bytes]],
) -> Iterator[bytes]:
    """Yield the records a file is to have, in their order."""
    behind = {place: [raw for _, raw in group] for place, group in groupby(added, itemgetter(0))}
    for number in range(-1, len(parsed)):
        if number >= 0 and number not in removed:
            yield replaced[number] if number in replaced else parsed.raw(number)
        yield from behind.get(number, ())


def _bytes_of(record: Record, render: Callable[[Record], bytes]) -> bytes:
    return render(record) if record.raw is None else record.raw


def _edited(
    parsed: ParsedFile,
    replaced: Mapping[int, bytes],
    removed: AbstractSet[int],
    groups: Sequence[_Group] = (),
) -> bytes:
    if not (replaced or removed or groups):
        return parsed.data
    if parsed.properties:
        return _edited_among_properties(parsed, replaced, removed, groups)
    edits = [(parsed.starts[number], parsed.ends[number], raw) for number, raw in replaced.items()]
    kept = [number for number in _ends(parsed, removed) if number is not None]
    if parsed.format.brackets:
        edits += _member_cuts(parsed, removed, kept)
        edits += _new_members(parsed, groups, kept)
    else:
        edits += _line_cuts(parsed, removed)
        edits += _new_lines(parsed, groups, kept)
    edits.sort(key=lambda edit: edit[:2])
    data = b"".join(_pieces(parsed.data, edits))
    if parsed.format.brackets or not is_blank(data.removeprefix(BOM)):
        return data
    return _lead(data) + parsed.format.empty  # a file of 0 bytes would be a damaged one


def _edited_among_properties(
    parsed: ParsedFile,
    replaced: Mapping[int, bytes],
    removed: AbstractSet[int],
    groups: Sequence[_Group],
) -> bytes:
    """Return the same for a file with other members: they are counted as records that stay."""
    spans = [*zip(parsed.starts, parsed.ends, range(len(parsed)), strict=True)]
    spans = sorted([*spans, *((start, end, -1) for start, end in parsed.properties)])
    places = {number: place for place, (_, _, number) in enumerate(spans) if number >= 0}
    # what comes before the first record comes behind the members in front of it
    places[-1] = next((n for n, span in enumerate(spans) if span[2] >= 0), len(spans)) - 1
    whole = replace(
        parsed,
        keys=[""] * len(spans),
        starts=array("Q", [start for start, _, _ in spans]),
        ends=array("Q", [end for _, end, _ in spans]),
        properties=(),
    )
    return _edited(
        whole,
        {places[number]: raw for number, raw in replaced.items()},
        {places[number] for number in removed},
        [(places[after], texts) for after, texts in groups],
    )


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
    parsed: ParsedFile, groups: Iterable[_Group], kept: Sequence[int]
) -> Iterator[_Edit]:
    data, newline = parsed.data, _newline(parsed.data)
    for after, texts in groups:
        if after >= 0:
            place = parsed.ends[after]
            yield place, place, b"".join(newline + text for text in texts)
        elif kept:
            place = parsed.starts[kept[0]]
            yield place, place, b"".join(text + newline for text in texts)
        elif len(parsed):  # all go: where the first of them stands, so that no blank line comes
            place = _whole_line(data, parsed.starts[0], parsed.ends[0])[0]
            yield place, place, b"".join(text + newline for text in texts)
        else:
            start = _without_stub(parsed, data)
            lead = b"" if _has_end(start) else newline
            yield 0, len(data), start + lead + b"".join(text + newline for text in texts)


def _without_stub(parsed: ParsedFile, data: bytes) -> bytes:
    """Return lines as they are, or what records follow where `{}` stands for none."""
    if not is_stub(data):
        return data
    return _lead(data) + (b"" if is_stub(parsed.format.empty) else parsed.format.empty)


def _lead(data: bytes) -> bytes:
    return BOM if data.startswith(BOM) else b""


def _append(data: bytes, added: list[bytes], newline: bytes) -> bytes:
    """Return lines with others behind them; a final line end that is missing stays so."""
    if not added:
        return data
    text = newline.join(added)
    return data + text + newline if _has_end(data) else data + newline + text


def _has_end(data: bytes) -> bool:
    return not data.removeprefix(BOM) or data.endswith(b"\n")


def _newline(data: bytes) -> bytes:
    return b"\r\n" if b"\r\n" in data else b"\n"


def _member_cuts(
    parsed: ParsedFile, removed: AbstractSet[int], kept: Sequence[int]
) -> Iterator[_Edit]:
    """Yield the removals, each with one comma."""
    if not removed:
        return
    if not kept:
        comma = _COMMA_BEHIND.match(parsed.data, parsed.ends[-1])  # in Python's dictionaries
        yield parsed.starts[0], comma.end() if comma else parsed.ends[-1], b""
        return
    last = kept[-1]
    for number in removed:
        if number < last:
            yield parsed.starts[number], parsed.starts[number + 1], b""
    if last < len(parsed) - 1:
        yield parsed.ends[last], parsed.ends[-1], b""


def _new_members(
    parsed: ParsedFile, groups: Iterable[_Group], kept: Sequence[int]
) -> Iterator[_Edit]:
    data = parsed.data
    separator = _separator(parsed)
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
            start, end = _inside(parsed)
            gap = separator[1:] if b"\n" in separator else b""  # a list on one line has no blank
            last = _newline(separator) if gap else b""
            if end == len(data):
                last = b","  # nothing closes them: whoever writes on appends
            yield start, end, gap + separator.join(texts) + last


def _inside(parsed: ParsedFile) -> tuple[int, int]:
    """Return first byte and end of what is in the brackets around the records."""
    data, brackets = parsed.data, parsed.format.brackets
    return parsed.inside or (data.find(brackets[:1]) + 1, data.rfind(brackets[1:]))


def _separator(parsed: ParsedFile) -> bytes:
    """Return the separator between two records of this file."""
    data = parsed.data
    if len(parsed) > 1:
        return data[parsed.ends[-2] : parsed.starts[-1]]
    is_list = parsed.format.brackets == b"[]"  # its writers put all on one line
    if len(parsed):
        gap = data[_inside(parsed)[0] : parsed.starts[0]]
        return b"," + (gap or (parsed.format.indent if is_list else b""))
    if is_list:
        return b"," + parsed.format.indent
    return b"," + _newline(data) + parsed.format.indent
