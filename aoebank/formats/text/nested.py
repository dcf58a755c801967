"""Files whose records are the members or items of one member of an object.

What stands around them is the head: it counts for all records, and no change of a record touches
it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from aoebank.errors import BankFormatError
from aoebank.formats.protocol import Format, ParsedFile
from aoebank.formats.text import constants, json_text
from aoebank.formats.text.checks import BOM
from aoebank.formats.text.containers import find_member
from aoebank.formats.text.json_text import JsonTextError
from aoebank.formats.text.problem import Problem, kind_of
from aoebank.formats.text.scan import FileScan
from aoebank.model.json_value import JsonObject, JsonValue
from aoebank.model.record import Record

_SPACES = b" \t\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the object or list of the records is."""

    start: int  # Of its opening bracket
    end: int  # Behind its closing bracket; the end of the file where that is missing
    is_open: bool = False  # Whether the closing brackets of itself and of the file are missing
    is_torn: bool = False  # Whether more is missing: what stands last is cut short


def find_place(data: bytes, member: str, brackets: bytes, tail: re.Pattern[bytes]) -> Place | None:
    """Return where the records are; None where the object has no such member.

    Args:
        data: The file, its constants hidden.
        tail: Finds the closing bracket (its group `end`) in a file that has an error before it.

    Raises:
        JsonTextError: what stands before the member is no JSON, or the member holds no records.
    """
    text = data.decode("latin-1")
    start = find_member(text, len(BOM) if data.startswith(BOM) else 0, member)
    if start is None:
        return None
    if text[start : start + 1] != brackets[:1].decode("ascii"):
        word = kind_of(json_text.scan(text, start)[0])
        raise JsonTextError(f"{member} holds no records but {word}", start, "AB206")
    try:
        return Place(start=start, end=json_text.scan(text, start)[1])
    except JsonTextError:
        pass
    if _is_open(text[start:], brackets):
        return Place(start=start, end=len(data), is_open=True)
    ends = [match.end("end") for match in tail.finditer(data, start)]
    if ends:
        return Place(start=start, end=ends[-1])
    return Place(start=start, end=len(data), is_open=True, is_torn=True)


def _is_open(text: str, brackets: bytes) -> bool:
    whole = text.rstrip().removesuffix(",").rstrip()
    try:
        return json_text.scan(whole + chr(brackets[1]), 0)[1] == len(whole) + 1
    except JsonTextError:
        return False


def records_alone(data: bytes, place: Place, brackets: bytes) -> bytes:
    """Return the object or list of the records where it stands, blanks around it."""
    inner = data[place.start : place.end]
    if place.is_open and not place.is_torn:
        inner = inner.rstrip(_SPACES).removesuffix(b",") + brackets[1:]
    blank = b"".join(b"\n" if sign == 10 else b" " for sign in data[: place.start])
    return blank + inner


def head_alone(data: bytes, place: Place, brackets: bytes, *, is_short: bool = False) -> bytes:
    """Return the file without its records, closed where it was left open.

    Args:
        is_short: Whether offsets behind the records may move.
    """
    before, after = data[: place.start], b"}" if place.is_open else data[place.end :]
    blank = b"" if is_short or place.is_open else b" " * max(place.end - place.start - 2, 0)
    return before + brackets[:1] + blank + brackets[1:] + after


@lru_cache(maxsize=64)
def read_head(head: bytes, member: str) -> JsonObject:
    """Return the members of a file without its records; nothing of one that is no JSON."""
    try:
        value = constants.loads(constants.hide(head.removeprefix(BOM).decode("utf-8", "replace")))
    except JsonTextError:
        return {}
    if not isinstance(value, Mapping):
        return {}
    return {name: value[name] for name in value if name != member}


def head_at(data: bytes, place: Place, brackets: bytes, member: str) -> JsonObject:
    """Return the members of a file without its records."""
    return read_head(head_alone(data, place, brackets, is_short=True), member)


def head_of(parsed: ParsedFile, member: str) -> JsonObject:
    """Return the members of a file without its records."""
    if parsed.inside is None:
        return {}
    start, end = parsed.inside
    is_open = end == len(parsed.data)
    place = Place(start=start - 1, end=end if is_open else end + 1, is_open=is_open)
    return head_at(parsed.data, place, parsed.format.brackets, member)


def with_head(
    parsed: ParsedFile, changes: Mapping[str, Record | None], name: str, member: str
) -> ParsedFile:
    """Return a file that records fit into: one that was never written gets their head.

    Args:
        name: Member of the extra of a record that has the head of its file.
        member: Member of the file that holds the records.

    Raises:
        BankFormatError: a record has another head than the file.
    """
    new = [record for record in changes.values() if record is not None]
    heads = [
        (record, head) for record in new if isinstance(head := record.extra.get(name), Mapping)
    ]
    if heads and not len(parsed) and parsed.data == parsed.format.empty:
        parsed = parsed.format.parse(_write_head(parsed.format, heads[0][1], member), parsed.path)
    own = head_text(head_of(parsed, member))
    for record, head in heads:
        if head_text(head) != own:
            raise BankFormatError(
                f"record {record.key} was made under another head",
                path=parsed.path,
                got=_lines_beyond(head_text(head), own),
                expected=_lines_beyond(own, head_text(head)),
            )
    return parsed


def _write_head(format_: Format, head: Mapping[str, JsonValue], member: str) -> bytes:
    records = format_.brackets.decode("ascii")
    texts = [f"{json_text.dumps(name)}: {constants.dumps(head[name])}" for name in head]
    texts.append(f"{json_text.dumps(member)}: {records}")
    return ("{\n" + ",\n".join(texts) + "\n}\n").encode("utf-8")


def _lines_beyond(one: str, other: str) -> str:
    lines = other.split("\n")
    return ", ".join(line for line in one.split("\n") if line not in lines)[:200] or "no more"


def report_head(scan: FileScan, head: bytes) -> None:
    """Add what is wrong with what stands around the records."""
    data, scan.data = scan.data, head
    try:
        text = scan.text_at(len(BOM) if head.startswith(BOM) else 0, len(head))
        try:
            value = json_text.loads(text.text)
        except JsonTextError as error:
            scan.report_bad(error, text.start, len(head))
        else:
            scan.findings += text.duplicates(value)
    finally:
        scan.data = data


def find_records(
    scan: FileScan, hidden: bytes, member: str, brackets: bytes, tail: re.Pattern[bytes]
) -> Place | None:
    """Return where the records are, see `find_place`; where there are none, add why to a scan."""
    try:
        place = find_place(hidden, member, brackets, tail)
    except JsonTextError as error:
        if not scan.data.isspace() and scan.data:
            scan.report_error(error)
        return None
    if place is None:
        problem = Problem(
            code="AB205",
            tokens=(),
            message=f"member {member} is missing",
            expected=member,
            hint="restore the file from git, or mend it in an editor",
        )
        scan.report(problem, 0, len(scan.data))
    return place


def finish(scan: FileScan, format_: Format, place: Place) -> ParsedFile:
    """Return the file as scanned, with the place of its records."""
    parsed = scan.file(format_)
    end = place.end if place.is_open else place.end - 1
    return replace(parsed, inside=(place.start + 1, end))


def head_text(head: Mapping[str, JsonValue]) -> str:
    """Return a head as lines, in which the order of its members does not count."""
    return "\n".join(f"{name}: {constants.dumps(head[name])}" for name in sorted(head))
