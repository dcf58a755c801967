"""A snapshot read like any other side."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import version_banks as banks

from aoebank import Bank, HistoryError
from aoebank.storage.sides.open import open_side
from aoebank.storage.sides.side import Side, SideKind
from aoebank.testing.factories import make_provenance, make_record

FILE = "x86-64-v4/unified_bank/x86-64-v4_2_AiCore_Softmax.json"


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    """Return the root of a bank that was changed after its snapshot `v1`."""
    root = tmp_path / "bank"
    record = make_record(1)
    banks.put(root, record, make_record(2))
    Bank(root).append_provenance(banks.file_of(root), [make_provenance(record.key)])
    banks.snap(root, tag="v1")
    banks.put(root, make_record(3))
    banks.put(root, make_record(1), op="LRN")
    return root


def _side(text: str, cwd: Path) -> Side:
    return open_side(text, cwd=cwd, default_root=lambda: cwd / "bank")


@pytest.mark.parametrize("text", ["snapshot:v1", "snapshot:v1:bank", "snapshot:latest:./bank"])
def test_snapshot_is_a_tree_as_it_was(bank: Path, text: str) -> None:
    side = _side(text, bank.parent)
    assert side.kind is SideKind.SNAPSHOT
    assert side.is_tree
    assert side.names() == (FILE,)
    assert side.label == f"snapshot:{text.split(':')[1]}"
    parsed = side.load(FILE)
    assert parsed is not None
    assert sorted(parsed.keys) == sorted(make_record(number).key for number in (1, 2))
    assert [entry.key for entry in side.load_provenance(FILE).entries] == [make_record(1).key]
    assert side.load("absent.json") is None
    assert side.load_provenance("absent.json").entries == ()


def test_root_with_colons_and_spaces_is_a_root(tmp_path: Path) -> None:
    root = tmp_path / "a bank: of mine%20?#"
    banks.put(root, make_record(1))
    banks.snap(root, tag="v1")
    assert _side(f"snapshot:v1:{root}", tmp_path).names() == (FILE,)


@pytest.mark.parametrize("text", ["snapshot:v9", "snapshot:v1:elsewhere", "snapshot:latest~1"])
def test_what_the_history_does_not_have_is_one_clear_error(bank: Path, text: str) -> None:
    with pytest.raises(HistoryError):
        _side(text, bank.parent)
    assert not (bank.parent / "elsewhere").exists()


def test_names_that_are_not_utf_8_come_back(tmp_path: Path) -> None:
    name = b"x86_2_AiCore_\xff.json".decode("utf-8", "surrogateescape")
    try:
        (tmp_path / name).write_bytes(b"{\n}\n")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    banks.snap(tmp_path, tag="v1")
    side = _side(f"snapshot:v1:{tmp_path}", tmp_path)
    assert side.names() == (name,)
    assert side.load(name) is not None


def test_snapshot_without_a_root_is_of_the_bank_the_other_side_lies_in(
    bank: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    banks.put(elsewhere, make_record(7), op="Elu")
    banks.snap(elsewhere, tag="v1")
    for beside in (bank, bank / FILE):
        side = open_side(
            "snapshot:v1", beside=str(beside), cwd=tmp_path, default_root=lambda: elsewhere
        )
        assert FILE in side.names()
    side = open_side("snapshot:v1", beside="git:v1", cwd=tmp_path, default_root=lambda: elsewhere)
    assert FILE not in side.names()


def test_snapshot_beside_a_folder_of_a_bank_is_of_that_folder(bank: Path, tmp_path: Path) -> None:
    folder = bank / FILE.partition("/")[0]
    side = open_side("snapshot:v1", beside=str(folder), cwd=tmp_path, default_root=lambda: bank)
    assert side.names() == (FILE.partition("/")[2],)
    loaded = side.load(side.names()[0])
    assert loaded is not None
    assert len(loaded)


def test_snapshot_beside_a_path_without_a_history_is_of_the_default_bank(
    bank: Path, tmp_path: Path
) -> None:
    (tmp_path / "plain").mkdir()
    side = open_side("snapshot:v1", beside="plain", cwd=tmp_path, default_root=lambda: bank)
    assert FILE in side.names()
