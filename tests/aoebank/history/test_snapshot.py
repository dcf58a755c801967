"""What a snapshot holds, when one is made, and for which soc_versions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support import version_banks as banks

import aoebank
from aoebank import Bank, BankPathError, HistoryError
from aoebank.history.changes import Move, iter_moves
from aoebank.history.log import verify_history
from aoebank.history.snapshot import preview_snapshot
from aoebank.model.snapshot import Snapshot
from aoebank.selection import RecordFilter
from aoebank.storage.bank import load_file
from aoebank.storage.history.database import history_path
from aoebank.storage.sides.side import PathSide
from aoebank.storage.sides.snapshots import get_snapshot, open_snapshot_side
from aoebank.testing.factories import make_provenance, make_record

OTHER = "Ascend910B2"


def _snapshot(root: Path, reference: str = "latest") -> Snapshot:
    return get_snapshot(reference, root=root)


def test_snapshot_says_who_when_why_and_where(tmp_path: Path) -> None:
    banks.put(tmp_path, make_record(1), make_record(2))
    result = banks.snap(tmp_path, "because", tag="v1")
    found = _snapshot(tmp_path)
    assert found.who == "Ann <ann@example.org>"
    assert found.time == "2026-01-02T03:04:05Z"
    assert found.message == "because"
    assert found.environment == {"aoebank": "0", "host": "h"}
    assert found.tags == ("v1",)
    assert (found.records, found.parent, found.scope) == (2, "", None)
    assert result.moves == {Move.ADDED: 2}
    assert len(found.id) == len(found.record_set) == 64


def test_words_that_are_no_utf_8_are_spelled_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a terminal in Latin-1, which hands over the bytes it has."""
    latin = os.fsdecode("Andr\u00e9".encode("latin-1"))
    for number, name in enumerate(("user.name", "user.email")):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", name)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", latin)
    monkeypatch.setenv("GIT_CONFIG_COUNT", "2")
    banks.put(tmp_path, make_record(1))
    aoebank.snapshot(tmp_path, message=latin, tag="v1")
    found = _snapshot(tmp_path)
    assert (found.message, found.who) == ("Andr\\udce9", "Andr\\udce9 <Andr\\udce9>")
    aoebank.tag("v2", root=tmp_path)
    assert verify_history(tmp_path).problems == ()


def test_side_cars_and_binary_twins_belong_to_a_snapshot_and_nothing_else_does(
    tmp_path: Path,
) -> None:
    record = make_record(1)
    banks.put(tmp_path, record)
    Bank(tmp_path).append_provenance(banks.file_of(tmp_path), [make_provenance(record.key)])
    cube = tmp_path / OTHER / "cube" / f"AIC_24_L1_SIZE_512_repository_{OTHER}_matmul.json"
    cube.parent.mkdir(parents=True)
    cube.write_bytes(b"")
    cube.with_suffix(".bin").write_bytes(b"\0\xff" * 40)
    for stranger in ("README.md", f"{OTHER}/notes.txt", ".hidden/x86_1_AiCore_x.json"):
        (tmp_path / stranger).parent.mkdir(exist_ok=True)
        (tmp_path / stranger).write_text("{}")
    banks.snap(tmp_path)
    side = open_snapshot_side("latest", root=tmp_path)
    own = banks.file_of(tmp_path).relative_to(tmp_path).as_posix()
    binary_cache = cube.with_suffix(".bin").relative_to(tmp_path).as_posix()
    assert set(side.contents) == {
        own,
        f"{own}.provenance.jsonl",
        cube.relative_to(tmp_path).as_posix(),
        binary_cache,
    }
    assert side.read(side.contents[binary_cache]) == b"\0\xff" * 40


def test_nothing_new_makes_no_snapshot_but_can_tag(tmp_path: Path) -> None:
    banks.put(tmp_path, make_record(1))
    first = banks.snap_id(tmp_path)
    again = banks.snap(tmp_path, "again", minutes=5, tag="v1")
    assert again.recorded is not None
    assert not again.recorded.is_new
    assert again.recorded.snapshot.id == first
    assert _snapshot(tmp_path, "v1").id == first


