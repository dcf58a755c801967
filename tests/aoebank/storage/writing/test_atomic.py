"""Writes stay in their tree whatever links are in it, and what root writes stays its owner's."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.faulty_system import FaultySystem

from aoebank import Bank, BankPathError, edit, fix, merge, quarantine_add, restore, snapshot
from aoebank.errors import shell_word
from aoebank.model.digest import sha256_of
from aoebank.storage.history.database import history_path
from aoebank.storage.writing.journal import roll_back
from aoebank.storage.writing.staged import staged_changes, update_file
from aoebank.testing.factories import make_provenance, make_record

SOC, NAME = "x86-64-v4", "x86-64-v4_2_AiCore_Softmax.json"
FILE = f"{SOC}/unified_bank/{NAME}"


def put(root: Path, *seeds: int) -> Path:
    bank = Bank(root)
    bank.put(root / FILE, [make_record(seed) for seed in seeds])
    return root / FILE


def with_line_ends(file: Path) -> bytes:
    data = file.read_bytes().replace(b"\n", b"\r\n")
    file.write_bytes(data)
    return data


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Return a bank file of somebody else that could be mended."""
    file = put(tmp_path / "somebody", 1)
    with_line_ends(file)
    return file


@pytest.fixture
def root(tmp_path: Path, outside: Path) -> Path:
    """Return a bank with a link out of it in the place of a bank file."""
    link = tmp_path / "bank" / FILE
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)
    return tmp_path / "bank"


def test_fix_leaves_what_a_link_leads_to_out_of_the_tree(root: Path, outside: Path) -> None:
    before = outside.read_bytes()
    (outcome,) = fix(root)
    assert not outcome.is_written
    assert "leads out of the tree" in str(outcome.error)
    assert str(outside) in str(outcome.error)
    assert outside.read_bytes() == before


def test_fix_leaves_what_a_link_leads_to_that_a_person_names(root: Path, outside: Path) -> None:
    (outcome,) = fix(root / FILE)
    assert f"name it directly: {outside}" in str(outcome.error)
    assert fix(outside)[0].is_written
    assert b"\r" not in (root / FILE).read_bytes()


def test_fix_of_a_file_and_a_link_to_it_leaves_a_link(tmp_path: Path) -> None:
    file = put(tmp_path, 1)
    with_line_ends(file)
    link = tmp_path / "Other" / "unified_bank" / NAME
    link.parent.mkdir(parents=True)
    link.symlink_to(file)
    assert len(fix(tmp_path)) == 2
    assert link.is_symlink()
    assert b"\r" not in file.read_bytes()


@pytest.mark.parametrize("what", ["file", "folder", "side-car"])
def test_put_writes_nothing_out_of_the_bank(tmp_path: Path, what: str) -> None:
    elsewhere, root = tmp_path / "elsewhere", tmp_path / "bank"
    elsewhere.mkdir()
    bank = Bank(root)
    link, target = {
        "file": (root / FILE, elsewhere / "a.json"),
        "folder": (root / SOC, elsewhere),
        "side-car": (root / f"{FILE}.provenance.jsonl", elsewhere / "b"),
    }[what]
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    with pytest.raises(BankPathError, match="leads out of the tree"):
        if what == "side-car":
            bank.append_provenance(root / FILE, [make_provenance("k")])
        else:
            bank.put(root / FILE, [make_record(1)])
    assert [*elsewhere.iterdir()] == []


def test_restore_writes_nothing_out_of_the_bank(tmp_path: Path) -> None:
    file = put(tmp_path / "bank", 1)
    snapshot(tmp_path / "bank")
    moved = tmp_path / "elsewhere.json"
    file.rename(moved)
    put(tmp_path / "bank", 2).rename(moved)
    file.symlink_to(moved)
    before = moved.read_bytes()
    with pytest.raises(BankPathError, match="leads out of the tree"):
        restore("latest", tmp_path / "bank")
    assert moved.read_bytes() == before


