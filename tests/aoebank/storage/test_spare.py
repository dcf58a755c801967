"""A bank that takes no more in the middle of a run: both parts of a write, and the second bank."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.faulty_system import FaultySystem

from aoebank import (
    Bank,
    BankPathError,
    BankWithSpare,
    Event,
    Provenance,
    Record,
    SpareBank,
    make_graph_record,
    merge,
    validate,
)
from aoebank.testing.factories import make_provenance, make_record


def _pair(number: int, **changes: Any) -> tuple[Record, Provenance]:
    record = make_record(number, **changes)
    return record, make_provenance(key=record.key, event=Event.ADD)


@dataclass
class World:
    """A bank of a run and what it has said."""

    root: Path
    spare: SpareBank = field(default_factory=SpareBank)
    told: list[str] = field(default_factory=list)

    def open(self) -> BankWithSpare:
        """Return the bank of one mode of the run."""
        return BankWithSpare(self.root / "bank", self.spare, self.root / "out", self.told.append)

    def file(self, bank: Bank) -> Path:
        """Return the file of the records."""
        return bank.unified_file(soc_version="x86-64-v4", core_num=2, op_type="Softmax")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> FaultySystem:
    return FaultySystem(monkeypatch)


@pytest.mark.parametrize("is_new", [True, False])
def test_record_is_not_stored_where_its_line_cannot_be(
    world: World, faulty: FaultySystem, is_new: bool
) -> None:
    bank = Bank(world.root / "bank")
    file = world.file(bank)
    if not is_new:
        bank.put(file, [_pair(1)[0]], [_pair(1)[1]])
    before = {path: path.read_bytes() for path in bank.root.rglob("*") if path.is_file()}
    record, line = _pair(2)
    faulty.fill(bank.root, after=1)  # the record is on disk beside its file, its line is not
    with pytest.raises(BankPathError, match="no space left"):
        bank.put(file, [record], [line])
    assert {path: path.read_bytes() for path in bank.root.rglob("*") if path.is_file()} == before


def test_all_of_a_run_is_found_again_and_merged_back(
    world: World, faulty: FaultySystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        earlier = Bank(world.root / "out")  # of an earlier run: what it says is no part of this one
        old, old_line = _pair(1, cost_us=77.0)
        earlier.put(world.file(earlier), [old], [old_line])
        bank = world.open()
        file = world.file(bank)
        pairs = [_pair(number) for number in (1, 2, 3)]
        bank.put(file, [pairs[0][0]], [pairs[0][1]])
        FaultySystem(patch).fill(bank.root)
        bank.put(file, [pairs[1][0]], [pairs[1][1]])
        next_mode = world.open()
        next_mode.put(file, [pairs[2][0]], [pairs[2][1]])
        next_mode.append_provenance(file, [make_provenance(key=pairs[0][0].key, event=Event.KEPT)])
        for one in (bank, next_mode):
            keys = [record.key for record in one.iter_records(file)]
            assert sorted(keys) == sorted(record.key for record, _ in pairs)
            assert [one.find(file, record.key) is not None for record, _ in pairs] == [True] * 3
            found = one.find(file, pairs[0][0].key)
            assert found is not None
            assert found.cost_us == pairs[0][0].cost_us
            events = [line.event for line in one.iter_provenance(file, pairs[0][0].key)]
            assert events == [Event.ADD, Event.KEPT]
            assert [*one.iter_provenance(file, pairs[2][0].key)] == [pairs[2][1]]
    assert len(world.told) == 1
    assert world.spare.failure is not None
    assert str(file) in world.spare.failure.headline
    assert "no space left on device" in world.spare.failure.headline
    own, second = world.root / "bank", world.root / "out"
    assert f"aoebank merge {own} {second} -o {own}" in world.spare.failure.hint
    earlier.remove(world.file(earlier), [old.key])
    merge(own, second, output=own)
    assert len([*Bank(own).iter_records(file)]) == 3
    assert not validate([own]).findings


def test_subgraphs_beside_the_default_root_have_their_place_in_the_second_bank(
    tmp_path: Path, faulty: FaultySystem
) -> None:
    root = tmp_path / "Ascend/latest/data/aoe/custom/op"
    bank = BankWithSpare(root, SpareBank(), tmp_path / "out", lambda _: None)
    record = make_graph_record(
        graph_id="7",
        feature=[{"struct": [{"op": "Relu"}]}],
        groups=[{"cut": [1], "fusionType": [False], "scopeId": [-1], "ubPass": {}}],
        end_to_end_ns=80910,
    )
    faulty.fill(root.parent)
    bank.put(bank.graph_file("x86-64-v4"), [record])
    assert bank.find(bank.graph_file("x86-64-v4"), "7") is not None
    assert Bank(tmp_path / "out").graph_file("x86-64-v4").is_file()


def _read_only(faulty: FaultySystem, root: Path) -> None:
    """The file system of the bank is read-only from now on: even its locks cannot be opened."""

    def act(path: Any, how: Any = "r", *_: Any) -> None:
        writes = how & (os.O_RDWR | os.O_CREAT) if isinstance(how, int) else "x" in how
        if writes and Path(path).is_relative_to(root):
            raise OSError(errno.EROFS, "Read-only file system", str(path))

    faulty.before("os.open", act)
    faulty.before("Path.open", act)


def _away(faulty: FaultySystem, root: Path) -> None:
    """The bank is gone, and nothing can be made in its place."""
    root.rename(root.with_name("elsewhere"))
    root.write_text("no folder")


@pytest.mark.parametrize("happens", [_read_only, _away])
def test_other_ways_to_lose_a_bank_lose_no_record_of_the_run(
    world: World, faulty: FaultySystem, happens: Callable[[FaultySystem, Path], None]
) -> None:
    bank = world.open()
    file = world.file(bank)
    record, line = _pair(1)
    bank.put(file, [record], [line])
    happens(faulty, bank.root)
    record, line = _pair(2)
    bank.put(file, [record], [line])
    assert bank.find(file, record.key) is not None
    assert [*bank.iter_provenance(file, record.key)] == [line]
    assert world.spare.failure is not None


def test_bank_and_results_on_one_full_disk_are_both_named(
    world: World, faulty: FaultySystem
) -> None:
    bank = world.open()
    faulty.fill(world.root)
    with pytest.raises(BankPathError, match="no space left") as raised:
        bank.put(world.file(bank), [_pair(1)[0]])
    assert raised.value.path == world.file(bank)
    assert str(world.root / "out") in raised.value.hint
    assert world.spare.failure is None