def test_empty_bank_and_emptied_bank_are_states_too(tmp_path: Path) -> None:
    banks.snap(tmp_path, "empty")
    banks.put(tmp_path, make_record(1))
    banks.snap(tmp_path, "one")
    banks.file_of(tmp_path).unlink()
    result = banks.snap(tmp_path, "none")
    assert result.moves == {Move.REMOVED: 1}
    assert _snapshot(tmp_path).records == 0
    assert _snapshot(tmp_path).record_set == _snapshot(tmp_path, "latest~2").record_set


def test_broken_file_is_recorded_as_it_is_and_told(tmp_path: Path) -> None:
    file = banks.file_of(tmp_path)
    banks.put(tmp_path, make_record(1))
    file.write_bytes(file.read_bytes()[:-20])
    result = banks.snap(tmp_path)
    assert result.recorded is not None
    name = file.relative_to(tmp_path).as_posix()
    assert result.recorded.broken == (name,)
    side = open_snapshot_side("latest", root=tmp_path)
    assert side.read(side.contents[name]) == file.read_bytes()


def test_record_set_hash_does_not_depend_on_order(tmp_path: Path) -> None:
    for root in (tmp_path / "a", tmp_path / "b"):
        banks.put(root, *map(make_record, (1, 2, 3)))
        if root.name == "b":
            file = banks.file_of(root)
            parsed = load_file(file)
            raws = [parsed.raw(number) for number in (2, 0, 1)]
            file.write_bytes(b"{\n" + b",\n".join(raws) + b"\n}\n")
        banks.snap(root)
    a, b = (_snapshot(tmp_path / name) for name in "ab")
    assert a.record_set == b.record_set
    assert a.id != b.id  # the bytes are not the same


def test_record_set_hash_depends_on_the_file(tmp_path: Path) -> None:
    for name in "ab":
        banks.put(tmp_path / name, make_record(1), op=name)
        banks.snap(tmp_path / name)
    assert len({_snapshot(tmp_path / name).record_set for name in "ab"}) == 2


# ---- soc_versions ----


@pytest.fixture
def two_socs(tmp_path: Path) -> Path:
    """Return a bank for two targets, both recorded and then both changed."""
    for soc in (banks.SOC, OTHER):
        banks.put(tmp_path, make_record(1), soc=soc)
    banks.snap(tmp_path, "both")
    for soc in (banks.SOC, OTHER):
        banks.put(tmp_path, make_record(2), soc=soc)
    return tmp_path


@pytest.mark.parametrize("pattern", [OTHER, "Ascend*"])
def test_snapshot_of_one_target_keeps_the_others_as_recorded(two_socs: Path, pattern: str) -> None:
    result = banks.snap(two_socs, soc=(pattern,))
    assert result.moves == {Move.ADDED: 1}
    here = PathSide(label="", path=two_socs)
    moves = list(iter_moves(open_snapshot_side("latest", root=two_socs), here, RecordFilter()))
    assert [move.file.split("/")[0] for move in moves] == [banks.SOC]
    assert _snapshot(two_socs).scope is None  # the first one was of the whole bank


def test_first_snapshot_of_one_target_says_what_it_knows(tmp_path: Path) -> None:
    for soc in (banks.SOC, OTHER):
        banks.put(tmp_path, make_record(1), soc=soc)
    banks.snap(tmp_path, soc=(OTHER,))
    assert _snapshot(tmp_path).scope == (OTHER,)
    banks.snap(tmp_path, soc=(banks.SOC,))
    assert _snapshot(tmp_path).scope == (OTHER, banks.SOC)
    banks.snap(tmp_path)
    assert _snapshot(tmp_path).scope is None


def test_target_that_is_gone_can_still_be_recorded(two_socs: Path) -> None:
    banks.file_of(two_socs, soc=OTHER).unlink()
    assert banks.snap(two_socs, soc=(OTHER,)).moves == {Move.REMOVED: 1}


