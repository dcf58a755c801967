"""Going back to a version: whole, or a part; nothing is lost on the way."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import version_banks as banks
from support.faulty_system import FaultySystem

from aoebank import Bank, BankFormatError, BankPathError, BankPermissionError, HistoryError
from aoebank.history.changes import Move, count_moves
from aoebank.history.edits import Kept, carry_out
from aoebank.history.restore import RestorePlan, plan_restore
from aoebank.model.digest import digest_of
from aoebank.model.quarantine import QuarantineEntry
from aoebank.selection import RecordFilter
from aoebank.storage.bank import load_file
from aoebank.storage.history.database import history_path
from aoebank.storage.sides.snapshots import get_snapshot, open_snapshot_side
from aoebank.testing.factories import make_provenance, make_record

OTHER = "Ascend910B2"
ALL = RecordFilter()


def _restore(root: Path, reference: str, wanted: RecordFilter = ALL, **options: Any) -> RestorePlan:
    plan = plan_restore(root, reference, wanted, **options)
    carry_out(plan, banks.author(99))
    return plan


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    """Return a bank recorded as `v1` and changed since in every way, unrecorded."""
    for op in ("Softmax", "LRN"):
        for soc in (banks.SOC, OTHER):
            banks.put(tmp_path, make_record(1), make_record(2), op=op, soc=soc)
    Bank(tmp_path).append_provenance(banks.file_of(tmp_path), [make_provenance(make_record(1).key)])
    banks.snap(tmp_path, tag="v1")
    for op in ("Softmax", "LRN"):
        banks.put(tmp_path, make_record(1, tile=99), make_record(3), op=op)
        banks.drop(tmp_path, make_record(2), op=op)
    banks.put(tmp_path, make_record(1), op="Elu")
    banks.file_of(tmp_path, soc=OTHER).unlink()
    Bank(tmp_path).append_provenance(banks.file_of(tmp_path), [make_provenance(make_record(3).key)])
    return tmp_path


def _recorded(root: Path, reference: str) -> dict[str, bytes]:
    side = open_snapshot_side(reference, root=root)
    return {name: side.read(stored) for name, stored in side.contents.items()}


def _here(root: Path) -> dict[str, bytes]:
    return {name: (root / name).read_bytes() for name in banks.state(root)}


def test_whole_bank_comes_back_byte_for_byte(bank: Path) -> None:
    before = _here(bank)
    plan = _restore(bank, "v1")
    assert _here(bank) == _recorded(bank, "v1")
    assert not banks.file_of(bank, "Elu").exists()
    assert count_moves(iter(plan.moves)) == {Move.ADDED: 4, Move.REMOVED: 3, Move.CHANGED: 2}
    assert _recorded(bank, "latest~1") == before  # the state before is not lost
    assert _recorded(bank, "latest") == _here(bank)
    assert get_snapshot("latest", root=bank).message.startswith("restore snapshot:")
    _restore(bank, "latest~1")
    assert _here(bank) == before


def test_recorded_state_is_not_recorded_again(bank: Path) -> None:
    banks.snap(bank, "mine")
    plan = plan_restore(bank, "v1", ALL)
    kept = carry_out(plan, banks.author())
    assert kept is not None
    assert kept.before is None
    assert kept.after is not None
    assert get_snapshot("latest~1", root=bank).message == "mine"


def test_plan_writes_nothing(bank: Path) -> None:
    before, content = banks.state(bank), history_path(bank).read_bytes()
    assert plan_restore(bank, "v1", ALL).edits
    assert (banks.state(bank), history_path(bank).read_bytes()) == (before, content)


def test_state_that_is_there_already_needs_nothing(bank: Path) -> None:
    banks.snap(bank)
    plan = plan_restore(bank, "latest", ALL)
    assert (plan.edits, plan.moves) == ((), ())
    assert carry_out(plan, banks.author()) == Kept()


@pytest.mark.parametrize(
    ("wanted", "files"),
    [
        (RecordFilter(soc=(OTHER,)), {(OTHER, "Softmax")}),
        (RecordFilter(soc=("x86*",)), {(banks.SOC, op) for op in ("Softmax", "LRN", "Elu")}),
        (RecordFilter(op=("LRN",)), {(banks.SOC, "LRN")}),
        (
            RecordFilter(soc=(banks.SOC,), op=("L*", "Elu")),
            {(banks.SOC, "LRN"), (banks.SOC, "Elu")},
        ),
    ],
)
def test_part_comes_back_and_the_rest_stays(
    bank: Path, wanted: RecordFilter, files: set[tuple[str, str]]
) -> None:
    before, then = _here(bank), _recorded(bank, "v1")
    _restore(bank, "v1", wanted)
    names = {banks.file_of(bank, op, soc).relative_to(bank).as_posix() for soc, op in files}
    for name in {*before, *then, *_here(bank)}:
        source = then if name.removesuffix(".provenance.jsonl") in names else before
        assert _here(bank).get(name) == source.get(name), name


def test_one_record_comes_back_and_its_neighbours_stay(bank: Path) -> None:
    before = _here(bank)
    key = make_record(2).key
    plan = _restore(bank, "v1", RecordFilter(soc=(banks.SOC,), op=("Softmax",), key=(key[:8],)))
    assert [(move.key, move.kind) for move in plan.moves] == [(key, Move.ADDED)]
    expected = {make_record(number).key for number in (1, 2, 3)}
    assert set(banks.costs(bank)) == expected
    changed = {name for name in before if _here(bank).get(name) != before[name]}
    assert changed == {banks.file_of(bank).relative_to(bank).as_posix()}  # no side-car
    then = open_snapshot_side("v1", root=bank).load(next(iter(changed)))
    here = open_snapshot_side("latest", root=bank).load(next(iter(changed)))
    assert then is not None and here is not None
    assert here.raw(here.find(key) or 0) == then.raw(then.find(key) or 0)


def test_record_the_version_does_not_have_goes(bank: Path) -> None:
    _restore(bank, "v1", RecordFilter(key=(make_record(3).key,)))
    for op in ("Softmax", "LRN"):
        assert set(banks.costs(bank, op)) == {make_record(1).key}


def test_record_of_a_file_that_is_gone_gets_its_file_back(bank: Path) -> None:
    _restore(bank, "v1", RecordFilter(soc=(OTHER,), key=(make_record(1).key,)))
    assert set(banks.costs(bank, soc=OTHER)) == {make_record(1).key}


def test_target_the_snapshot_does_not_know_stays(tmp_path: Path) -> None:
    for soc in (banks.SOC, OTHER):
        banks.put(tmp_path, make_record(1), soc=soc)
    banks.snap(tmp_path, soc=(OTHER,))
    banks.put(tmp_path, make_record(2), soc=banks.SOC)
    banks.put(tmp_path, make_record(2), soc=OTHER)
    plan = _restore(tmp_path, "latest")
    assert plan.unknown == (banks.file_of(tmp_path).relative_to(tmp_path).as_posix(),)
    assert len(banks.costs(tmp_path)) == 2
    assert len(banks.costs(tmp_path, soc=OTHER)) == 1


def test_broken_file_can_be_replaced_whole_but_not_in_part(bank: Path) -> None:
    file = banks.file_of(bank)
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(BankFormatError):
        plan_restore(bank, "v1", RecordFilter(key=(make_record(2).key,)))
    _restore(bank, "v1")
    assert set(banks.costs(bank)) == {make_record(1).key, make_record(2).key}


def test_file_changed_meanwhile_stays_and_nothing_is_lost(bank: Path) -> None:
    plan = plan_restore(bank, "v1", RecordFilter(soc=(banks.SOC,), op=("Softmax",)))
    banks.put(bank, make_record(7))
    before = _here(bank)
    with pytest.raises(BankPathError, match="changed meanwhile"):
        carry_out(plan, banks.author())
    assert _here(bank) == before


def test_place_that_cannot_be_written_is_one_clear_error(bank: Path, system: FaultySystem) -> None:
    before = _here(bank)
    plan = plan_restore(bank, "v1", ALL)
    system.fail("os.fsync", PermissionError(13, "Permission denied"))
    with pytest.raises(BankPermissionError):
        carry_out(plan, banks.author())
    assert _recorded(bank, "latest") == before  # recorded before the first write


# ---- quarantine ----


def _quarantine(root: Path) -> None:
    record = make_record(1)
    entry = QuarantineEntry(
        key=record.key,
        reason="aicore error",
        who="Ann",
        when="2026-01-02T03:04:05Z",
        strategy_sha256=digest_of(record.strategy),
        until=date(2026, 6, 30),
    )
    banks.keep_out(root, entry)


def test_record_in_quarantine_does_not_come_back(bank: Path) -> None:
    _quarantine(bank)
    plan = _restore(bank, "v1", today=date(2026, 6, 30))
    assert {kept.key for kept in plan.kept_out} == {make_record(1).key}
    assert len(plan.kept_out) == 4
    for op in ("Softmax", "LRN"):
        for soc in (banks.SOC, OTHER):
            assert set(banks.costs(bank, op, soc)) == {make_record(2).key}


@pytest.mark.parametrize("today", [None, date(2026, 7, 1)])
def test_expired_quarantine_or_none_asked_for_brings_all_back(
    bank: Path, today: date | None
) -> None:
    _quarantine(bank)
    plan = _restore(bank, "v1", today=today)
    assert plan.kept_out == ()
    assert _here(bank) == _recorded(bank, "v1")


def test_broken_quarantine_stops_a_restore(bank: Path) -> None:
    _quarantine(bank)
    (bank / ".aoebank" / "quarantine.jsonl").write_text("<<<<<<< HEAD\n")
    before = banks.state(bank)
    with pytest.raises(BankFormatError, match=r"quarantine.jsonl:1:1"):
        plan_restore(bank, "v1", ALL, today=date(2026, 1, 1))
    assert banks.state(bank) == before


def test_record_in_quarantine_cannot_leave_a_file_with_a_twin(tmp_path: Path) -> None:
    cube = tmp_path / OTHER / "cube" / f"AIC_24_L1_SIZE_512_repository_{OTHER}_matmul.json"
    cube.parent.mkdir(parents=True)
    cube.write_text('{"shape": {"op_type": "matmul"}, "tiling": [1], "cost_time": 5.0}\n')
    cube.with_suffix(".bin").write_bytes(b"x")
    (key,) = load_file(cube).keys
    banks.snap(tmp_path, tag="v1")
    before = _here(tmp_path)
    for path in (cube, cube.with_suffix(".bin")):
        path.unlink()
    entry = QuarantineEntry(key=key, reason="x", who="Ann", when="2026-01-02T03:04:05Z")
    banks.keep_out(tmp_path, entry)
    with pytest.raises(BankPathError, match="twin"):
        plan_restore(tmp_path, "v1", ALL, today=date(2026, 1, 1))
    _restore(tmp_path, "v1")
    assert _here(tmp_path) == before


# ---- laws ----

STATES = st.lists(
    st.dictionaries(st.integers(0, 5), st.integers(1, 3), max_size=5), min_size=2, max_size=4
)


@pytest.mark.slow
@given(states=STATES, data=st.data())
def test_every_state_comes_back_from_every_other(
    tmp_path_factory: pytest.TempPathFactory, states: list[dict[int, int]], data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("bank")
    seen = []
    for number, state in enumerate(states):
        for op in ("A", "B"):
            if banks.file_of(root, op).exists():
                banks.drop(root, *map(make_record, range(6)), op=op)
        for key, tile in state.items():
            banks.put(root, make_record(key, tile=tile), op="AB"[key % 2])
        seen.append((banks.snap_id(root, str(number)), _here(root)))
    for _ in range(3):
        identity, expected = data.draw(st.sampled_from(seen))
        _restore(root, identity)
        assert _here(root) == expected


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE member SET name = CAST(name || x'78' AS BLOB) WHERE snapshot = 1",
        "UPDATE member SET content = (SELECT max(id) FROM content) WHERE snapshot = 1",
        "DELETE FROM member WHERE snapshot = 1",
        "UPDATE content SET record_set = 'x'",
        "UPDATE content SET format = ''",
        "UPDATE snapshot SET scope = '[]' WHERE number = 1",
        "UPDATE snapshot SET record_set = 'x' WHERE number = 1",
    ],
)
def test_damaged_snapshot_restores_nothing(bank: Path, statement: str) -> None:
    id_ = get_snapshot("latest", root=bank).id
    banks.put(bank, make_record(77))
    banks.snap(bank, "more")
    banks.tamper(bank, statement)
    before = _here(bank)
    with pytest.raises(HistoryError):
        _restore(bank, id_)
    assert _here(bank) == before
