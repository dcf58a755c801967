"""What happened to a record, and in which order it is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.diff_sides import file_name, make_side, side_of, unified

from aoebank import Alternative
from aoebank.diffing.result import ChangeKind, RecordChange, TimeVerdict
from aoebank.diffing.run import DiffOptions, diff
from aoebank.formats.protocol import ParsedFile
from aoebank.selection import RecordFilter
from aoebank.storage.bank import load_file
from aoebank.testing.factories import make_record

SAMPLES = Path(__file__).resolve().parents[3] / "sample_banks" / "ascend"
FILES = sorted(SAMPLES.rglob("*.json"))


def changes_between(a: Any, b: Any) -> tuple[RecordChange, ...]:
    return diff(side_of(a), side_of(b)).changes


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"strategy": {"tile": [99]}}, ChangeKind.STRATEGY),
        ({"strategy": {"tile": [16.0, 4], "vectorize": True}}, ChangeKind.STRATEGY),
        ({"strategy": {"tile": [16, 4], "vectorize": 1}}, ChangeKind.STRATEGY),
        ({"strategy": {"tile": [99]}, "cost_us": 1.0}, ChangeKind.STRATEGY),
        ({"cost_us": 1.0}, ChangeKind.FASTER),
        ({"cost_us": 99.0}, ChangeKind.SLOWER),
        ({"cost_us": 10.6}, ChangeKind.RETIMED),
        ({"cost_us": None}, ChangeKind.RETIMED),
        ({"origin": "someone"}, ChangeKind.DETAILS),
        ({"extra": {"more": 1}}, ChangeKind.DETAILS),
        ({"alternatives": (Alternative(workload={}, strategy={}),)}, ChangeKind.DETAILS),
    ],
)
def test_diff_names_the_kind_of_a_change(changes: dict[str, Any], kind: ChangeKind) -> None:
    found = changes_between(make_record(), make_record(**changes))
    assert [change.kind for change in found] == [kind]
    assert bool(found[0].fields) == (kind is ChangeKind.STRATEGY)


def test_diff_tells_a_one_from_a_true_in_details() -> None:
    (change,) = changes_between(make_record(extra={"x": 1}), make_record(extra={"x": True}))
    assert change.kind is ChangeKind.DETAILS


def test_diff_gives_the_ratio_of_times_b_over_a() -> None:
    (change,) = changes_between(make_record(cost_us=10.0), make_record(cost_us=15.0))
    assert change.cost_ratio == 1.5
    assert replace(change, cost_a_us=None).cost_ratio is None


def test_changed_strategy_has_a_verdict_on_its_times_too() -> None:
    (change,) = changes_between(make_record(cost_us=10.0), make_record(tile=8, cost_us=15.0))
    assert (change.kind, change.verdict) == (ChangeKind.STRATEGY, TimeVerdict.SLOWER)
    assert change.is_regression(0.49)
    assert not change.is_regression(0.5)


def test_diff_takes_another_spelling_for_no_change() -> None:
    spelled = unified(make_record()).replace(b": ", b":  ").replace(b"10.5", b"1.05e1")
    result = diff(side_of(make_record()), make_side({file_name(): spelled}))
    assert (result.changes, result.unchanged) == ((), 1)


def test_diff_goes_on_after_a_record_that_cannot_be_read() -> None:
    a = side_of(make_record(0), make_record(1))
    data = unified(make_record(0), make_record(1, cost_us=1.0))
    b = make_side({file_name(): data.replace(b'"knowledge"', b'"knowlege"', 1)})
    result = diff(a, b)
    assert [change.kind for change in result.changes] == [ChangeKind.BROKEN, ChangeKind.FASTER]
    assert "member knowledge is missing" in result.changes[0].problem


def test_broken_record_that_is_new_is_no_added_one() -> None:
    data = unified(make_record(0), make_record(1)).replace(b'"knowledge"', b'"x"', 1)
    result = diff(side_of(make_record(1)), make_side({file_name(): data}))
    assert [change.kind for change in result.changes] == [ChangeKind.BROKEN]


def test_record_readers_pass_over_takes_no_part_on_either_side() -> None:
    twice = side_of(make_record(0, cost_us=99.0), make_record(0))  # readers use the last one
    once = side_of(make_record(0))
    for a, b in ((once, twice), (twice, once), (twice, twice)):
        result = diff(a, b)
        assert (result.changes, result.unchanged) == ((), 1)
    assert len(diff(twice, side_of(make_record(1))).changes) == 2


def test_worst_regression_of_all_files_comes_first_whatever_else_changed() -> None:
    names = [file_name("LRN"), file_name("Softmax")]
    a = make_side(
        {name: unified(*(make_record(n, cost_us=10.0) for n in range(3))) for name in names}
    )
    slow = [(11.0, 30.0, 5.0), (12.0, 20.0, 40.0)]
    b = make_side(
        {
            name: unified(*(make_record(n, cost_us=cost, tile=n) for n, cost in enumerate(costs)))
            for name, costs in zip(names, slow, strict=True)
        }
    )
    ratios = [change.cost_ratio for change in diff(a, b).changes]
    assert ratios == [4.0, 3.0, 2.0, 1.2, 1.1, 0.5]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_format_tells_removed_from_changed_strategy(file: Path) -> None:
    parsed = load_file(file)
    first, second = (parsed.format.record(parsed, number) for number in (0, 1))
    other = parsed.format.record(parsed, 2).strategy
    changed = replace(second, strategy=other)
    data = parsed.format.serialize(parsed, {first.key: None, second.key: changed})
    b = make_side({file.name: data})
    result = diff(make_side({file.name: parsed.data}), b)
    assert {change.key: change.kind for change in result.changes} == {
        first.key: ChangeKind.REMOVED,
        second.key: ChangeKind.STRATEGY,
    }
    assert result.unchanged == len(parsed) - 2
    assert result.problems == ()
    assert all(change.workload for change in result.changes)


def test_equal_records_are_never_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object, parsed: ParsedFile, number: int) -> None:
        raise AssertionError("parsed")

    monkeypatch.setattr("aoebank.formats.unified.format.UnifiedFormat.record", refuse)
    both = side_of(*map(make_record, range(5)))
    assert diff(both, both).unchanged == 5


@pytest.mark.parametrize(
    ("only", "keys"),
    [
        (RecordFilter(key=(make_record(1).key[:8],)), {1}),
        (RecordFilter(key=("*" + make_record(0).key[4:],)), {0}),
        (RecordFilter(op=("Soft*",)), {0, 1}),
        (RecordFilter(op=("LRN",)), set()),
        (RecordFilter(soc=("x86-64-v?",)), {0, 1}),
        (RecordFilter(soc=("Ascend*",)), set()),
        (RecordFilter(soc=("x86*",), op=("Softmax",), key=(make_record(0).key,)), {0}),
    ],
)
def test_filter_leaves_the_records_asked_for(only: RecordFilter, keys: set[int]) -> None:
    b = side_of(make_record(0, tile=8), make_record(1, tile=8))
    result = diff(side_of(make_record(0), make_record(1)), b, DiffOptions(only=only))
    assert {change.key for change in result.changes} == {make_record(n).key for n in keys}


def test_filter_counts_unchanged_records_of_files_that_do_not_tell_the_operator() -> None:
    file = next(path for path in FILES if "cube" in path.parts)
    data = {"put aside.json": file.read_bytes()}
    found = diff(make_side(data), make_side(data), DiffOptions(only=RecordFilter(op=("matmul",))))
    none = diff(make_side(data), make_side(data), DiffOptions(only=RecordFilter(op=("conv",))))
    assert (found.unchanged, none.unchanged) == (6, 0)


def test_filter_spares_broken_files_it_does_not_ask_for() -> None:
    files = {file_name(): unified(make_record()), file_name("LRN"): b"<<<<<<< ours\n"}
    options = DiffOptions(only=RecordFilter(op=("Softmax",)))
    assert diff(make_side(files), make_side(files), options).problems == ()
    assert diff(make_side(files), make_side(files)).problems == ()  # nothing changed in it
    other = {**files, file_name("LRN"): b"<<<<<<< theirs\n"}
    assert len(diff(make_side(files), make_side(other)).problems) == 1


def test_rollup_has_a_row_per_target_and_operator() -> None:
    a = make_side(
        {
            file_name("LRN"): unified(make_record(0), make_record(1)),
            file_name(): unified(make_record(0, cost_us=10.0), make_record(1)),
        }
    )
    b = make_side(
        {
            file_name("LRN"): unified(make_record(0), make_record(1)),
            file_name(): unified(make_record(0, cost_us=20.0), make_record(2)),
        }
    )
    quiet, row = diff(a, b).rollup
    assert (quiet.op_type, quiet.unchanged, quiet.is_quiet) == ("LRN", 2, True)
    assert (row.soc_version, row.op_type, row.slower, row.faster) == ("x86-64-v4", "Softmax", 1, 0)
    assert {kind: n for kind, n in row.counts.items() if n} == {
        ChangeKind.SLOWER: 1,
        ChangeKind.REMOVED: 1,
        ChangeKind.ADDED: 1,
    }
    assert row.times is not None
    assert row.times.mean_ratio == pytest.approx(2)