def test_merge_in_place_writes_nothing_out_of_the_tree(tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere.json"
    file = put(tmp_path / "a", 1)
    file.rename(moved)
    file.symlink_to(moved)
    put(tmp_path / "b", 1, 2)
    before = moved.read_bytes()
    with pytest.raises(BankPathError, match="leads out of the tree"):
        merge(tmp_path / "a", tmp_path / "b", output=tmp_path / "a")
    assert moved.read_bytes() == before


def test_edit_writes_nothing_out_of_the_tree(tmp_path: Path) -> None:
    moved, tree = tmp_path / "elsewhere.json", tmp_path / "tree"
    file = put(tree, 1)
    put(tree / "more", 1)
    file.rename(moved)
    file.symlink_to(moved)
    before = moved.read_bytes(), (tree / "more" / FILE).read_bytes()
    with pytest.raises(BankPathError, match="leads out of the tree"):
        edit(tree, op="Softmax", assign={"vectorize": False})
    assert (moved.read_bytes(), (tree / "more" / FILE).read_bytes()) == before


def test_edit_of_a_link_puts_a_file_in_its_place(tmp_path: Path) -> None:
    file = put(tmp_path, 1)
    link, moved = tmp_path / "a" / "b" / NAME, tmp_path / "a" / "moved"
    link.parent.mkdir(parents=True)
    file.rename(moved)
    link.symlink_to(moved)
    before = moved.read_bytes()
    assert edit(tmp_path, op="Softmax", assign={"vectorize": False}).written == (link,)
    assert b'"vectorize": false' in link.read_bytes()
    assert (moved.read_bytes(), link.is_symlink()) == (before, False)
    assert not [*tmp_path.rglob("*.aoebank-tmp")]


@pytest.mark.parametrize("place", [".aoebank", ".aoebank/history.db", ".aoebank/.gitignore"])
def test_history_is_not_made_behind_a_link(tmp_path: Path, place: str) -> None:
    put(tmp_path / "bank", 1)
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "bank" / place
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / "elsewhere" / "x" if "/" in place else tmp_path / "elsewhere")
    with pytest.raises(BankPathError, match="leads out of the tree"):
        snapshot(tmp_path / "bank")
    assert not history_path(tmp_path / "bank").exists()
    assert [*(tmp_path / "elsewhere").iterdir()] == []


def test_quarantine_is_not_written_behind_a_link(tmp_path: Path) -> None:
    put(tmp_path / "bank", 1)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "bank" / ".aoebank").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BankPathError, match="leads out of the tree"):
        quarantine_add(make_record(1).key, tmp_path / "bank", reason="slow")
    assert [*(tmp_path / "elsewhere").iterdir()] == []


@pytest.mark.parametrize("member", ["temporary", "path", "kept"])
@pytest.mark.parametrize("way", ["up", "link"])
def test_a_journal_somebody_else_made_touches_nothing_elsewhere(
    tmp_path: Path, member: str, way: str
) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"dear")
    (tmp_path / "bank").mkdir()
    (tmp_path / "bank" / "in").symlink_to(tmp_path)
    name = "../precious" if way == "up" else "in/precious"
    change: dict[str, str | None] = {"path": "a", "kept": None, "old_sha256": None}
    line: dict[str, object] = {"temporary": name}
    if member != "temporary":
        line = {"change": {**change, "new_sha256": "0" * 64, member: name}}
    journal = tmp_path / "bank" / ".merge.aoebank-tmp"
    journal.write_text(f"{json.dumps(line)}\n" + '{"mark": "begin"}\n')
    with pytest.raises(BankPathError, match="outside of its folder"):
        roll_back(journal)
    assert precious.read_bytes() == b"dear"


@pytest.mark.parametrize("beside", ["tree", "change"])
def test_a_journal_with_members_beside_others_deletes_nothing_elsewhere(
    tmp_path: Path, beside: str
) -> None:
    put(tmp_path / "bank", 1)
    precious = tmp_path / "precious"
    precious.write_bytes(b"dear")
    whole = dict.fromkeys(("path", "kept", "old_sha256", "new_sha256"), "a")
    line = {beside: whole, "temporary": "../precious"}
    (tmp_path / "bank" / ".merge.aoebank-tmp").write_text(f"{json.dumps(line)}\n")
    with pytest.raises(BankPathError, match="outside of its folder"):
        edit(tmp_path / "bank", op="Softmax", assign={"vectorize": False})
    assert precious.read_bytes() == b"dear"


