"""`Bank.put` writes nothing its own reader would not take, and nothing outside of its bank."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from support import merge_files
from support import sample_bank_files as samples
from support.merge_files import NAMES, Answer, make_file

from aoebank import Bank, BankFormatError, BankPathError, Record
from aoebank.storage.bank import load_file
from aoebank.testing.factories import make_record


def record_of(name: str) -> Record:
    """Return a record of a format as a file has it."""
    return next(merge_files.get(name, make_file(name, {0: Answer()})).iter_records())


def state(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("name", "other"), [*product(NAMES, NAMES)])
@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("is_fresh", [True, False])
def test_record_of_another_format_is_refused_and_its_own_is_stored(
    tmp_path: Path, name: str, other: str, is_new: bool, is_fresh: bool
) -> None:
    file = tmp_path / NAMES[name]
    if not is_new:
        file.write_bytes(make_file(name, {1: Answer()}))
    before = state(tmp_path)
    record = record_of(other)
    record = replace(record, origin=record.origin) if is_fresh else record  # without its bytes
    if name == other:
        Bank(tmp_path).put(file, [record])
        assert load_file(file).find(record.key) is not None
    else:
        with pytest.raises(BankFormatError, match="another format"):
            Bank(tmp_path).put(file, [record])
        assert state(tmp_path) == before


@pytest.mark.parametrize("path", samples.ALL, ids=lambda path: path.name[-30:])
def test_records_of_a_file_go_back_into_it(tmp_path: Path, path: Path) -> None:
    file = tmp_path / path.name
    file.write_bytes(path.read_bytes())
    Bank(tmp_path).put(file, [*load_file(file).iter_records()])
    assert file.read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("change", "words"),
    [({"soc_version": "Ascend310P3"}, "soc_version"), ({"op_type": "conv2d"}, "op_type")],
)
def test_record_for_another_target_is_refused(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    file = tmp_path / NAMES["unified"]
    with pytest.raises(BankFormatError, match=f"another {words}"):
        Bank(tmp_path).put(file, [replace(record_of("unified"), **change)])
    assert state(tmp_path) == {}


@pytest.mark.parametrize("depth", [95, 96, 97, 98, 99, 100, 101, 200])
@pytest.mark.parametrize("name", ["unified", "vector", "graph", "runtime_kb", "cube"])
def test_what_is_stored_can_be_read_however_deep_it_is(
    tmp_path: Path, name: str, depth: int
) -> None:
    deep: Any = 1
    for _ in range(depth):
        deep = {"a": deep}
    record = record_of(name)
    file = tmp_path / NAMES[name]
    file.write_bytes(make_file(name, {1: Answer()}))
    before = file.read_bytes()
    try:
        Bank(tmp_path).put(file, [replace(record, strategy=deep)])
    except BankFormatError:
        assert file.read_bytes() == before
        assert depth > 90
    else:
        found = Bank(tmp_path).find(file, record.key)
        assert found is not None
        assert found.strategy == deep


def test_record_whose_key_is_not_its_own_is_refused(tmp_path: Path) -> None:
    file = tmp_path / NAMES["runtime_kb"]
    with pytest.raises(BankFormatError, match="not be found again"):
        Bank(tmp_path).put(file, [replace(record_of("runtime_kb"), key="0" * 32)])
    assert state(tmp_path) == {}


@pytest.mark.parametrize("place", ["../out.json", "a/../../out.json", "/out.json"])
def test_file_outside_of_the_root_is_refused(tmp_path: Path, place: str) -> None:
    bank = Bank(tmp_path / "bank")
    with pytest.raises(BankPathError, match="outside"):
        bank.put(bank.root / place, [make_record()])
    assert state(tmp_path) == {}


def test_root_may_be_relative_or_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    for root in (Path("real"), Path("link"), tmp_path / "link"):
        bank = Bank(root)
        file = bank.unified_file(soc_version="x86-64-v4", core_num=2, op_type="Softmax")
        bank.put(file, [make_record()])
        bank.put(file.absolute(), [make_record(2)])
    assert len(load_file(file)) == 2
