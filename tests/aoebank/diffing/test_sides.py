"""Which sides can be compared, and what is said about those that cannot."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support import version_banks
from support.diff_sides import file_name, make_side, unified
from support.faulty_system import FaultySystem

from aoebank import (
    AoebankError,
    BankFormatError,
    BankNotFoundError,
    BankPermissionError,
    DiffResult,
    HistoryError,
)
from aoebank.diffing.result import ChangeKind
from aoebank.diffing.run import diff
from aoebank.storage.sides.open import open_side
from aoebank.storage.sides.side import PathSide
from aoebank.testing.factories import make_record

FILE = f"banks/{file_name()}"
Compare = Callable[[str, str], DiffResult]


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def work_tree(tmp_path: Path) -> Path:
    """Return a work tree: one slower record since the tag v1, not committed."""
    git(tmp_path, "init", "-q", "-b", "main")
    write(tmp_path / FILE, unified(make_record(cost_us=10.0)))
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "first")
    git(tmp_path, "tag", "v1")
    write(tmp_path / FILE, unified(make_record(cost_us=20.0)))
    return tmp_path


@pytest.fixture
def compare(work_tree: Path) -> Compare:
    """Return what compares two sides as typed in the work tree."""

    def run(a: str, b: str) -> DiffResult:
        left = open_side(a, beside=b, cwd=work_tree, default_root=lambda: work_tree)
        right = open_side(b, beside=a, cwd=work_tree, default_root=lambda: work_tree)
        return diff(left, right)

    return run


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("git:v1", "banks"),
        ("git:v1:banks", "banks"),
        ("git:v1:./banks", "banks"),
        ("git:v1", FILE),
        (f"git:v1:{FILE}", FILE),
        ("git:v1:banks", FILE),
        ("git:v1", "."),
    ],
)
def test_a_revision_is_compared_with_what_lies_there_now(compare: Compare, a: str, b: str) -> None:
    there, back = compare(a, b), compare(b, a)
    assert [change.kind for change in there.changes] == [ChangeKind.SLOWER]
    assert [change.kind for change in back.changes] == [ChangeKind.FASTER]
    assert (there.a, there.b) == (a, b)


def test_two_revisions_are_compared(compare: Compare, work_tree: Path) -> None:
    git(work_tree, "commit", "-q", "-a", "-m", "slower")
    assert len(compare("git:v1", "git:main").changes) == 1
    assert compare("git:main", "git:HEAD").changes == ()


def test_comparing_changes_no_file(compare: Compare, work_tree: Path) -> None:
    before = {path: path.read_bytes() for path in work_tree.rglob("*") if path.is_file()}
    compare("git:v1", "banks")
    with pytest.raises(HistoryError):
        compare("git:nothing", "banks")
    assert before == {path: path.read_bytes() for path in work_tree.rglob("*") if path.is_file()}


def bad_json(folder: Path) -> None:
    write(folder / "x.json", b"<<<<<<< ours\n{}\n")


def no_bank(folder: Path) -> None:
    write(folder / "x.json" / "notes.txt", b"hello")


@pytest.mark.parametrize(
    ("make", "a", "b", "kind", "words"),
    [
        (bad_json, "git:nothing", "banks", HistoryError, "unknown revision"),
        (bad_json, "git:v1:nowhere", "banks", HistoryError, "no such path in this revision"),
        (bad_json, FILE, "banks", BankNotFoundError, "cannot compare a file with a tree"),
        (bad_json, "git:v1:banks", "x.json", BankNotFoundError, "cannot compare a file"),
        (bad_json, FILE, "x.json", BankFormatError, "merge conflict marker left in the file"),
        (no_bank, "x.json", "banks", BankNotFoundError, "no bank file in this tree"),
    ],
)
def test_bad_side_is_an_error_that_says_so(
    compare: Compare,
    work_tree: Path,
    make: Callable[[Path], None],
    a: str,
    b: str,
    kind: type[AoebankError],
    words: str,
) -> None:
    make(work_tree)
    with pytest.raises(kind, match=words):
        compare(a, b)


def test_snapshot_beside_a_bank_without_history_is_that_of_the_current_folder(
    tmp_path: Path,
) -> None:
    """The folder before `..` does not hold what stands behind it."""
    here = tmp_path / "here"
    for root, cost_us in ((here, 10.0), (tmp_path / "beside", 20.0)):
        version_banks.put(root, make_record(cost_us=cost_us))
    version_banks.snap(here)
    stored, other = (
        open_side(text, beside="../beside", cwd=here, default_root=lambda: here)
        for text in ("snapshot:latest", "../beside")
    )
    assert [change.kind for change in diff(stored, other).changes] == [ChangeKind.SLOWER]
    inner = open_side("snapshot:latest", beside="../here/..", cwd=here, default_root=lambda: here)
    assert inner.names() == stored.names()


def test_file_of_a_stored_tree_is_found_by_its_path_before_its_name(tmp_path: Path) -> None:
    path = tmp_path / "old" / file_name()
    write(path, unified(make_record(7)))
    file = PathSide(label="b", path=path)
    new, old = {file_name(): unified(make_record(0))}, {f"old/{file_name()}": path.read_bytes()}
    assert diff(make_side(new | old), file).changes == ()
    assert len(diff(make_side(new), file).changes) == 2
    two = {f"{folder}/{file_name()}": unified() for folder in "xy"}
    with pytest.raises(BankNotFoundError, match="cannot compare a file with a tree"):
        diff(make_side(two), file)


def test_broken_file_of_a_tree_hides_no_other() -> None:
    files = {file_name(): unified(make_record()), file_name("LRN"): unified(make_record())}
    b = {**files, file_name("LRN"): b"\xff"} | {file_name(): unified(make_record(cost_us=99.0))}
    result = diff(make_side(files), make_side(b, label="b"))
    assert [change.file for change in result.changes] == [file_name()]
    assert [problem.headline for problem in result.problems] == [
        f"b/{file_name('LRN')}:1:1: bytes are not UTF-8 (got ff)"
    ]


def test_file_that_cannot_be_read_is_told_and_not_taken_for_removed(
    tmp_path: Path, system: FaultySystem
) -> None:
    write(tmp_path / file_name(), unified(make_record()))
    system.close(tmp_path / file_name())
    result = diff(
        make_side({file_name(): unified(make_record())}), PathSide(label="b", path=tmp_path)
    )
    assert result.changes == ()
    assert [type(problem) for problem in result.problems] == [BankPermissionError]


def test_large_trees_are_compared_by_several_processes_with_the_same_result(
    tmp_path: Path,
) -> None:
    for number in range(7):
        name = file_name(f"Op{number}")
        old = [make_record(row, cost_us=10.0) for row in range(1, 5)]
        new = [make_record(row, cost_us=10.0 + number) for row in range(2, 6)]
        write(tmp_path / "a" / name, unified(*old))
        write(tmp_path / "b" / name, unified(*new) if number != 3 else b"{")

    def compared(processes: int) -> DiffResult:
        a, b = (PathSide(label=letter, path=tmp_path / letter) for letter in "ab")
        return diff(a, b, count=lambda _: processes)

    alone, together = compared(1), compared(3)
    assert len(alone.changes) > 10
    assert together.changes == alone.changes
    assert together.rollup == alone.rollup
    assert [str(problem) for problem in together.problems] == [
        str(problem) for problem in alone.problems
    ]
    assert len(alone.problems) == 1