def test_a_journal_that_moves_a_link_deletes_nothing_elsewhere(tmp_path: Path) -> None:
    """From `a/b` the link leads to the tree, from `c` to the folder above."""
    precious = tmp_path / "precious"
    precious.write_bytes(b"dear")
    (tmp_path / "bank" / "a" / "b").mkdir(parents=True)
    (tmp_path / "bank" / "a" / "b" / "up").symlink_to("../..")
    tree = {"tree": {"beside": "c", "place": "a/b", "files": {}}}
    journal = tmp_path / "bank" / ".merge.aoebank-tmp"
    lines = [json.dumps(line) for line in (tree, {"temporary": "c/up/precious"})]
    journal.write_text("\n".join(lines))
    with pytest.raises(BankPathError, match="outside of its folder"):
        roll_back(journal, takes_tree=True)
    assert precious.read_bytes() == b"dear"


@pytest.mark.parametrize("mark", ["begin", "done"])
def test_a_change_without_its_members_is_an_error_of_the_journal(tmp_path: Path, mark: str) -> None:
    journal = tmp_path / ".merge.aoebank-tmp"
    journal.write_text(f'{{"change": {{"x": 1}}}}\n{{"mark": "{mark}"}}\n')
    with pytest.raises(BankPathError, match="without all of its members"):
        roll_back(journal)
    assert journal.exists()


def test_a_journal_somebody_else_made_puts_nothing_into_a_repository(tmp_path: Path) -> None:
    """A file of the tree would become a hook, which the next git runs."""
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / "kept").write_bytes(b"#!/bin/sh\n")
    change = {"path": ".git/hooks/post-checkout", "kept": "kept", "new_sha256": None}
    line = {"change": {**change, "old_sha256": sha256_of(b"#!/bin/sh\n")}}
    journal = tmp_path / ".merge.aoebank-tmp"
    journal.write_text(f"{json.dumps(line)}\n" + '{"mark": "begin"}\n')
    with pytest.raises(BankPathError, match="outside of its folder"):
        roll_back(journal)
    assert not (tmp_path / ".git" / "hooks" / "post-checkout").exists()


Given = list[tuple[Path, int, int]]


@pytest.fixture
def given(system: FaultySystem) -> Given:
    """Let this process be root; return what it gave to whom."""
    calls: Given = []

    def chown(place: int | Path, user: int, group: int) -> None:
        path = Path(f"/proc/self/fd/{place}").readlink() if isinstance(place, int) else place
        calls.append((path, user, group))

    system.replace("os.geteuid", lambda: 0)
    system.replace("os.chown", chown)
    return calls


def stage(path: Path) -> None:
    with staged_changes() as changes:
        changes.stage(path, b"new", old_sha256=None)
        changes.commit()


@pytest.mark.parametrize("write", [lambda path: update_file(path, lambda _: b"new"), stage])
def test_new_files_and_folders_of_root_get_the_owner_of_their_folder(
    tmp_path: Path, given: Given, write: Callable[[Path], None]
) -> None:
    owner = tmp_path.stat()
    write(tmp_path / "a" / "b.json")
    assert {place[1:] for place in given} == {(owner.st_uid, owner.st_gid)}
    assert tmp_path / "a" in [path for path, *_ in given]
    assert any(path.name.endswith(".aoebank-tmp") for path, *_ in given)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_root_keeps_owner_and_mode_of_what_it_writes(tmp_path: Path) -> None:
    root = tmp_path / "bank"
    root.mkdir()
    os.chown(root, 12345, 12346)
    file = put(root, 1)
    os.chown(file, 12347, 12348)
    file.chmod(0o604)
    put(root, 2)
    snapshot(root)
    owners = {path: (path.stat().st_uid, path.stat().st_gid) for path in root.rglob("*")}
    assert owners.pop(file) == (12347, 12348)
    assert set(owners.values()) == {(12345, 12346)}
    assert file.stat().st_mode & 0o777 == 0o604


@pytest.mark.parametrize(
    ("path", "word"),
    [("a.json", "a.json"), ("my bank", "'my bank'"), ("-x", "./-x"), ("$(id)", "'$(id)'")],
)
def test_path_in_a_hint_is_one_word_of_a_shell(path: str, word: str) -> None:
    assert shell_word(Path(path)) == word
