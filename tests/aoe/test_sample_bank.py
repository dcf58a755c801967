"""The shipped bank, tuned for real, stays readable, sound and replayable."""

from __future__ import annotations

from pathlib import Path

import pytest

from aoe.bank.operators import key_of
from aoe.kernels.registry import get_family
from aoe.schedule import schedule_from_json, schedule_to_json
from aoe.workload import workload_from_json
from aoebank import Bank, Record

ROOT = Path(__file__).resolve().parents[2] / "sample_banks"
SOC_VERSION = "x86-64-icelake"
FAMILIES = ("batch_normalization", "elementwise", "lrn")


def _records(op_type: str) -> list[Record]:
    bank = Bank(ROOT)
    file = bank.unified_file(soc_version=SOC_VERSION, core_num=2, op_type=op_type)
    return list(bank.iter_records(file))


@pytest.mark.parametrize("op_type", FAMILIES)
def test_every_record_has_the_key_of_its_workload_and_a_schedule_to_replay(op_type: str) -> None:
    records = _records(op_type)
    assert records
    for record in records:
        assert isinstance(record.workload, dict) and isinstance(record.strategy, dict)
        workload = workload_from_json(record.workload)
        assert key_of(workload) == record.key
        assert get_family(op_type).supports(workload)
        steps = record.strategy["steps"]
        assert schedule_to_json(schedule_from_json(steps)) == steps


@pytest.mark.parametrize("op_type", FAMILIES)
def test_every_record_was_measured_faster_than_the_default(op_type: str) -> None:
    bank = Bank(ROOT)
    file = bank.unified_file(soc_version=SOC_VERSION, core_num=2, op_type=op_type)
    added = {e.key: e for e in bank.iter_provenance(file) if e.event in ("add", "update")}
    for record in _records(op_type):
        entry = added[record.key]
        assert entry.speedup_low is not None and entry.speedup_low > 1.03
        assert len(entry.baseline_us) == len(entry.tuned_us) >= 20