def test_preview_counts_and_writes_nothing(two_socs: Path, tmp_path: Path) -> None:
    content = history_path(two_socs).read_bytes()
    assert preview_snapshot(two_socs).moves == {Move.ADDED: 2}
    assert preview_snapshot(two_socs, soc=(OTHER,)).moves == {Move.ADDED: 1}
    assert history_path(two_socs).read_bytes() == content
    other = tmp_path / "new"
    banks.put(other, make_record(1))
    assert preview_snapshot(other).moves == {Move.ADDED: 1}
    assert not (other / ".aoebank").exists()


# ---- tampering ----


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE snapshot SET message = 'other' WHERE number = 1", "id is not the hash"),
        ("UPDATE snapshot SET who = 'Eve' WHERE number = 2", "id is not the hash"),
        ("UPDATE snapshot SET parent = 'x' WHERE number = 2", "not its parent"),
        ("UPDATE snapshot SET record_set = 'x' WHERE number = 2", "record-set hash"),
        ("UPDATE content SET record_set = 'x'", "record-set hash"),
        ("UPDATE content SET size_bytes = 1", "size"),
        ("UPDATE member SET content = 1 WHERE snapshot = 2", "id is not the hash"),
        ("DELETE FROM member WHERE snapshot = 2", "id is not the hash"),
        ("DELETE FROM snapshot WHERE number = 1", "not its parent"),
        ("UPDATE chunk SET data = zeroblob(9)", "not what was stored"),
        ("UPDATE tag SET snapshot = 'x'", "snapshot that is not there"),
    ],
)
def test_tampering_is_found(tmp_path: Path, statement: str, words: str) -> None:
    banks.put(tmp_path, make_record(1))
    banks.snap(tmp_path, "one", tag="v1")
    banks.put(tmp_path, make_record(2))
    banks.snap(tmp_path, "two")
    assert verify_history(tmp_path).problems == ()
    banks.tamper(tmp_path, statement)
    result = verify_history(tmp_path)
    assert any(words in problem for problem in result.problems), result.problems


# ---- refused, with nothing recorded ----


def test_taken_tag_keeps_the_snapshot_from_being_made(tmp_path: Path) -> None:
    banks.put(tmp_path, make_record(1))
    banks.snap(tmp_path, tag="v1")
    banks.put(tmp_path, make_record(2))
    content = history_path(tmp_path).read_bytes()
    with pytest.raises(HistoryError, match="tag exists"):
        banks.snap(tmp_path, tag="v1")
    assert history_path(tmp_path).read_bytes() == content


@pytest.mark.parametrize("suffix", ["", ".provenance.jsonl"])
def test_file_that_cannot_be_read_is_an_error_and_not_left_out(tmp_path: Path, suffix: str) -> None:
    banks.put(tmp_path, make_record(1))
    banks.snap(tmp_path)
    file = banks.file_of(tmp_path, "LRN")
    file.with_name(file.name + suffix).symlink_to(tmp_path / "nowhere")
    content = history_path(tmp_path).read_bytes()
    with pytest.raises(BankPathError, match="link to nowhere"):
        banks.snap(tmp_path)
    assert history_path(tmp_path).read_bytes() == content


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
@pytest.mark.parametrize("place", ["", ".provenance.jsonl", ".."])
def test_closed_file_or_folder_is_an_error(tmp_path: Path, place: str) -> None:
    record = make_record(1)
    banks.put(tmp_path, record)
    file = banks.file_of(tmp_path)
    Bank(tmp_path).append_provenance(file, [make_provenance(record.key)])
    closed = file.parent if place == ".." else file.with_name(file.name + place)
    closed.chmod(0)
    try:
        with pytest.raises(BankPathError, match="cannot be read"):
            banks.snap(tmp_path)
    finally:
        closed.chmod(0o700)


def test_stranger_that_cannot_be_read_is_nobody_s_business(tmp_path: Path) -> None:
    banks.put(tmp_path, make_record(1))
    (tmp_path / "notes").symlink_to(tmp_path / "nowhere")
    banks.snap(tmp_path)
    assert _snapshot(tmp_path).records == 1
