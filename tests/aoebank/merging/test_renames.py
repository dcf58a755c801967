"""A file one side moved and the other one changed is one file, under its new name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.merge_files import NAMES, Answer, make_file, records_of

from aoebank import BankFormatError, HistoryError, merge, settle
from aoebank.formats.provenance import SUFFIX

UNIFIED = "unified"
OLD = f"Ascend910B2/unified_bank/{NAMES[UNIFIED]}"
NEW, THIRD = OLD.replace("unified_bank", "moved"), OLD.replace("unified_bank", "third")
A, B = Answer(tile=1, cost_us=100.0), Answer(tile=2, cost_us=50.0)
FOUR = dict.fromkeys(range(4), A)
STAYS = OLD.replace("matmul", "stays")
Files = Mapping[str, bytes]


def bank(answers: Mapping[int, Answer]) -> bytes:
    return make_file(UNIFIED, answers)


def write(root: Path, files: Files) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def content(root: Path) -> dict[str, bytes]:
    """Return the files of a tree but the one that stays."""
    files = {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
    return {name: data for name, data in files.items() if name != STAYS}


def sides(root: Path, base: Files, ours: Files, theirs: Files) -> list[Path]:
    """Write three trees, with a file that stays where it is; return ours, theirs and base."""
    found = {"a": ours, "b": theirs, "base": base}
    return [write(root / name, {**files, STAYS: bank({99: B})}) for name, files in found.items()]


@pytest.mark.parametrize("is_ours", [True, False])
@pytest.mark.parametrize("place", ["new", "a", "b"])
def test_record_added_to_a_moved_file_arrives_there(
    tmp_path: Path, is_ours: bool, place: str
) -> None:
    moved = {NEW: bank(FOUR), NEW + SUFFIX: b'{"n": 0}\n{"n": 1}\n'}
    changed = {OLD: bank({**FOUR, 5: A}), OLD + SUFFIX: b'{"n": 0}\n{"n": 2}\n'}
    base = {OLD: bank(FOUR), OLD + SUFFIX: b'{"n": 0}\n'}
    ours, theirs = (moved, changed) if is_ours else (changed, moved)
    a, b, root = sides(tmp_path, base, ours, theirs)
    result = merge(a, b, base=root, output=tmp_path / place)
    assert result.conflicts == 0
    merged = content(tmp_path / place)
    assert {*merged} == {NEW, NEW + SUFFIX}
    assert records_of(UNIFIED, merged[NEW]) == records_of(UNIFIED, bank({**FOUR, 5: A}))
    assert {*merged[NEW + SUFFIX].split()} >= {b"1}", b"2}"}
    (followed,) = result.followed
    assert (followed.base, followed.name) == (OLD, NEW)


def test_switched_off_it_stays_under_its_old_name(tmp_path: Path) -> None:
    a, b, base = sides(tmp_path, {OLD: bank(FOUR)}, {NEW: bank(FOUR)}, {OLD: bank({**FOUR, 5: A})})
    result = merge(a, b, base=base, output=tmp_path / "new", no_renames=True)
    assert result.followed == ()
    assert {OLD, NEW} <= {*content(tmp_path / "new")}


def test_both_moved_it_to_one_place(tmp_path: Path) -> None:
    a, b, base = sides(
        tmp_path,
        {OLD: bank(FOUR)},
        {NEW: bank({**FOUR, 0: B})},
        {NEW: bank({**FOUR, 1: B})},
    )
    result = merge(a, b, base=base, output=tmp_path / "new", policy="fail")
    assert result.conflicts == 0
    assert content(tmp_path / "new") == {NEW: bank({**FOUR, 0: B, 1: B})}


@pytest.mark.parametrize(
    ("ours", "theirs", "message"),
    [
        ({NEW: FOUR}, {THIRD: {**FOUR, 5: A}}, "two places"),
        ({NEW: FOUR}, {OLD: {**FOUR, 5: A}, NEW: {9: A}}, "onto one the other side has"),
    ],
)
def test_what_cannot_be_followed_stops_the_merge(
    tmp_path: Path,
    ours: Mapping[str, Mapping[int, Answer]],
    theirs: Mapping[str, Mapping[int, Answer]],
    message: str,
) -> None:
    trees = ({name: bank(answers) for name, answers in side.items()} for side in (ours, theirs))
    a, b, base = sides(tmp_path, {OLD: bank(FOUR)}, *trees)
    with pytest.raises(HistoryError, match=message) as caught:
        merge(a, b, base=base, output=tmp_path / "new")
    assert "--no-renames" in (caught.value.hint or "")
    assert not (tmp_path / "new").exists()
    merge(a, b, base=base, output=tmp_path / "new", no_renames=True)


def test_move_to_another_soc_version_stops_and_says_so(tmp_path: Path) -> None:
    other = OLD.replace("910B2", "910B3")
    a, b, base = sides(
        tmp_path, {OLD: bank(FOUR)}, {other: bank(FOUR)}, {OLD: bank({**FOUR, 5: A})}
    )
    with pytest.raises(BankFormatError, match="soc_version"):
        merge(a, b, base=base, output=tmp_path / "new")
    merge(a, b, base=base, output=tmp_path / "new", allow_other_soc=True)
    assert {*content(tmp_path / "new")} == {other}


def test_removed_on_one_side_and_moved_on_the_other_stays_where_it_went(tmp_path: Path) -> None:
    some = OLD.replace("matmul", "add")
    a, b, base = sides(
        tmp_path, {OLD: bank(FOUR), some: bank(FOUR)}, {NEW: bank(FOUR)}, {some: bank({0: A})}
    )
    merge(a, b, base=base, output=tmp_path / "new", policy="theirs")
    assert (tmp_path / "new" / NEW).exists()


@pytest.mark.parametrize("is_last", [False, True])
def test_third_side_comes_into_the_moved_file_too(tmp_path: Path, is_last: bool) -> None:
    a, b, base = sides(tmp_path, {OLD: bank(FOUR)}, {OLD: bank({**FOUR, 5: A})}, {NEW: bank(FOUR)})
    c = write(tmp_path / "c", {OLD: bank({**FOUR, 6: A})})
    others = (c, b) if is_last else (b, c)
    merge(a, *others, base=base, output=a)
    merged = content(a)
    assert {*merged} == {NEW}
    assert (
        records_of(UNIFIED, merged[NEW]).keys()
        == records_of(UNIFIED, bank({**FOUR, 5: A, 6: A})).keys()
    )


def test_conflicts_of_a_file_that_a_later_side_moved_wait_at_its_new_name(tmp_path: Path) -> None:
    ours, theirs = {**FOUR, 0: B}, {**FOUR, 0: Answer(tile=3, cost_us=50.0)}
    a, b, base = sides(tmp_path, {OLD: bank(FOUR)}, {OLD: bank(ours)}, {OLD: bank(theirs)})
    c = write(tmp_path / "c", {NEW: bank(FOUR), STAYS: bank({99: B})})
    result = merge(a, b, c, base=base, output=a, policy="fail")
    waiting = a / f"{NEW}.conflicts"
    assert (result.conflicts, result.conflict_files) == (1, (waiting,))
    assert {*content(a)} == {NEW, f"{NEW}.conflicts"}
    assert sum(result.counts.values()) == len(FOUR) + 1  # with the one of the file that stays
    text = waiting.read_text()
    assert [decision["file"] for decision in json.loads(text)["decisions"]] == [NEW]
    waiting.write_text(text.replace('"action": "conflict"', '"action": "take-theirs"'))
    settle(waiting)
    assert content(a) == {NEW: bank(theirs)}


answers = st.dictionaries(st.integers(10, 15), st.sampled_from([A, B]), max_size=4)


@given(answers, answers, st.sampled_from([(NEW, OLD), (OLD, NEW), (NEW, NEW)]))
def test_moves_change_no_record_of_the_result(
    mine: dict[int, Answer], other: dict[int, Answer], names: tuple[str, str]
) -> None:
    base, ours, theirs = FOUR, {**FOUR, **mine}, {**FOUR, **other}
    with TemporaryDirectory() as folder:
        results = []
        for number, (old, here, there) in enumerate([(OLD, *names), (OLD, OLD, OLD)]):
            a, b, root = sides(
                Path(folder, str(number)),
                {old: bank(base)},
                {here: bank(ours)},
                {there: bank(theirs)},
            )
            result = merge(a, b, base=root, output=Path(folder, str(number), "new"))
            merged = content(Path(folder, str(number), "new"))
            (name,) = merged
            results.append((records_of(UNIFIED, merged[name]), result.conflicts))
    assert results[0] == results[1]


@pytest.mark.parametrize("is_ours", [True, False])
def test_broken_file_that_was_moved_stays_as_ours_has_it(tmp_path: Path, is_ours: bool) -> None:
    moved, broken = {NEW: bank(FOUR)}, {OLD: bank({**FOUR, 5: A})[:-9]}
    pair = (moved, broken) if is_ours else (broken, moved)
    a, b, base = sides(tmp_path, {OLD: bank(FOUR)}, *pair)
    merge(a, b, base=base, output=tmp_path / "new", skip_broken=True)
    assert content(tmp_path / "new") == pair[0]


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("third", [{}, {6: A}])
@pytest.mark.parametrize("has_moved", [(False, False), (True, False), (False, True), (True, True)])
def test_moves_of_three_sides_count_what_changes_for_ours(
    tmp_path: Path, has_moved: tuple[bool, bool], third: Mapping[int, Answer], is_last: bool
) -> None:
    mine, yours = (NEW if moved else OLD for moved in has_moved)
    a, b, base = sides(
        tmp_path,
        {OLD: bank(FOUR)},
        {mine: bank({**FOUR, 5: A})},
        {yours: bank({**FOUR, 0: B})},
    )
    c = write(tmp_path / "c", {OLD: bank({**FOUR, **third}), STAYS: bank({99: B})})
    others = (c, b) if is_last else (b, c)
    moves = merge(a, *others, base=base, output=tmp_path / "new").moves
    assert (moves.added, moves.changed, moves.removed) == (len(third), 1, 0)
