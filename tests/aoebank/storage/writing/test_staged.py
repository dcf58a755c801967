"""Many files change together, or none does."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
from pathlib import Path

import pytest
from support.faulty_system import FaultySystem

from aoebank import AoebankError, BankLockedError, BankNotFoundError, BankPathError
from aoebank.storage.writing.atomic import hold_lock
from aoebank.storage.writing.journal import roll_back
from aoebank.storage.writing.staged import FileWrite, staged_changes, update_file, write_files


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_changes_come_with_commit_only(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"1")
    (tmp_path / "gone").write_bytes(b"2")
    with staged_changes() as changes:
        changes.stage(tmp_path / "old", b"new", old_sha256=sha256(b"1"))
        changes.stage(tmp_path / "a" / "b" / "added", b"x", old_sha256=None)
        changes.stage(tmp_path / "gone", None, old_sha256=sha256(b"2"))
        assert (tmp_path / "old").read_bytes() == b"1"
        assert (tmp_path / "gone").exists()
        written = changes.commit()
    assert len(written) == 3
    assert (tmp_path / "old").read_bytes() == b"new"
    assert names(tmp_path) == ["a", "a/b", "a/b/added", "old"]


def test_without_commit_nothing_is_left_not_even_folders(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"1")
    with staged_changes() as changes:
        changes.stage(tmp_path / "old", b"new", old_sha256=sha256(b"1"))
        changes.stage(tmp_path / "a" / "b" / "added", b"x", old_sha256=None)
    assert names(tmp_path) == ["old"]
    assert (tmp_path / "old").read_bytes() == b"1"


def test_one_file_that_changed_keeps_all_from_being_written(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"1")
    with pytest.raises(BankPathError, match="changed meanwhile"), staged_changes() as changes:
        for name in ("a", "b"):
            changes.stage(tmp_path / name, b"new", old_sha256=sha256(b"1"))
        (tmp_path / "b").write_bytes(b"another")
        changes.commit()
    assert (tmp_path / "a").read_bytes() == b"1"
    assert names(tmp_path) == ["a", "b"]


def test_content_the_caller_did_not_know_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"somebody else")
    for known in (None, sha256(b"1")):
        with pytest.raises(BankPathError, match="changed meanwhile"), staged_changes() as changes:
            changes.stage(tmp_path / "a", b"new", old_sha256=known)
            changes.commit()
        with pytest.raises(BankPathError, match="changed meanwhile"), staged_changes() as changes:
            changes.stage(tmp_path / "a", None, old_sha256=sha256(b"1"))
            changes.commit()
    assert (tmp_path / "a").read_bytes() == b"somebody else"


def test_disk_that_is_full_leaves_everything_as_it_was(
    tmp_path: Path, system: FaultySystem
) -> None:
    (tmp_path / "a").write_bytes(b"1")
    system.fail("os.fsync", OSError(28, "No space left on device"), after=2)
    with pytest.raises(AoebankError, match="no space left"), staged_changes() as changes:
        for name in ("a", "b", "c"):
            old = sha256(b"1") if name == "a" else None
            changes.stage(tmp_path / name, b"new", old_sha256=old)
        changes.commit()
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"1"


def test_interruption_among_the_renames_leaves_whole_files(
    tmp_path: Path, system: FaultySystem
) -> None:
    contents = {name: name.encode() for name in "abcd"}
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    system.fail("os.replace", KeyboardInterrupt(), after=2)
    with pytest.raises(KeyboardInterrupt), staged_changes() as changes:
        for name, data in contents.items():
            changes.stage(tmp_path / name, b"new", old_sha256=sha256(data))
        changes.commit()
    assert [(tmp_path / name).read_bytes() for name in "abcd"] == [b"new", b"new", b"c", b"d"]
    assert names(tmp_path) == ["a", "b", "c", "d"]


def test_error_among_the_renames_tells_how_far_it_got(tmp_path: Path, system: FaultySystem) -> None:
    (tmp_path / "b").write_bytes(b"1")
    system.fail("os.replace", OSError(5, "Input/output error"))
    with pytest.raises(BankPathError) as caught, staged_changes() as changes:
        changes.stage(tmp_path / "a", b"new", old_sha256=None)
        changes.stage(tmp_path / "b", b"new", old_sha256=sha256(b"1"))
        changes.commit()
    assert caught.value.hint == "1 of 2 files are written by now"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_read_only_file_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "a").chmod(0o400)
    with pytest.raises(BankPathError, match="cannot write here"), staged_changes() as changes:
        changes.stage(tmp_path / "a", b"new", old_sha256=sha256(b"1"))


def test_what_is_so_already_is_not_written_again(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"same")
    same = FileWrite(path=tmp_path / "a", data=b"same", old_sha256=sha256(b"same"))
    assert write_files([same, FileWrite(path=tmp_path / "b", data=None)]) == ()
    assert names(tmp_path) == ["a"]


def test_content_is_put_and_taken_away(tmp_path: Path) -> None:
    for old, new in ((None, b"1"), (b"1", b"2"), (b"2", None)):
        digest = sha256(old) if old else None
        write_files([FileWrite(path=tmp_path / "a", data=new, old_sha256=digest)])
        assert names(tmp_path) == (["a"] if new else [])
        assert not new or (tmp_path / "a").read_bytes() == new


def test_new_file_has_the_permissions_asked_for(tmp_path: Path) -> None:
    with staged_changes() as changes:
        changes.stage(tmp_path / "bank", b"1", old_sha256=None)
        changes.stage(tmp_path / "own", b"1", old_sha256=None, mode=0o604)
        changes.commit()
    assert (tmp_path / "bank").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o604


def test_file_that_is_gone_can_go_but_not_be_replaced(tmp_path: Path) -> None:
    with staged_changes() as changes:
        changes.stage(tmp_path / "a", None, old_sha256=sha256(b"old"))
        changes.commit()
    with (
        pytest.raises(BankNotFoundError, match="removed meanwhile"),
        staged_changes() as changes,
    ):
        changes.stage(tmp_path / "a", b"new", old_sha256=sha256(b"old"))
        changes.commit()
    assert names(tmp_path) == []


def test_directory_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(BankPathError), staged_changes() as changes:
        changes.stage(tmp_path, None, old_sha256=sha256(b""))
        changes.commit()
    assert tmp_path.is_dir()


def _hold(path: Path, told: int, wait: int) -> None:
    with hold_lock(path):
        os.write(told, b".")
        os.read(wait, 1)


@pytest.mark.parametrize("data", [b"new", None])
def test_file_somebody_writes_stays(data: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"old")
    hear, on_event = os.pipe()
    wait, end = os.pipe()
    process = multiprocessing.get_context("fork").Process(target=_hold, args=(path, on_event, wait))
    process.start()
    os.read(hear, 1)
    try:
        with pytest.raises(BankLockedError), staged_changes(lock_timeout_s=0.0) as changes:
            changes.stage(path, data, old_sha256=sha256(b"old"))
            changes.commit()
    finally:
        os.write(end, b".")
        process.join()
    assert path.read_bytes() == b"old"


def test_with_a_journal_what_fails_among_the_renames_is_put_back(
    tmp_path: Path, system: FaultySystem
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(b"1")
    seen: list[bytes | bool] = []

    def meddle(_: Path, target: Path) -> None:
        if target.name == "d":  # the last one before c
            seen.extend([(tmp_path / "a").read_bytes(), (tmp_path / "b").exists()])
            (tmp_path / "c").write_bytes(b"somebody else")  # in place, as CANN's writers do

    system.before("os.link", meddle)
    with (
        pytest.raises(BankPathError, match="changed meanwhile"),
        staged_changes(tmp_path / ".journal") as changes,
    ):
        changes.stage(tmp_path / "a", b"new", old_sha256=sha256(b"1"))
        changes.stage(tmp_path / "b", None, old_sha256=sha256(b"1"))
        changes.stage(tmp_path / "new" / "d", b"new", old_sha256=None)
        changes.stage(tmp_path / "c", b"new", old_sha256=sha256(b"1"))
        changes.commit()
    assert seen == [b"new", False]
    assert names(tmp_path) == ["a", "b", "c"]
    assert [(tmp_path / name).read_bytes() for name in "abc"] == [b"1", b"1", b"somebody else"]


def test_journal_of_a_living_process_is_waited_for(tmp_path: Path) -> None:
    journal = tmp_path / ".journal"
    with staged_changes(journal) as changes:
        changes.stage(tmp_path / "a", b"1", old_sha256=None)
        with pytest.raises(BankLockedError), staged_changes(journal, lock_timeout_s=0.0):
            pass
        with pytest.raises(BankLockedError):
            roll_back(journal, timeout_s=0.0)
        changes.commit()
    assert names(tmp_path) == ["a"]


def test_temporary_that_cannot_be_removed_does_not_undo_a_write(
    tmp_path: Path, system: FaultySystem
) -> None:
    system.fail("Path.unlink", PermissionError(13, "Permission denied"))
    file = tmp_path / "a.json"
    update_file(file, lambda _: b"new")
    with staged_changes() as changes:
        changes.stage(tmp_path / "b.json", b"more", old_sha256=None)
        changes.commit()
    assert (file.read_bytes(), (tmp_path / "b.json").read_bytes()) == (b"new", b"more")
