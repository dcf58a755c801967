"""Laws of comparing: nothing to itself, mirrored the other way, nothing lost or invented."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.diff_sides import file_name, make_side, unified

from aoebank import BankFormatError, Record
from aoebank.diffing.result import ChangeKind, RecordChange, TimeVerdict
from aoebank.diffing.run import DiffOptions, diff
from aoebank.formats.unified.format import UnifiedFormat
from aoebank.selection import RecordFilter
from aoebank.storage.sides.side import StoredSide
from aoebank.testing.factories import make_record

record = st.builds(
    dict,
    tile=st.sampled_from((8, 16, 32)),
    origin=st.sampled_from(("me", "you")),
    cost_us=st.none() | st.sampled_from((5.0, 10.0, 10.2, 20.0)),
)
Bank = Mapping[str, Mapping[int, dict[str, Any]]]
banks = st.dictionaries(
    st.sampled_from(("LRN", "Mish", "Softmax")),
    st.dictionaries(st.integers(0, 5), record),
    min_size=1,
)
OPPOSITES = {
    ChangeKind.ADDED: ChangeKind.REMOVED,
    ChangeKind.REMOVED: ChangeKind.ADDED,
    ChangeKind.SLOWER: ChangeKind.FASTER,
    ChangeKind.FASTER: ChangeKind.SLOWER,
    TimeVerdict.SLOWER: TimeVerdict.FASTER,
    TimeVerdict.FASTER: TimeVerdict.SLOWER,
}
PLAIN = DiffOptions(has_renames=False)
NAME = file_name()


def side(bank: Bank) -> StoredSide:
    return make_side(
        {
            file_name(op): unified(*(make_record(n, **facts) for n, facts in held.items()))
            for op, held in bank.items()
        }
    )


def records_of(bank: Bank) -> dict[tuple[str, str], Record]:
    made = ((op, make_record(n, **facts)) for op, held in bank.items() for n, facts in held.items())
    return {(file_name(op), stored.key): stored for op, stored in made}


@given(banks)
def test_nothing_changes_to_itself(bank: Bank) -> None:
    result = diff(side(bank), side(bank))
    assert (result.changes, result.moves) == ((), ())
    assert result.unchanged == len(records_of(bank))


@given(banks, banks)
def test_applying_the_changes_to_a_gives_b(a: Bank, b: Bank) -> None:
    patched, target = records_of(a), records_of(b)
    for change in diff(side(a), side(b), PLAIN).changes:
        place = (change.file, change.key)
        if change.kind is ChangeKind.REMOVED:
            del patched[place]
        else:
            patched[place] = target[place]
    assert patched == target


@given(banks, banks)
def test_every_record_is_counted_once(a: Bank, b: Bank) -> None:
    result = diff(side(a), side(b))
    changed = len(result.changes)
    added, removed = result.count(ChangeKind.ADDED), result.count(ChangeKind.REMOVED)
    same = result.unchanged + result.moved
    assert same + changed - added == len(records_of(a))
    assert same + changed - removed == len(records_of(b))
    assert sum(map(result.count, ChangeKind)) == changed
    assert sum(map(result.count_verdict, TimeVerdict)) == changed


def mirrored(change: RecordChange) -> tuple[object, ...]:
    kind: object = OPPOSITES.get(change.kind, change.kind)
    verdict: object = OPPOSITES.get(change.verdict, change.verdict)
    return kind, change.file, change.key, change.cost_b_us, change.cost_a_us, verdict


def straight(change: RecordChange) -> tuple[object, ...]:
    return (
        change.kind,
        change.file,
        change.key,
        change.cost_a_us,
        change.cost_b_us,
        change.verdict,
    )


@given(banks, banks)
def test_the_other_way_round_is_the_mirror_image(a: Bank, b: Bank) -> None:
    there, back = diff(side(a), side(b), PLAIN), diff(side(b), side(a), PLAIN)
    assert set(map(mirrored, back.changes)) == set(map(straight, there.changes))
    if there.times() is not None:
        times, other = there.times(), back.times()
        assert times is not None
        assert other is not None
        assert times.mean_ratio == pytest.approx(1 / other.mean_ratio)


@given(banks, banks)
def test_regressions_come_first_and_worst_first(a: Bank, b: Bank) -> None:
    result = diff(side(a), side(b), PLAIN)
    ratios = [change.cost_ratio or 0 for change in result.regressions()]
    assert ratios == sorted(ratios, reverse=True)
    assert result.changes[: len(ratios)] == result.regressions()


@given(banks, banks, st.integers(0, 5))
def test_filter_takes_a_part_and_changes_nothing_in_it(a: Bank, b: Bank, number: int) -> None:
    key = make_record(number).key
    part = diff(side(a), side(b), DiffOptions(has_renames=False, only=RecordFilter(key=(key,))))
    whole = diff(side(a), side(b), PLAIN)
    assert part.changes == tuple(change for change in whole.changes if change.key == key)


@given(banks, banks)
def test_figures_alone_are_those_of_the_whole(a: Bank, b: Bank) -> None:
    whole, figures = (
        diff(side(a), side(b), DiffOptions(has_fields=has_fields)) for has_fields in (True, False)
    )
    assert whole.rollup == figures.rollup


@given(a=st.binary(max_size=200), b=st.binary(max_size=200))
def test_any_bytes_in_a_tree_are_compared_or_told_of(a: bytes, b: bytes) -> None:
    result = diff(make_side({NAME: a}), make_side({NAME: b}))
    assert all(isinstance(problem, BankFormatError) for problem in result.problems)


@given(data=st.data(), bank=st.dictionaries(st.integers(0, 3), record, min_size=1))
def test_one_damaged_byte_never_crashes(data: st.DataObject, bank: dict[int, Any]) -> None:
    whole = unified(*(make_record(n, **facts) for n, facts in bank.items()))
    place = data.draw(st.integers(0, len(whole) - 1))
    broken = whole[:place] + data.draw(st.binary(max_size=1)) + whole[place + 1 :]
    result = diff(make_side({NAME: whole}), make_side({NAME: broken}))
    if not result.problems and not result.changes:
        parse = UnifiedFormat().parse
        old, new = (parse(content, Path(NAME)) for content in (whole, broken))
        assert list(old.iter_records()) == list(new.iter_records())
