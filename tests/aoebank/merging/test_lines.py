"""Files of lines: side-cars only grow, and in doubt a quarantined record stays out."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoebank import BankFormatError
from aoebank.merging.merge_bytes import merge_quarantines, merge_side_cars
from aoebank.model.quarantine import QuarantineEntry
from aoebank.storage.quarantine import parse_quarantine, serialize_quarantine

LINES = st.lists(st.sampled_from([b'{"a":1}', b'{"b":2}', b'{"c":3}', b'{"d":4}']), unique=True)
ENDS = st.sampled_from([b"\n", b"\r\n"])
PATH = Path(".aoebank/quarantine.jsonl")
ENTRY = QuarantineEntry(key="k", reason="hangs", who="a", when="2026-01-02T03:04:05Z")
ENTRIES = st.builds(
    QuarantineEntry,
    key=st.sampled_from("abcd"),
    reason=st.sampled_from(["hangs", "wrong"]),
    who=st.just("a"),
    when=st.sampled_from(["2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"]),
    until=st.sampled_from([None, date(2027, 1, 1)]),
    soc_version=st.sampled_from([None, "Ascend910B2"]),
)
FILES = st.lists(ENTRIES, max_size=6).map(serialize_quarantine)


@st.composite
def side_cars(draw: st.DrawFn) -> bytes:
    end = draw(ENDS)
    text = end.join(draw(LINES))
    return text + end if text and draw(st.booleans()) else text


def lines(data: bytes) -> list[bytes]:
    return [line.strip() for line in data.split(b"\n") if line.strip()]


@given(base=side_cars(), x=side_cars())
def test_side_that_did_not_change_gives_way(base: bytes, x: bytes) -> None:
    assert merge_side_cars(base, x, x) == x
    assert merge_side_cars(base, base, x) == x
    assert merge_side_cars(base, x, base) == x


@given(base=side_cars(), ours=side_cars(), theirs=side_cars())
def test_no_line_is_lost_and_none_comes_twice(base: bytes, ours: bytes, theirs: bytes) -> None:
    merged = lines(merge_side_cars(base, ours, theirs))
    gone = {line for line in lines(base) if line not in lines(ours) or line not in lines(theirs)}
    assert {*merged} == {*lines(ours), *lines(theirs)} - gone
    assert len(merged) == len({*merged})


@given(ours=side_cars(), theirs=side_cars())
def test_order_of_ours_stays_and_that_of_theirs_follows(ours: bytes, theirs: bytes) -> None:
    merged = lines(merge_side_cars(b"", ours, theirs))
    mine = lines(ours) or merged
    assert merged[: len(mine)] == mine
    rest = merged[len(mine) :]
    assert rest == [line for line in lines(theirs) if line in rest]


def test_torn_last_line_stays_and_does_not_swallow_the_next_one() -> None:
    assert merge_side_cars(b"", b'{"a":', b'{"b":2}\n') == b'{"a":\n{"b":2}\n'


def test_line_one_side_took_out_stays_out() -> None:
    base = b'{"a":1}\n{"b":2}\n'
    assert merge_side_cars(base, b'{"b":2}\n{"c":3}\n', base + b'{"d":4}\n') == (
        b'{"b":2}\n{"c":3}\n{"d":4}\n'
    )


def _merge(base: bytes, ours: bytes, theirs: bytes) -> bytes:
    return merge_quarantines(base, ours, theirs, PATH)


def _of(*entries: QuarantineEntry) -> bytes:
    return serialize_quarantine(entries)


@given(base=FILES, side=FILES)
def test_laws_of_merging_hold_for_quarantines(base: bytes, side: bytes) -> None:
    assert _merge(base, side, side) == side
    assert _merge(base, base, side) == side
    assert _merge(base, side, base) == side


@given(base=FILES, ours=FILES, theirs=FILES)
def test_nothing_is_invented_and_nothing_both_have_is_lost(
    base: bytes, ours: bytes, theirs: bytes
) -> None:
    merged = _merge(base, ours, theirs)
    left, right = parse_quarantine(ours, PATH).entries, parse_quarantine(theirs, PATH).entries
    result = parse_quarantine(merged, PATH).entries
    assert all(entry in (*left, *right) for entry in result)
    both = {entry.identity for entry in left} & {entry.identity for entry in right}
    assert both <= {entry.identity for entry in result}
    assert serialize_quarantine(result) == merged


@given(base=FILES, ours=FILES, theirs=FILES)
def test_sides_may_change_places(base: bytes, ours: bytes, theirs: bytes) -> None:
    identities = [
        {entry.identity for entry in parse_quarantine(merged, PATH)}
        for merged in (_merge(base, ours, theirs), _merge(base, theirs, ours))
    ]
    assert identities[0] == identities[1]


def test_entry_one_side_took_out_stays_out() -> None:
    assert _merge(_of(ENTRY), b"", _of(ENTRY)) == b""
    assert _merge(_of(ENTRY), _of(ENTRY), b"") == b""


def test_entry_taken_out_here_and_changed_there_stays() -> None:
    changed = replace(ENTRY, until=date(2027, 1, 1))
    assert _merge(_of(ENTRY), b"", _of(changed)) == _of(changed)
    assert _merge(_of(ENTRY), _of(changed), b"") == _of(changed)


def test_newer_of_two_changes_counts() -> None:
    older = replace(ENTRY, when="2026-02-01T00:00:00Z", reason="older")
    newer = replace(ENTRY, when="2026-03-01T00:00:00Z", reason="newer")
    assert _merge(_of(ENTRY), _of(newer), _of(older)) == _of(newer)
    assert _merge(_of(ENTRY), _of(older), _of(newer)) == _of(newer)


@pytest.mark.parametrize("broken", [b"{\n", b"<<<<<<< ours\n", b"[]\n", b'{"key": "k"}\n'])
def test_line_that_is_no_entry_is_an_error(broken: bytes) -> None:
    for files in ((broken, b"", b""), (b"", broken, b""), (b"", b"", broken)):
        with pytest.raises(BankFormatError):
            _merge(*files)
