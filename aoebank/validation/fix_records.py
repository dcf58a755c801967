"""Fixes that know records: identities computed again, order, canonical text."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace

from aoebank.formats.protocol import ParsedFile, find_error
from aoebank.formats.text import json_text
from aoebank.model.finding import Finding
from aoebank.model.record import Alternative, Record

_MEMBER_CODES = ("AB302", "AB303")  # the name of a member is the key
_VALUE_CODES = ("AB307", "AB308")  # a value beside the record, ignored by readers
_AMBIGUOUS = frozenset({"AB109", "AB301", "AB305", "AB306", "AB310", "AB312"})

_Edit = tuple[int, int, bytes]


def fix_keys(parsed: ParsedFile, findings: tuple[Finding, ...]) -> bytes:
    """Return the file with identities replaced by the expected ones, in place.

    A key that another record already has stays wrong: which of the two is meant is not
    for a program to say.
    """
    edits: dict[int, _Edit] = {}
    taken = set(parsed.keys)
    for finding in findings:
        if finding.expected is None:
            continue
        if finding.code in _MEMBER_CODES:
            number = _member_of(parsed, finding)
            if number is None or finding.expected in taken:
                continue
            taken.add(finding.expected)
            edits[parsed.starts[number]] = _name_edit(parsed, number, finding.expected)
        elif finding.code in _VALUE_CODES and finding.location.pointer.endswith("/id"):
            edit = _value_edit(parsed, finding, finding.expected)
            if edit is not None:
                edits[edit[0]] = edit
    return _apply(parsed.data, edits)


def fix_order(parsed: ParsedFile, findings: tuple[Finding, ...]) -> bytes:
    """Return the file with the fastest candidate first, and records sorted by key.

    Records change places, separators stay. A file that is broken somewhere keeps its order.
    """
    slow = {
        finding.location.pointer.split("/")[1] for finding in findings if finding.code == "AB403"
    }
    changes = _fastest_first(parsed, slow)
    if changes:
        data = parsed.format.serialize(parsed, changes)
        parsed = parsed.format.parse(data, parsed.path)
    codes = {finding.code for finding in findings}
    is_fixed = not parsed.format.may_be_sorted or "AB310" in codes
    if is_fixed or find_error(parsed) is not None:
        return parsed.data
    # sorted() is stable, so of equal keys the readers still use the same one
    order = sorted(range(len(parsed)), key=parsed.keys.__getitem__)
    edits = {
        parsed.starts[slot]: (parsed.starts[slot], parsed.ends[slot], parsed.raw(number))
        for slot, number in enumerate(order)
        if slot != number
    }
    return _apply(parsed.data, edits)


def fix_text(parsed: ParsedFile, findings: tuple[Finding, ...]) -> bytes:
    """Return the file as its writer would write it, records in their order.

    A file with anything in it that would get lost, be it broken or just twice, stays.
    """
    if find_error(parsed) is not None or any(finding.code in _AMBIGUOUS for finding in findings):
        return parsed.data
    records = [parsed.format.record(parsed, number) for number in range(len(parsed))]
    plain: Mapping[str, Record | None] = {record.key: replace(record) for record in records}
    if not plain:
        return parsed.data
    if parsed.format.may_be_sorted:
        fresh = parsed.format.parse(parsed.format.empty, parsed.path)
        return parsed.format.serialize(fresh, plain)
    return parsed.format.serialize(parsed, plain)


def _member_of(parsed: ParsedFile, finding: Finding) -> int | None:
    """Return which record a finding is in."""
    place = finding.location.start
    number = bisect_right(parsed.starts, place) - 1
    return number if number >= 0 and place < parsed.ends[number] else None


def _name_edit(parsed: ParsedFile, number: int, key: str) -> _Edit:
    text = parsed.raw(number).decode("latin-1")  # a byte is a character, so offsets are bytes
    _, length = json_text.scan(text, 0)
    start = parsed.starts[number]
    return start, start + length, json_text.dumps(key).encode("ascii")


def _value_edit(parsed: ParsedFile, finding: Finding, expected: str) -> _Edit | None:
    start, end = finding.location.start, finding.location.end
    text = parsed.data[start:end].decode("latin-1")
    try:
        _, length = json_text.scan(text, 0)
        json_text.loads(expected)
    except json_text.JsonTextError:
        return None
    return start, start + length, expected.encode("ascii", errors="replace")


def _fastest_first(parsed: ParsedFile, tokens: set[str]) -> dict[str, Record | None]:
    changes: dict[str, Record | None] = {}
    for number, key in enumerate(parsed.keys):
        if json_text.pointer([key])[1:] in tokens and parsed.find(key) == number:
            changes[key] = _sorted_answers(parsed.format.record(parsed, number))
    return changes


def _sorted_answers(record: Record) -> Record:
    first = Alternative(
        workload=record.workload,
        strategy=record.strategy,
        cost_us=record.cost_us,
        origin=record.origin,
        extra=record.extra,
    )
    answers = sorted(
        (first, *record.alternatives),
        key=lambda answer: float("inf") if answer.cost_us is None else answer.cost_us,
    )
    best, *others = answers
    return replace(
        record,
        workload=best.workload,
        strategy=best.strategy,
        cost_us=best.cost_us,
        origin=best.origin,
        extra=best.extra,
        alternatives=tuple(others),
    )


def _apply(data: bytes, edits: Mapping[int, _Edit]) -> bytes:
    parts: list[bytes] = []
    place = 0
    for start in sorted(edits):
        _, end, text = edits[start]
        parts += (data[place:start], text)
        place = end
    parts.append(data[place:])
    return b"".join(parts)
