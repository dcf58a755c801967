"""The journal of a run: what all lines share, and which of them are believed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.engine.fakes import make_target
from support.engine.tuning import make_estimate
from support.version_banks import keep_out

from aoe.bank.journal import BankJournal, Note, machine_fingerprint
from aoe.measurement import Clock
from aoebank import Bank, Event, make_gradient_record
from aoebank.model.quarantine import QuarantineEntry

_HERE = {"cpu_model": "this one"}


def _journal(root: Path, **fingerprint: Any) -> BankJournal:
    return BankJournal(
        root,
        "x86-64-test",
        fingerprint={**_HERE, **fingerprint},
        model={"name": "net"},
        engine_version="1.2",
        clock=lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    )


def _note(event: Event, **changes: Any) -> Note:
    return Note(key="7", event=event, **changes)


def test_line_says_who_measured_when_and_where(tmp_path: Path) -> None:
    file = tmp_path / "bank.json"
    note = _note(
        Event.ADD,
        estimate=make_estimate(1.23456, 0.01),
        baseline_us=[10.00049],
        tuned_us=[8.0],
        cluster={"world_size": 4},
        search={"seed": 3},
    )
    _journal(tmp_path).append(file, [note])
    (line,) = Bank(tmp_path).iter_provenance(file)
    assert (line.key, line.event, line.time) == ("7", Event.ADD, "2026-01-02T03:04:05Z")
    assert line.engine == "aoe 1.2"
    assert line.fingerprint == {"cpu_model": "this one", "world_size": 4}
    assert line.model == {"name": "net"}
    assert (line.speedup_low, line.speedup, line.speedup_high) == (1.2246, 1.2346, 1.2446)
    assert (line.baseline_us, line.tuned_us) == ((10.0,), (8.0,))
    assert line.search == {"seed": 3}


def test_line_names_cpu_time_where_that_has_decided(tmp_path: Path) -> None:
    file = tmp_path / "bank.json"
    _journal(tmp_path).append(file, [_note(Event.ADD, clock=clock) for clock in Clock])
    searches = [line.search for line in Bank(tmp_path).iter_provenance(file)]
    assert [search.get("clock") for search in searches] == [None, "cpu"]


@pytest.mark.parametrize(
    ("events", "failed"),
    [
        ([], False),
        ([Event.UNSATISFIED], True),
        ([Event.UNSATISFIED, Event.ADD], False),
        ([Event.UPDATE, Event.UNSATISFIED], True),
        ([Event.UNSATISFIED, Event.KEPT], True),
    ],
)
def test_failure_counts_until_a_record_was_written(
    tmp_path: Path, events: list[Event], failed: bool
) -> None:
    file = tmp_path / "bank.json"
    journal = _journal(tmp_path)
    journal.append(file, [_note(event) for event in events])
    assert (journal.last_failure(file, "7", where=_HERE) is not None) is failed
    assert journal.last_failure(file, "8", where=_HERE) is None
    assert journal.last_failure(file, "7", where={"cpu_model": "another"}) is None


def test_last_change_is_of_this_record_wherever_it_was_made(tmp_path: Path) -> None:
    file = tmp_path / "bank.json"
    _journal(tmp_path, cpu_model="another").append(file, [_note(Event.UPDATE, search={"n": 1})])
    journal = _journal(tmp_path)
    journal.append(file, [Note(key="8", event=Event.ADD), _note(Event.RESERVED)])
    last = journal.last_change(file, "7")
    assert last is not None and last.search == {"n": 1}
    assert journal.last_change(file, "9") is None


def test_quarantine_written_during_the_run_is_obeyed(tmp_path: Path) -> None:
    journal = _journal(tmp_path)
    record = make_gradient_record(modelhash="7", sizes_bytes=[4], times=[0])
    assert journal.quarantine_reason(record) is None
    entry = QuarantineEntry(
        key="7",
        reason="hangs",
        ticket="T-1",
        who="Ann",
        when="2026-01-01T00:00:00Z",
        soc_version="x86-64-test",
    )
    keep_out(tmp_path, entry)
    assert journal.quarantine_reason(record) == "in quarantine: hangs (T-1)"


def test_fingerprint_is_the_machine_and_what_a_mode_adds() -> None:
    found = machine_fingerprint(make_target(), halide="21")
    assert found == {
        "soc_version": "x86-64-test",
        "core_num": 2,
        "cpu_model": "Test CPU",
        "halide": "21",
    }
