"""Files with another name in B: which pairs are found, and what becomes of their records."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.diff_sides import SOC, file_name, make_side, unified

from aoebank.diffing.report import DiffReport
from aoebank.diffing.result import ChangeKind
from aoebank.diffing.run import DiffOptions, diff
from aoebank.selection import RecordFilter
from aoebank.testing.factories import make_record

NEW = "x86-64-v5"


def records(*numbers: int) -> bytes:
    return unified(*map(make_record, numbers))


def moves_between(a: dict[str, bytes], b: dict[str, bytes]) -> list[tuple[str, str]]:
    return [(move.a, move.b) for move in diff(make_side(a), make_side(b)).moves]


def test_other_target_of_the_same_records_is_a_renamed_soc_version() -> None:
    a = make_side({file_name(): records(0, 1, 2)})
    result = diff(a, make_side({file_name(soc=NEW): records(0, 1, 2)}))
    (move,) = result.moves
    assert (move.soc_a, move.soc_b, move.equal, move.similarity) == (SOC, NEW, 3, 1)
    assert (result.changes, result.moved, result.unchanged) == ((), 3, 0)
    assert [(row.soc_version, row.moved) for row in result.rollup] == [(NEW, 3)]


def test_moved_folder_keeps_its_target() -> None:
    (move,) = diff(
        make_side({file_name(): records(0)}), make_side({f"new/{file_name()}": records(0)})
    ).moves
    assert (move.soc_a, move.soc_b) == (None, None)


def test_moved_file_is_a_difference() -> None:
    a, b = ({name: records(0)} for name in (file_name(), f"new/{file_name()}"))
    assert DiffReport(result=diff(make_side(a), make_side(b))).exit_code == 1
    assert DiffReport(result=diff(make_side(a), make_side(a))).exit_code == 0


def test_changed_records_of_a_moved_file_are_compared() -> None:
    a = {file_name(): records(0, 1, 2)}
    b = {file_name(soc=NEW): unified(make_record(0), make_record(1), make_record(2, cost_us=99.0))}
    result = diff(make_side(a), make_side(b))
    (change,) = result.changes
    assert (change.kind, change.file, change.file_a) == (
        ChangeKind.SLOWER,
        file_name(soc=NEW),
        file_name(),
    )
    assert change.soc_version == NEW


def test_without_renames_everything_is_removed_and_added() -> None:
    a, b = make_side({file_name(): records(0, 1)}), make_side({file_name(soc=NEW): records(0, 1)})
    result = diff(a, b, DiffOptions(has_renames=False))
    assert result.moves == ()
    assert result.count(ChangeKind.ADDED) == result.count(ChangeKind.REMOVED) == 2


def test_file_that_grew_is_still_found() -> None:
    assert moves_between(
        {file_name(): records(0, 1)}, {file_name(soc=NEW): records(*range(9))}
    ) == [(file_name(), file_name(soc=NEW))]


def test_half_of_the_smaller_file_is_enough_and_less_is_not() -> None:
    half = {file_name(soc=NEW): records(0, 1, 7, 8)}
    less = {file_name(soc=NEW): records(0, 6, 7, 8)}
    assert len(moves_between({file_name(): records(0, 1, 2, 3)}, half)) == 1
    assert moves_between({file_name(): records(0, 1, 2, 3)}, less) == []


def test_exact_copy_goes_before_one_that_is_alike() -> None:
    a = {file_name(): records(0, 1, 2)}
    b = {file_name(soc="a"): records(0, 1, 2, 3), file_name(soc="z"): records(0, 1, 2)}
    assert moves_between(a, b) == [(file_name(), file_name(soc="z"))]


def test_of_equal_files_those_with_the_closest_names_belong_together() -> None:
    names = ("Ascend910_9579", "Ascend910_957b"), ("Ascend950PR_9579", "Ascend950PR_957b")
    a, b = ({file_name(soc=soc): records(0, 1) for soc in socs} for socs in names)
    assert moves_between(a, b) == [
        (file_name(soc=old), file_name(soc=new)) for old, new in zip(*names, strict=True)
    ]


def test_renamed_target_takes_files_along_that_share_too_little() -> None:
    a = {file_name(): records(0, 1), file_name("LRN"): records(0, 1, 2, 3)}
    faster = unified(*(make_record(n, cost_us=1.0) for n in range(4)))
    b = {file_name(soc=NEW): records(0, 1), file_name("LRN", soc=NEW): faster}
    result = diff(make_side(a), make_side(b))
    assert len(result.moves) == 2
    assert result.count(ChangeKind.FASTER) == 4


def test_file_with_a_partner_of_its_name_is_never_moved() -> None:
    a = {file_name(): records(0), file_name("LRN"): records(5)}
    b = {file_name(): records(5)}
    assert moves_between(a, b) == []


def test_empty_and_broken_files_are_no_partners() -> None:
    a = {file_name(): b"{\n}\n", file_name("LRN"): b"\xff"}
    b = {file_name(soc=NEW): b"{\n}\n", file_name("LRN", soc=NEW): b"\xff"}
    result = diff(make_side(a), make_side(b))
    assert result.moves == ()
    assert len(result.problems) == 2


def test_file_of_another_format_is_no_partner() -> None:
    line = b'{"shape": {"op_type": "matmul", "A_shape": [1]}, "tiling": [1]}\n'
    name = f"AIC_24_L1_SIZE_512_repository_{SOC}_matmul.json"
    assert moves_between({name: line}, {file_name(): records(0)}) == []


def test_filter_on_either_target_finds_a_renamed_one() -> None:
    a, b = make_side({file_name(): records(0)}), make_side({file_name(soc=NEW): records(0)})
    for soc, moves in ((SOC, 1), (NEW, 1), ("other", 0)):
        options = DiffOptions(only=RecordFilter(soc=(soc,)))
        assert len(diff(a, b, options).moves) == moves


@given(st.dictionaries(st.sampled_from("abcdef"), st.sets(st.integers(0, 9), min_size=1)))
def test_no_record_is_lost_or_counted_twice_by_renames(files: dict[str, set[int]]) -> None:
    extra = {file_name("Kept"): records(42)}
    a = {file_name(soc=f"old-{name}"): records(*sorted(held)) for name, held in files.items()}
    b = {file_name(soc=f"new-{name}"): records(*sorted(held)) for name, held in files.items()}
    result = diff(make_side(a | extra), make_side(b | extra))
    total = sum(map(len, files.values()))
    assert result.moved + result.count(ChangeKind.REMOVED) == total
    assert result.moved + result.count(ChangeKind.ADDED) == total
    assert result.moved == total  # every file has an exact copy
    assert len({move.a for move in result.moves}) == len({move.b for move in result.moves})
