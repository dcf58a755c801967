"""References, tags, and a database that is damaged, foreign, locked, full or read-only."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import version_banks as banks

from aoebank import (
    AoebankError,
    BankLockedError,
    BankNotFoundError,
    BankPathError,
    BankPermissionError,
    HistoryError,
)
from aoebank.storage.history import database as database_module
from aoebank.storage.history.database import TABLES, history_path, open_history
from aoebank.storage.history.store import check_tag, find_snapshot, list_snapshots
from aoebank.storage.sides.snapshots import get_snapshot, open_snapshot_side
from aoebank.testing.factories import make_record


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    """Return a bank with three snapshots, the second one tagged."""
    for number in range(3):
        banks.put(tmp_path, make_record(number))
        banks.snap(tmp_path, f"number {number}", minutes=number, tag="v1" if number == 1 else None)
    return tmp_path


def _ids(root: Path) -> list[str]:
    with open_history(root) as database:
        return [snapshot.id for snapshot in list_snapshots(database)]


# ---- references ----


def test_reference_is_a_tag_an_id_the_start_of_one_or_latest(bank: Path) -> None:
    first, second, third = _ids(bank)
    for reference, expected in {
        "v1": second,
        first: first,
        first[:4]: first,
        first.upper(): first,
        third[:20]: third,
        "latest": third,
        "latest~0": third,
        "latest~2": first,
    }.items():
        assert get_snapshot(reference, root=bank).id == expected


@pytest.mark.parametrize(
    "reference", ["nothing", "v2", "latest~3", "latest~", "", "abc", "0" * 64, "f" * 65, "v1 "]
)
def test_unknown_reference_offers_what_there_is(bank: Path, reference: str) -> None:
    with pytest.raises(HistoryError, match="unknown snapshot or tag") as caught:
        get_snapshot(reference, root=bank)
    assert "v1" in str(caught.value)
    assert _ids(bank)[-1][:12] in str(caught.value)


def test_start_of_several_ids_is_ambiguous(bank: Path) -> None:
    from dataclasses import replace

    with open_history(bank) as database:
        one, *_ = list_snapshots(database)
    binary_caches = tuple(replace(one, id=f"abcd{digit}" + "0" * 59) for digit in "12")
    with pytest.raises(HistoryError, match="more than one"):
        find_snapshot(binary_caches, "abcd")
    assert find_snapshot(binary_caches, "abcd2") == binary_caches[1]


def test_bank_without_history_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="no history") as caught:
        open_snapshot_side("latest", root=tmp_path)
    assert "aoebank snapshot" in caught.value.hint
    assert not (tmp_path / ".aoebank").exists()


# ---- tags ----


@pytest.mark.parametrize(
    "name",
    [
        "",
        "latest",
        "latest~1",
        "latest-stable",
        "beef",
        "0123456789",
        "-x",
        "a b",
        "é",
        "a:b",
        "a~1",
        "x" * 101,
        "a\n",
    ],
)
def test_name_that_means_something_else_is_no_tag(bank: Path, name: str) -> None:
    with pytest.raises(HistoryError, match="no name for a tag"):
        banks.snap(bank, tag=name)


@pytest.mark.parametrize("name", ["v1", "2026-03", "release/1.0", "before_cann8", "x"])
def test_usual_names_are_tags(name: str) -> None:
    check_tag(name)


# ---- append-only ----


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("verb", ["DELETE FROM {}", "UPDATE {} SET rowid = 99"])
def test_nothing_is_ever_updated_or_deleted(bank: Path, table: str, verb: str) -> None:
    if table == "member" and verb.startswith("UPDATE"):
        verb = "UPDATE {} SET content = 1"
    connection = sqlite3.connect(history_path(bank))
    with pytest.raises(sqlite3.IntegrityError, match="only added to"):
        connection.execute(verb.format(table))
    connection.close()


def test_folder_keeps_the_history_out_of_git_and_the_quarantine_in(bank: Path) -> None:
    banks.git(bank, "init", "-q")
    (bank / ".aoebank" / "quarantine.jsonl").touch()
    (bank / ".aoebank" / "history.db-journal").touch()
    listed = banks.git(bank, "status", "--porcelain", "-uall", "--", ".aoebank").splitlines()
    assert sorted(line.split()[1] for line in listed) == [
        ".aoebank/.gitignore",
        ".aoebank/quarantine.jsonl",
    ]


def test_own_gitignore_in_the_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".aoebank").mkdir()
    (tmp_path / ".aoebank" / ".gitignore").write_text("mine\n")
    banks.snap(tmp_path)
    assert (tmp_path / ".aoebank" / ".gitignore").read_text() == "mine\n"


# ---- a database that cannot be used ----


def _expect(root: Path, kind: type[AoebankError], words: str) -> None:
    """Demand one clear error from reading and writing, and nothing changed by either."""
    before = banks.state(root)
    content = history_path(root).read_bytes()
    for act in (lambda: get_snapshot("latest", root=root), lambda: banks.snap(root, "again")):
        with pytest.raises(kind, match=words):
            act()
    assert banks.state(root) == before
    assert history_path(root).read_bytes() == content


def test_file_that_is_no_database(bank: Path) -> None:
    history_path(bank).write_bytes(b"nothing of the kind, and long enough to be looked at" * 40)
    _expect(bank, HistoryError, "damaged: file is not a database")


def test_damaged_database_is_closed_while_its_error_is_held(bank: Path) -> None:
    path = history_path(bank)
    path.write_bytes(b"nothing of the kind, and long enough to be looked at" * 40)
    with pytest.raises(HistoryError) as found:
        get_snapshot("latest", root=bank)
    # the error holds the frames that opened it; from Python 3.13 on an unclosed one is a warning
    assert found.value.__traceback__
    assert path not in [place.resolve() for place in Path("/proc/self/fd").iterdir()]


def test_database_of_another_program(bank: Path) -> None:
    history_path(bank).unlink()
    banks.tamper(bank, "CREATE TABLE snapshot (id)")
    _expect(bank, HistoryError, "is no history of a bank")


def test_history_of_a_newer_program(bank: Path) -> None:
    banks.tamper(bank, "PRAGMA user_version = 9")
    _expect(bank, HistoryError, "newer aoebank")


def test_truncated_database(bank: Path) -> None:
    data = history_path(bank).read_bytes()
    history_path(bank).write_bytes(data[: len(data) // 2])
    _expect(bank, HistoryError, "damaged")


def test_empty_database_is_read_as_an_error_and_can_be_started(bank: Path) -> None:
    history_path(bank).write_bytes(b"")
    with pytest.raises(HistoryError, match="first snapshot did not end"):
        get_snapshot("latest", root=bank)
    banks.snap(bank, "anew")
    assert get_snapshot("latest", root=bank).message == "anew"


def test_directory_in_the_place_of_the_database(tmp_path: Path) -> None:
    history_path(tmp_path).mkdir(parents=True)
    with pytest.raises(BankPathError, match="history cannot be used"):
        banks.snap(tmp_path)
    with pytest.raises(HistoryError, match="no history"):
        get_snapshot("latest", root=tmp_path)


def test_locked_database(bank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "LOCK_TIMEOUT_S", 0.0)
    connection = sqlite3.connect(history_path(bank), isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    try:
        _expect(bank, BankLockedError, "another process")
    finally:
        connection.close()
    banks.put(bank, make_record(7))
    banks.snap(bank)


@contextmanager
def _connections(monkeypatch: pytest.MonkeyPatch, *pragmas: str) -> Iterator[None]:
    """Let every connection of the history start with some pragmas."""
    connect = database_module.connect

    def limited(path: Path) -> sqlite3.Connection:
        database = connect(path)
        for pragma in pragmas:
            database.execute(f"PRAGMA {pragma}")
        return database

    with monkeypatch.context() as patch:
        patch.setattr(database_module, "connect", limited)
        yield


def test_full_disk_leaves_the_history_as_it_was(
    bank: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = history_path(bank).stat().st_size // 4096
    for number in range(3000):  # some 300 KB that do not compress away
        banks_record = make_record(number, tile=number * 7919)
        if number % 1000 == 0:
            batch = []
        batch.append(banks_record)
        if number % 1000 == 999:
            banks.put(bank, *batch)
    before = _ids(bank)
    with (
        _connections(monkeypatch, f"max_page_count = {pages + 2}"),
        pytest.raises(BankPathError, match="full"),
    ):
        banks.snap(bank, "too much")
    assert _ids(bank) == before
    banks.snap(bank, "now there is room")
    assert len(_ids(bank)) == len(before) + 1


def test_read_only_history_can_be_read(bank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    banks.put(bank, make_record(7))
    before = _ids(bank)
    with _connections(monkeypatch, "query_only = ON"):
        assert get_snapshot("v1", root=bank).id == before[1]
        with pytest.raises(BankPermissionError, match="history cannot be written"):
            banks.snap(bank)
    assert _ids(bank) == before


def test_place_that_is_no_directory_is_no_bank(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "gone", tmp_path / "file"):
        with pytest.raises(BankNotFoundError, match="no such bank"):
            banks.snap(place)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "name", [b"/etc/passwd", b"../../x.json", b"a/../../x.json", b".git/x", b""]
)
def test_stored_name_that_leads_out_of_the_bank_is_refused(bank: Path, name: bytes) -> None:
    banks.tamper(bank, f"INSERT INTO member SELECT 3, x'{name.hex()}', 1")
    with pytest.raises(HistoryError, match="outside of the bank"):
        open_snapshot_side("latest", root=bank)
