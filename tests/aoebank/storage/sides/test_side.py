"""Sides: a path, a git revision or a snapshot read the same way."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.faulty_system import FaultySystem

from aoebank import BankNotFoundError, BankPermissionError, HistoryError
from aoebank.storage.sides.open import open_side
from aoebank.storage.sides.side import PathSide, Side, SideKind

FILE = "Ascend910B2/unified_bank/Ascend910B2_24_AiCore_matmul.json"
EMPTY = b"{}\n"


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def work_tree(tmp_path: Path) -> Path:
    """Return a work tree with a bank in `banks/`, whose newest state is not committed."""
    bank_file = tmp_path / "banks" / FILE
    bank_file.parent.mkdir(parents=True)
    git(tmp_path, "init", "-q", "-b", "main")
    bank_file.write_bytes(EMPTY)
    (tmp_path / "banks" / f"{FILE}.provenance.jsonl").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("no bank")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "first")
    git(tmp_path, "tag", "v1")
    bank_file.write_bytes(b"")
    return tmp_path


def side(text: str, cwd: Path, beside: str = "") -> Side:
    return open_side(text, beside=beside, cwd=cwd, default_root=lambda: cwd)


def test_revision_without_path_means_the_path_of_the_other_side(work_tree: Path) -> None:
    tree = side("git:v1", work_tree, beside="banks")
    assert tree.names() == (FILE,)
    assert tree.is_tree
    assert tree.kind is SideKind.GIT


def test_revision_without_path_means_the_current_directory(work_tree: Path) -> None:
    assert side("git:v1", work_tree / "banks").names() == (FILE,)
    assert side("git:v1", work_tree).names() == (f"banks/{FILE}",)


def test_path_in_a_revision_starts_at_the_top_unless_it_has_a_dot(work_tree: Path) -> None:
    inside = work_tree / "banks" / "Ascend910B2"
    assert side("git:v1:banks", inside).names() == (FILE,)
    assert side("git:v1:./unified_bank", inside).names() == (Path(FILE).name,)


def test_revision_gives_its_own_content_not_what_lies_on_disk(work_tree: Path) -> None:
    parsed = side("git:v1:banks", work_tree).load(FILE)
    assert parsed is not None
    assert parsed.data == EMPTY
    assert str(parsed.path) == f"git:v1:banks/{FILE}"


def test_one_file_of_a_revision_is_no_tree(work_tree: Path) -> None:
    one = side(f"git:v1:banks/{FILE}", work_tree)
    assert not one.is_tree
    assert one.names() == (Path(FILE).name,)
    loaded = one.load(Path(FILE).name)
    assert loaded is not None
    assert loaded.name is not None


def test_path_deleted_on_disk_is_still_found_in_the_revision(work_tree: Path) -> None:
    (work_tree / "banks" / FILE).unlink()
    assert side(f"git:v1:./banks/{FILE}", work_tree).names() == (Path(FILE).name,)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("git:nowhere", "unknown revision"),
        ("git:v1:absent", "no such path"),
        ("git:--help", "unknown revision"),
        ("git:v1:../../etc", "outside of the work tree"),
    ],
)
def test_what_git_does_not_have_is_one_clear_error(work_tree: Path, text: str, words: str) -> None:
    with pytest.raises(HistoryError, match=words):
        side(text, work_tree)


def test_revision_outside_of_git_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="not in a git work tree"):
        side("git:main", tmp_path)


def test_folder_that_cannot_be_listed_is_not_an_empty_one(
    work_tree: Path, system: FaultySystem
) -> None:
    system.close(work_tree / "banks" / "Ascend910B2" / "unified_bank")
    with pytest.raises(BankPermissionError, match="cannot be read"):
        side("banks", work_tree).names()


def test_absent_path_names_the_forms_a_side_has(tmp_path: Path) -> None:
    with pytest.raises(BankNotFoundError, match="git:REV:PATH"):
        side("absent", tmp_path)


def test_folder_where_a_version_had_a_file_holds_no_records(tmp_path: Path) -> None:
    name = "bank/x86-64-v4_2_AiCore_Softmax.json"
    (tmp_path / name).mkdir(parents=True)
    assert PathSide(label="", path=tmp_path).load(name) is None
