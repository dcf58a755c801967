"""Merging quarantines: in doubt a bad record stays out."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoebank.errors import BankFormatError
from aoebank.model.quarantine import QuarantineEntry
from aoebank.ops.merge.lines import merge_quarantines
from aoebank.storage.quarantine import parse_quarantine, serialize_quarantine

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


def _merge(base: bytes, ours: bytes, theirs: bytes) -> bytes:
    return merge_quarantines(base, ours, theirs, PATH)


def _of(*entries: QuarantineEntry) -> bytes:
    return serialize_quarantine(entries)


@given(base=FILES, side=FILES)
def test_merge_laws_hold(base: bytes, side: bytes) -> None:
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
    assert all(each in (*left, *right) for each in result)
    both = {each.identity for each in left} & {each.identity for each in right}
    assert both <= {each.identity for each in result}
    assert serialize_quarantine(result) == merged


@given(base=FILES, ours=FILES, theirs=FILES)
def test_sides_may_change_places(base: bytes, ours: bytes, theirs: bytes) -> None:
    identities = [
        {each.identity for each in parse_quarantine(merged, PATH)}
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
