"""Bank: look-ups, writes that keep other bytes, caching, locks, modes, damage."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.faulty_system import FaultySystem

from aoebank import (
    Bank,
    BankFormatError,
    BankLockedError,
    BankNotFoundError,
    BankPathError,
    BankPermissionError,
    Event,
    Tier,
    fix,
    make_graph_record,
)
from aoebank.formats.registry import get_format
from aoebank.storage.bank import load_file
from aoebank.storage.tree import FileKind, classify, iter_tree
from aoebank.storage.writing.atomic import hold_lock, read_settled
from aoebank.storage.writing.staged import update_file
from aoebank.testing.factories import make_provenance, make_record

GRAPH_RECORD: dict[str, Any] = {
    "graph_id": "7",
    "feature": [{"struct": [{"op": "Relu"}]}],
    "groups": [{"cut": [1], "fusionType": [False], "scopeId": [-1], "ubPass": {}}],
    "end_to_end_ns": 80910,
}


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


def test_graph_file_is_in_the_folder_of_its_target(bank: Bank) -> None:
    file = bank.graph_file("x86-64-v4")
    assert file == bank.root / "graph/x86-64-v4/x86_64_v4_l2cache.json"
    record = make_graph_record(**GRAPH_RECORD)
    bank.put(file, [record])
    found = bank.find(file, "7")
    assert found is not None
    assert (found.strategy, found.soc_version) == (record.strategy, "x86_64_v4")
    assert bank.soc_versions() == ("x86-64-v4",)


def test_graph_file_of_the_default_root_is_where_aoe_has_it(tmp_path: Path) -> None:
    custom = tmp_path / "Ascend/latest/data/aoe/custom"
    bank = Bank(custom / "op")
    file = bank.graph_file("x86-64-v4")
    assert file == custom / "graph/x86-64-v4/x86_64_v4_l2cache.json"
    bank.put(file, [make_graph_record(**GRAPH_RECORD)])
    assert bank.find(file, "7") is not None
    with pytest.raises(BankPathError, match="outside of the bank"):
        bank.put(custom / "other.json", [make_record(1)])


def test_graph_file_an_earlier_release_left_below_the_default_root_is_used(tmp_path: Path) -> None:
    custom = tmp_path / "Ascend/latest/data/aoe/custom"
    bank = Bank(custom / "op")
    old = custom / "op/graph/x86-64-v4/x86_64_v4_l2cache.json"
    bank.put(old, [make_graph_record(**GRAPH_RECORD)])
    assert bank.graph_file("x86-64-v4") == old
    assert bank.find(old, "7") is not None
    assert bank.graph_file("x86-64-v3") == custom / "graph/x86-64-v3/x86_64_v3_l2cache.json"


def test_what_is_put_is_found_with_target_and_operator(bank: Bank, file: Path) -> None:
    bank.put(file, [make_record(1), make_record(2)])
    record = bank.find(file, make_record(2).key)
    assert record == make_record(2, soc_version="x86-64-v4", op_type="Softmax")
    assert [stored.key for stored in bank.iter_records(file)] == [
        make_record(1).key,
        make_record(2).key,
    ]


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
    (changed,) = (number for number in range(5) if old[number] != new[number])
    assert make_record(1).key.encode() in new[changed]


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
    kept = {make_record(0).key, make_record(2).key}
    assert {record.key for record in bank.iter_records(file)} == kept


@given(order=st.permutations(range(5)), cut=st.integers(0, 5))
def test_put_leaves_nothing_to_sort_whatever_came_first(order: list[int], cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        bank = Bank(Path(folder))
        file = bank.unified_file(soc_version="x86-64-v4", core_num=2, op_type="Softmax")
        for part in (order[:cut], order[cut:]):
            bank.put(file, map(make_record, part))
        bank.remove(file, [make_record(order[0]).key])
        bank.put(file, [make_record(order[0])])
        keys = load_file(file).keys
        assert keys == sorted(keys)
        assert len(keys) == 5
        assert not fix(folder, fix_class="order", dry_run=True)
        assert not fix(folder, dry_run=True)


def test_put_into_a_file_in_another_order_moves_nothing(bank: Bank, file: Path) -> None:
    bank.put(file, map(make_record, range(4)))
    parsed = load_file(file)
    first, *others = [parsed.raw(number) for number in range(4)]
    file.write_bytes(b"{\n" + b",\n".join([*others, first]) + b"\n}\n")
    before = load_file(file).keys
    bank.put(file, [make_record(9)])
    assert load_file(file).keys == [*before, make_record(9).key]


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
    line = broken.splitlines().index(next(row for row in broken.splitlines() if b": ," in row)) + 1
    file.write_bytes(broken)
    actions: list[Callable[[], object]] = [
        lambda: bank.find(file, make_record().key),
        lambda: bank.put(file, [make_record(4)]),
        lambda: bank.remove(file, [make_record().key]),
    ]
    for action in actions:
        with pytest.raises(BankFormatError) as caught:
            action()
        assert (caught.value.path, caught.value.line) == (file, line)
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


def test_put_into_a_link_puts_a_file_in_its_place(
    bank: Bank, file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bank.put(file, [make_record()])
    link = tmp_path / "x86-64-v4_2_AiCore_Softmax.json"
    link.symlink_to(file)
    Bank(tmp_path).put(link, [make_record(1)])
    assert not link.is_symlink()
    assert len(load_file(link)) == 2
    assert bank.find(file, make_record(1).key) is None
    assert f"{link}: was a link to {file}, and is a file of its own now" in caplog.text


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


def test_file_system_without_hard_links_works_too(tmp_path: Path, system: FaultySystem) -> None:
    system.fail("os.link", OSError(95, "Operation not supported"))
    update_file(tmp_path / "file", lambda old: b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_failed_edit_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(_: bytes | None) -> bytes:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        update_file(path, fail)
    assert path.read_bytes() == b"old"
    assert [left.name for left in tmp_path.iterdir()] == ["file"]


def test_system_errors_become_errors_with_the_path(tmp_path: Path, system: FaultySystem) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BankPathError, match="cannot write here"):
        update_file(tmp_path / "file" / "below", lambda old: b"")
    with pytest.raises(BankPermissionError):
        update_file(tmp_path, lambda old: b"")
    system.fail("os.fsync", PermissionError(13, "Permission denied"))
    with pytest.raises(BankPermissionError, match="cannot write here"):
        update_file(tmp_path / "new", lambda old: b"x")
    system.fail("os.mkdir", PermissionError(13, "Permission denied"))
    with pytest.raises(BankPermissionError, match="cannot write here") as caught:
        update_file(tmp_path / "none" / "below" / "new", lambda old: b"x")
    assert caught.value.hint == f"ls -ld {tmp_path}", "the folder that is there"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


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
        "loop": FileKind.LINK,
        "nowhere.json": FileKind.UNREADABLE,
        "pipe_1_AiCore_x.json": FileKind.BANK,  # as its name says; whoever reads it tells
    }
    files = bank.iter_files()
    assert [next(files).name for _ in range(3)] == ["copy.json", "pipe_1_AiCore_x.json", file.name]
    with pytest.raises(BankPathError, match=r"nowhere\.json: cannot be read: link to nowhere"):
        next(files)
    with pytest.raises(BankPathError, match="cannot be read: no regular file"):
        load_file(folder / "pipe_1_AiCore_x.json")


def test_file_that_cannot_be_opened_is_unreadable(tmp_path: Path, system: FaultySystem) -> None:
    path = tmp_path / "some.json"
    path.touch()
    system.close(path)
    assert classify(path).reason == "permission denied"
    with pytest.raises(BankPermissionError, match="cannot be read"):
        load_file(path)


def test_load_file_names_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(BankNotFoundError, match="no such file"):
        load_file(tmp_path / "gone.json")
    with pytest.raises(BankNotFoundError, match="is a directory"):
        load_file(tmp_path)


def test_link_tells_where_it_leads_and_a_second_way_in_is_not_walked(
    bank: Bank, file: Path
) -> None:
    bank.put(file, [make_record()])
    (bank.root / "zz-alias").symlink_to(file.parent.parent)
    (bank.root / "self").symlink_to("self")
    entries = {entry.path.name: entry for entry in bank.iter_entries()}
    assert entries["zz-alias"].reason == f"leads to {file.parent.parent}"
    assert entries["self"].kind is FileKind.UNREADABLE
    assert list(bank.iter_files()) == [file]
    assert entries[file.name].format == "unified"


def test_folder_that_vanishes_while_it_is_walked_is_reported(
    bank: Bank, file: Path, system: FaultySystem
) -> None:
    bank.put(file, [make_record()])

    def vanish(path: Path) -> None:
        if path == file.parent:
            raise FileNotFoundError(2, "No such file or directory")

    system.before("Path.stat", vanish)
    (entry,) = iter_tree(bank.root)
    assert (entry.path, entry.kind) == (file.parent, FileKind.UNREADABLE)


def test_soc_versions_are_the_folders_that_hold_bank_files(bank: Bank) -> None:
    assert bank.soc_versions() == ()
    for soc in ("x86-64-v4", "Ascend910_9391", "x86-64-v4"):
        bank.put(bank.unified_file(soc_version=soc, core_num=2, op_type="LRN"), [make_record()])
    (bank.root / "empty" / "unified_bank").mkdir(parents=True)
    bank.put(bank.root / "stray_1_AiCore_LRN.json", [make_record()])
    assert bank.soc_versions() == ("Ascend910_9391", "x86-64-v4")


def test_built_in_bank_is_read_and_never_written(bank: Bank, file: Path) -> None:
    bank.put(file, [make_record()])
    before = file.read_bytes()
    built_in = Bank(bank.root, tier=Tier.BUILT_IN)
    assert built_in.find(file, make_record().key) is not None
    for write in (
        lambda: built_in.put(file, [make_record(1)]),
        lambda: built_in.remove(file, [make_record().key]),
        lambda: built_in.append_provenance(file, [make_provenance(make_record().key)]),
    ):
        with pytest.raises(BankPermissionError, match="built-in"):
            write()
    assert file.read_bytes() == before
    assert [*file.parent.iterdir()] == [file]


def test_empty_file_beside_its_backup_is_not_filled_over(bank: Bank, file: Path) -> None:
    """The backup holds what a writer of CANN died over; a fresh file would bury it."""
    bank.put(file, [make_record()])
    backup = file.with_name(f"{file.name}.aoe")
    file.replace(backup)
    file.touch()
    with pytest.raises(BankFormatError, match="backup of a write that died") as caught:
        bank.put(file, [make_record(1)])
    assert str(backup) in caught.value.hint
    assert file.read_bytes() == b""
    backup.write_bytes(b"\n")  # nothing in it to lose
    bank.put(file, [make_record(1)])
    assert bank.find(file, make_record(1).key) is not None


def test_reader_waits_for_a_writer_that_has_truncated_the_file(
    bank: Bank, file: Path, system: FaultySystem
) -> None:
    bank.put(file, [make_record()])
    whole = file.read_bytes()
    holder = file.open("r+b")
    fcntl.flock(holder, fcntl.LOCK_EX)
    holder.truncate(0)
    tries: list[int] = []

    def finish_write(*_: object) -> None:
        tries.append(1)
        if len(tries) == 2:  # the reader has waited once
            holder.write(whole)
            holder.close()

    system.before("fcntl.flock", finish_write)
    record = bank.find(file, make_record().key)
    assert len(tries) >= 2
    assert record is not None
    assert record.key == make_record().key


def test_reader_goes_by_what_is_there_when_a_writer_never_ends(file: Path, bank: Bank) -> None:
    bank.put(file, [make_record()])
    ticks = iter(range(100))
    with held_lock(file):
        settled = read_settled(file, timeout_s=2, clock=lambda: next(ticks), pause=lambda _: None)
    assert settled is None
    assert read_settled(file) == file.read_bytes()
    assert read_settled(file.with_name("gone")) is None


def test_settled_read_follows_a_file_that_was_replaced(file: Path, bank: Bank) -> None:
    bank.put(file, [make_record()])
    holder = file.open("r+b")
    fcntl.flock(holder, fcntl.LOCK_EX)

    def replace_and_release(_: float) -> None:
        new = file.with_name("new")
        new.write_bytes(b"new")
        new.replace(file)
        holder.close()

    assert read_settled(file, pause=replace_and_release) == b"new"


def test_cube_bank_with_its_binary_twin_is_left_alone(tmp_path: Path) -> None:
    """Readers open the twin only; a changed text beside an old twin would mislead everybody."""
    path = tmp_path / "cube" / "AIC_24_L1_SIZE_512_repository_Ascend910B2_matmul.json"
    path.parent.mkdir()
    path.write_bytes(b"")
    path.with_suffix(".bin").write_bytes(b"")
    with pytest.raises(BankPathError, match="twin of the bank file") as caught:
        Bank(tmp_path).put(path, [make_record()])
    assert caught.value.path == path.with_suffix(".bin")
    assert path.read_bytes() == b""


def test_root_may_be_a_text(tmp_path: Path) -> None:
    bank = Bank(str(tmp_path))
    assert bank.root == tmp_path
    assert [*bank.iter_files()] == []


@pytest.mark.parametrize("data", [b"", b" \n", b'{"key": '], ids=["empty", "blank", "cut"])
def test_damaged_file_is_told_passed_over_and_set_aside(tmp_path: Path, data: bytes) -> None:
    bank = Bank(tmp_path)
    file = bank.unified_file(soc_version="x86-64-test", core_num=2, op_type="lrn")
    assert bank.damage(file) == ""
    file.parent.mkdir(parents=True)
    file.write_bytes(data)
    assert bank.damage(file)
    other = Bank(tmp_path)
    other.pass_over(file)
    assert (other.damage(file), other.find(file, "any")) == ("", None)
    aside = bank.set_aside(file)
    assert aside is not None and aside.name == f"{file.name}.damaged"
    assert aside.read_bytes() == data
    assert bank.set_aside(file) is None
    assert [entry.kind.value for entry in bank.iter_entries()] == ["unknown"]


def test_file_that_was_mended_meanwhile_keeps_its_name(tmp_path: Path) -> None:
    bank = Bank(tmp_path)
    file = bank.unified_file(soc_version="x86-64-test", core_num=2, op_type="lrn")
    file.parent.mkdir(parents=True)
    file.write_bytes(get_format("unified").empty)
    assert bank.set_aside(file) is None
    assert file.exists()
