"""Bank: look-ups, writes that keep other bytes, caching, locks, modes, damage."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from aoebank import (
    Bank,
    BankFormatError,
    BankLockedError,
    BankNotFoundError,
    BankPathError,
    BankPermissionError,
    Event,
)
from aoebank.storage.atomic import update_file
from aoebank.storage.bank import load_file
from aoebank.storage.lock import hold_lock
from aoebank.storage.tree import FileKind, classify, iter_tree
from aoebank.testing.factories import make_provenance, make_record


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return Bank(tmp_path / "root")


@pytest.fixture
def file(bank: Bank) -> Path:
    return bank.unified_file(soc_version="x86-64-v4", core_num=2, op_type="Softmax")


@contextmanager
def held_lock(path: Path) -> Iterator[None]:
    with path.open("r+b") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def test_unified_file_is_where_cann_would_look(bank: Bank, file: Path) -> None:
    assert file == bank.root / "x86-64-v4/unified_bank/x86-64-v4_2_AiCore_Softmax.json"


def test_what_is_put_is_found_with_target_and_operator(bank: Bank, file: Path) -> None:
    bank.put(file, [make_record(1), make_record(2)])
    record = bank.find(file, make_record(2).key)
    assert record == make_record(2, soc_version="x86-64-v4", op_type="Softmax")
    assert [each.key for each in bank.iter_records(file)] == [
        make_record(1).key, make_record(2).key
    ]  # fmt: skip


def test_miss_is_none_and_needs_no_file(bank: Bank, file: Path) -> None:
    assert bank.find(file, make_record().key) is None
    assert list(bank.iter_records(file)) == []
    assert list(bank.iter_files()) == []
    bank.put(file, [make_record()])
    assert bank.find(file, make_record(1).key) is None


def test_put_replaces_the_same_key_and_no_other_byte(bank: Bank, file: Path) -> None:
    bank.put(file, map(make_record, range(3)))
    text = file.read_bytes().replace(b'"origin": "aoe"', b'"origin" :"me"', 1)
    file.write_bytes(text)
    bank.put(file, [make_record(1, tile=99)])
    old, new = text.splitlines(), file.read_bytes().splitlines()
    assert [number for number in range(5) if old[number] != new[number]] == [2]


def test_put_of_what_is_there_does_not_touch_the_file(bank: Bank, file: Path) -> None:
    bank.put(file, [make_record()])
    before = file.stat()
    bank.put(file, [make_record()])
    assert file.stat() == before


def test_remove_takes_only_the_keys_given(bank: Bank, file: Path) -> None:
    bank.remove(file, [make_record().key])
    assert not file.exists()
    bank.put(file, map(make_record, range(3)))
    bank.remove(file, [make_record(1).key, "unknown"])
    assert [each.key for each in bank.iter_records(file)] == [
        make_record(0).key, make_record(2).key
    ]  # fmt: skip


def test_change_by_another_process_is_seen(bank: Bank, file: Path) -> None:
    bank.put(file, [make_record()])
    assert bank.find(file, make_record().key) is not None
    Bank(bank.root).put(file, [make_record(tile=77), make_record(1)])
    record = bank.find(file, make_record().key)
    assert record is not None
    assert record.strategy == make_record(tile=77).strategy
    file.unlink()
    assert bank.find(file, make_record().key) is None


def test_found_record_is_parsed_once(bank: Bank, file: Path) -> None:
    bank.put(file, [make_record()])
    assert bank.find(file, make_record().key) is bank.find(file, make_record().key)


def test_broken_file_raises_with_place_and_is_never_overwritten(bank: Bank, file: Path) -> None:
    bank.put(file, map(make_record, range(3)))
    broken = file.read_bytes().replace(b"11.5", b"")
    file.write_bytes(broken)
    actions: list[Callable[[], object]] = [
        lambda: bank.find(file, make_record().key),
        lambda: bank.put(file, [make_record(4)]),
        lambda: bank.remove(file, [make_record().key]),
    ]
    for action in actions:
        with pytest.raises(BankFormatError) as caught:
            action()
        assert (caught.value.path, caught.value.line) == (file, 3)
        assert caught.value.column > 1
        assert caught.value.hint == f"aoebank validate {file}"
    assert file.read_bytes() == broken


def test_empty_file_of_a_dead_writer_is_filled(bank: Bank, file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.touch()
    assert bank.find(file, make_record().key) is None
    bank.put(file, [make_record()])
    assert bank.find(file, make_record().key) is not None


def test_new_files_and_folders_get_the_modes_cann_expects(bank: Bank, file: Path) -> None:
    old = os.umask(0o077)
    try:
        bank.put(file, [make_record()])
        bank.append_provenance(file, [make_provenance(make_record().key)])
    finally:
        os.umask(old)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in file.parent.iterdir()}
    assert modes == {0o640}
    folders = (file.parent, file.parent.parent, bank.root)
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o750}


def test_mode_of_an_existing_file_is_kept(bank: Bank, file: Path) -> None:
    bank.put(file, [make_record()])
    file.chmod(0o660)
    bank.put(file, [make_record(1)])
    assert stat.S_IMODE(file.stat().st_mode) == 0o660


def test_link_to_a_bank_file_stays_a_link(bank: Bank, file: Path, tmp_path: Path) -> None:
    bank.put(file, [make_record()])
    link = tmp_path / "x86-64-v4_2_AiCore_Softmax.json"
    link.symlink_to(file)
    Bank(tmp_path).put(link, [make_record(1)])
    assert link.is_symlink()
    assert bank.find(file, make_record(1).key) is not None


def test_nothing_is_left_over_after_writes(bank: Bank, file: Path) -> None:
    bank.put(file, [make_record()])
    bank.put(file, [make_record(1)])
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_writer_gives_up_when_another_keeps_the_lock(file: Path, bank: Bank) -> None:
    bank.put(file, [make_record()])
    ticks = iter(range(100))
    pauses: list[float] = []
    with held_lock(file), pytest.raises(BankLockedError, match="another writer") as caught:  # noqa: SIM117
        with hold_lock(file, timeout_s=3, clock=lambda: next(ticks), pause=pauses.append):
            pytest.fail("two holders")
    assert len(pauses) == 2
    assert isinstance(caught.value, TimeoutError)


def test_lock_moves_on_with_the_name_when_the_file_is_replaced(
    file: Path, bank: Bank, tmp_path: Path
) -> None:
    """A waiter that wins the lock of a file without a name must not write into it."""
    bank.put(file, [make_record()])
    replacement = tmp_path / "new"
    holder = file.open("r+b")
    fcntl.flock(holder, fcntl.LOCK_EX)

    def replace_and_release(_: float) -> None:
        if not holder.closed:
            replacement.write_bytes(b"{}")
            replacement.replace(file)
            holder.close()

    with hold_lock(file, pause=replace_and_release) as exists:
        assert exists
        other = os.open(file, os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(other)


def test_lock_of_a_file_that_does_not_exist_is_none(tmp_path: Path) -> None:
    with hold_lock(tmp_path / "gone") as exists:
        assert not exists


def test_edit_runs_again_when_somebody_else_creates_the_file_first(tmp_path: Path) -> None:
    path = tmp_path / "file"
    seen: list[bytes | None] = []

    def edit(old: bytes | None) -> bytes:
        seen.append(old)
        if old is None:
            path.write_bytes(b"theirs")
        return (old or b"") + b" ours"

    update_file(path, edit)
    assert seen == [None, b"theirs"]
    assert path.read_bytes() == b"theirs ours"


def test_file_system_without_hard_links_works_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    update_file(tmp_path / "file", lambda old: b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_failed_edit_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(_: bytes | None) -> bytes:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        update_file(path, fail)
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_system_errors_become_errors_with_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BankPathError, match="cannot write here"):
        update_file(tmp_path / "file" / "below", lambda old: b"")
    with pytest.raises(BankPermissionError):
        update_file(tmp_path, lambda old: b"")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(BankPermissionError, match="cannot write here"):
        update_file(tmp_path / "new", lambda old: b"x")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_provenance_comes_back_in_order(bank: Bank, file: Path) -> None:
    first = make_provenance(make_record().key, event=Event.UNSATISFIED)
    second = replace(first, event=Event.ADD)
    assert list(bank.iter_provenance(file)) == []
    bank.append_provenance(file, [])
    bank.append_provenance(file, [first])
    bank.append_provenance(file, [second])
    assert list(bank.iter_provenance(file)) == [first, second]
    assert not file.exists()


def test_provenance_after_a_torn_line_is_not_lost(bank: Bank, file: Path) -> None:
    entry = make_provenance(make_record().key)
    bank.append_provenance(file, [entry])
    side_car = file.with_name(file.name + ".provenance.jsonl")
    side_car.write_bytes(side_car.read_bytes() + b'{"sch')
    bank.append_provenance(file, [entry])
    assert list(bank.iter_provenance(file)) == [entry, entry]


def test_tree_tells_files_apart_and_survives_loops(bank: Bank, file: Path) -> None:
    bank.put(file, [make_record()])
    bank.append_provenance(file, [make_provenance(make_record().key)])
    folder = file.parent
    (folder / "loop").symlink_to(bank.root)
    (folder / f"{file.name}.aoe").touch()
    (folder / "README.md").touch()
    (folder / "copy.json").write_bytes(file.read_bytes())
    (folder / "nowhere.json").symlink_to("gone")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").touch()
    os.mkfifo(folder / "pipe_1_AiCore_x.json")
    found = {entry.path.name: entry.kind for entry in iter_tree(bank.root)}
    assert found == {
        file.name: FileKind.BANK,
        "copy.json": FileKind.BANK,
        f"{file.name}.provenance.jsonl": FileKind.SIDE_CAR,
        f"{file.name}.aoe": FileKind.LEFT_OVER,
        "README.md": FileKind.UNKNOWN,
        "nowhere.json": FileKind.UNREADABLE,
        "pipe_1_AiCore_x.json": FileKind.UNREADABLE,
    }
    assert sorted(path.name for path in bank.iter_files()) == ["copy.json", file.name]


def test_file_that_cannot_be_opened_is_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "some.json"
    path.touch()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert classify(path).reason == "permission denied"
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(BankPermissionError, match="cannot be read"):
        load_file(path)


def test_load_file_names_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(BankNotFoundError, match="no such file"):
        load_file(tmp_path / "gone.json")
    with pytest.raises(BankNotFoundError, match="is a directory"):
        load_file(tmp_path)
