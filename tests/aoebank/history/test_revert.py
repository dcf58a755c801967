"""Taking back one version: its records, if nobody touched them since."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import version_banks as banks

from aoebank import BankPathError
from aoebank.history.edits import carry_out
from aoebank.history.restore import RevertPlan, plan_revert
from aoebank.model.quarantine import QuarantineEntry
from aoebank.selection import RecordFilter
from aoebank.storage.history.database import history_path
from aoebank.storage.sides.snapshots import get_snapshot
from aoebank.testing.factories import make_record

ALL = RecordFilter()
K1, K2, K3, K4 = (make_record(number).key for number in (1, 2, 3, 4))


def _revert(root: Path, reference: str, wanted: RecordFilter = ALL) -> RevertPlan:
    plan = plan_revert(root, reference, wanted)
    carry_out(plan, banks.author(99))
    return plan


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    """Return a bank after a bad drop (`drop`) that changed 1, removed 2 and added 3."""
    for op in ("Softmax", "LRN"):
        banks.put(tmp_path, make_record(1), make_record(2), op=op)
    banks.snap(tmp_path, "good")
    for op in ("Softmax", "LRN"):
        banks.put(tmp_path, make_record(1, tile=99, cost_us=9.0), make_record(3), op=op)
        banks.drop(tmp_path, make_record(2), op=op)
    banks.snap(tmp_path, "drop", tag="drop")
    return tmp_path


def test_revert_of_the_latest_version_gives_the_one_before(bank: Path) -> None:
    plan = _revert(bank, "drop")
    for op in ("Softmax", "LRN"):
        assert banks.costs(bank, op) == {K1: 11.5, K2: 12.5}
    assert len(plan.taken_back) == 6
    assert not plan.conflicts
    latest = get_snapshot("latest", root=bank)
    assert latest.message.startswith("revert snapshot:")
    assert latest.record_set == get_snapshot("latest~2", root=bank).record_set


def test_later_work_stays(bank: Path) -> None:
    banks.put(bank, make_record(4))
    _revert(bank, "drop")
    assert banks.costs(bank) == {K1: 11.5, K2: 12.5, K4: 14.5}


def test_record_touched_since_is_a_conflict_and_stays(bank: Path) -> None:
    banks.put(bank, make_record(1, tile=50, cost_us=5.0))  # tuned again
    banks.put(bank, make_record(2, tile=50, cost_us=6.0))  # came back as another one
    banks.drop(bank, make_record(3))  # removed by hand
    plan = _revert(bank, "drop")
    assert banks.costs(bank) == {K1: 5.0, K2: 6.0}
    assert banks.costs(bank, "LRN") == {K1: 11.5, K2: 12.5}
    assert {conflict.move.key for conflict in plan.conflicts} == {K1, K2}
    assert plan.done == 1  # number 3 is gone already, as it was before


def test_other_spelling_is_no_conflict(bank: Path) -> None:
    file = banks.file_of(bank)
    file.write_bytes(file.read_bytes().replace(b": ", b" :  ").replace(b" :  [{", b": [{"))
    assert not _revert(bank, "drop").conflicts


@pytest.mark.parametrize(
    ("wanted", "softmax", "lrn"),
    [
        (RecordFilter(op=("LRN",)), {K1: 9.0, K3: 13.5}, {K1: 11.5, K2: 12.5}),
        (RecordFilter(key=(K1,)), {K1: 11.5, K3: 13.5}, {K1: 11.5, K3: 13.5}),
        (
            RecordFilter(op=("Soft*",), key=(K2[:6],)),
            {K1: 9.0, K2: 12.5, K3: 13.5},
            {K1: 9.0, K3: 13.5},
        ),
    ],
)
def test_part_of_a_version_can_be_taken_back(
    bank: Path, wanted: RecordFilter, softmax: dict[str, float], lrn: dict[str, float]
) -> None:
    _revert(bank, "drop", wanted)
    assert banks.costs(bank) == softmax
    assert banks.costs(bank, "LRN") == lrn


def test_first_version_can_be_taken_back_too(tmp_path: Path) -> None:
    banks.put(tmp_path, make_record(1))
    banks.snap(tmp_path)
    banks.put(tmp_path, make_record(2))
    _revert(tmp_path, "latest")
    assert banks.costs(tmp_path) == {K2: 12.5}


def test_file_a_version_brought_goes_when_nothing_is_left_in_it(tmp_path: Path) -> None:
    banks.put(tmp_path, make_record(1))
    banks.snap(tmp_path)
    banks.put(tmp_path, make_record(1), op="New")
    banks.snap(tmp_path)
    _revert(tmp_path, "latest")
    assert not banks.file_of(tmp_path, "New").exists()


def test_file_a_version_removed_comes_back(tmp_path: Path) -> None:
    banks.put(tmp_path, make_record(1))
    banks.snap(tmp_path)
    banks.file_of(tmp_path).unlink()
    banks.snap(tmp_path)
    _revert(tmp_path, "latest")
    assert banks.costs(tmp_path) == {K1: 11.5}


def test_plan_writes_nothing(bank: Path) -> None:
    before, content = banks.state(bank), history_path(bank).read_bytes()
    assert plan_revert(bank, "drop", ALL).edits
    assert (banks.state(bank), history_path(bank).read_bytes()) == (before, content)


def test_reverting_a_revert_brings_the_drop_back(bank: Path) -> None:
    dropped = banks.costs(bank)
    _revert(bank, "drop")
    _revert(bank, "latest")
    assert banks.costs(bank) == dropped
    plan = plan_revert(bank, "latest~1", ALL)
    assert (plan.taken_back, plan.done) == ((), 6)


def test_file_changed_meanwhile_is_an_error(bank: Path) -> None:
    plan = plan_revert(bank, "drop", RecordFilter(op=("LRN",)))
    banks.put(bank, make_record(4), op="LRN")
    before = banks.state(bank)
    with pytest.raises(BankPathError, match="changed meanwhile"):
        carry_out(plan, banks.author())
    assert banks.state(bank) == before


def test_record_in_quarantine_does_not_come_back(bank: Path) -> None:
    entry = QuarantineEntry(
        key=K2, reason="hangs", who="Ann", when="2026-01-02T03:04:05Z", op_type="Softmax"
    )
    banks.keep_out(bank, entry)
    plan = plan_revert(bank, "drop", ALL, today=date(2026, 1, 1))
    carry_out(plan, banks.author())
    assert banks.costs(bank) == {K1: 11.5}
    assert banks.costs(bank, "LRN") == {K1: 11.5, K2: 12.5}
    (conflict,) = plan.conflicts
    assert conflict.quarantine == entry


STATE = st.dictionaries(st.integers(0, 4), st.integers(1, 2), max_size=4)


def _write(root: Path, state: dict[int, int]) -> None:
    if banks.file_of(root).exists():
        banks.drop(root, *map(make_record, range(5)))
    banks.put(root, *(make_record(number, tile=tile) for number, tile in state.items()))


@given(before=STATE, after=STATE, now=STATE)
def test_each_record_goes_back_exactly_when_it_is_as_the_version_left_it(
    tmp_path_factory: pytest.TempPathFactory,
    before: dict[int, int],
    after: dict[int, int],
    now: dict[int, int],
) -> None:
    if before == after:
        return
    root = tmp_path_factory.mktemp("bank")
    for state in (before, after):
        _write(root, state)
        banks.snap(root)
    number = "latest"
    identity = get_snapshot(number, root=root).id
    _write(root, now)
    expected, conflicts = dict(now), set()
    for key in range(5):
        if before.get(key) == after.get(key) or now.get(key) == before.get(key):
            continue
        if now.get(key) != after.get(key):
            conflicts.add(make_record(key).key)
        elif key in before:
            expected[key] = before[key]
        else:
            expected.pop(key)
    plan = _revert(root, identity)
    assert {conflict.move.key for conflict in plan.conflicts} == conflicts
    parsed = Path(banks.file_of(root))
    found = {}
    if parsed.exists():
        from aoebank.storage.bank import load_file

        for record in load_file(parsed).iter_records():
            found[record.key] = record.strategy["tile"][0]  # type: ignore[index,call-overload]
    assert found == {make_record(key).key: tile for key, tile in expected.items()}
