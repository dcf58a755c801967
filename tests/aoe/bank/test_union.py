"""The engine's look-up over several banks."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import aoebank
from aoe.bank.journal import BankJournal
from aoe.bank.operators import OperatorBank, custom_banks
from aoe.bank.records.operator import workload_of
from aoebank import Bank, UnionBank

SOC = "x86-64-icelake"
SAMPLE = Path(__file__).resolve().parents[3] / "sample_banks" / SOC
FILE = Path(SOC, "unified_bank", f"{SOC}_2_AiCore_lrn.json")


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    """Return three banks with the same records; `own` is the last, and written."""
    found = [tmp_path / name for name in ("team", "other", "own")]
    for root in found:
        shutil.copytree(SAMPLE, root / SOC)
    return found


def _opened(roots: list[Path]) -> OperatorBank:
    side_car = (SAMPLE.parent / FILE).with_name(f"{FILE.name}.provenance.jsonl")
    noted = json.loads(side_car.read_text().splitlines()[0])["fingerprint"]
    bank = UnionBank(roots[-1], roots)
    journal = BankJournal(bank, SOC, fingerprint=noted, model={}, engine_version="0")
    return OperatorBank(journal, core_num=2)


def test_record_of_the_first_bank_that_fits_is_the_answer(roots: list[Path]) -> None:
    (record, *_) = Bank(roots[0]).iter_records(roots[0] / FILE)
    workload = workload_of(record)
    assert workload is not None
    side_cars = [root / FILE.with_name(f"{FILE.name}.provenance.jsonl") for root in roots]
    # the first needs instructions that are not here, the second says how fast it is
    side_cars[0].write_text(side_cars[0].read_text().replace('"sse41-', '"amx-sse41-'))
    side_cars[1].write_text(side_cars[1].read_text().replace('"speedup": ', '"speedup": 9'))
    found = _opened(roots).find(workload)
    alone = _opened(roots[1:2]).find(workload)
    assert found is not None
    assert alone is not None
    assert found.speedup == alone.speedup
    assert found.schedule == alone.schedule


@pytest.mark.parametrize("member", [0, 2])  # the last one is written
def test_record_in_the_quarantine_of_its_bank_leaves_the_answer_to_the_next(
    roots: list[Path], member: int
) -> None:
    first, *_, other = order = [roots[member], *(root for root in roots if root != roots[member])]
    (record, *_) = Bank(first).iter_records(first / FILE)
    workload = workload_of(record)
    assert workload is not None
    aoebank.quarantine_add(record.key, root=first, reason="bad", keep=True)
    for root in order[1:]:  # another strategy, which the entry does not name
        bank = Bank(root)
        (_, second, *_) = bank.iter_records(root / FILE)
        bank.put(root / FILE, [replace(record, strategy=second.strategy)])
    bank = UnionBank(roots[-1], order)
    noted = next(iter(bank.iter_provenance(roots[-1] / FILE))).fingerprint
    journal = BankJournal(bank, SOC, fingerprint=noted, model={}, engine_version="0")
    found = bank.find(roots[-1] / FILE, record.key)
    assert found is not None
    assert found.strategy == Bank(other).find(other / FILE, record.key).strategy
    assert journal.quarantine_reason(found) is None


def test_banks_of_a_run_are_the_members_of_the_list(roots: list[Path]) -> None:
    env = {"TUNE_BANK_PATH": ":".join(map(str, roots)), "AOE_BANK_UNION": "best"}
    banks = custom_banks(env, roots[0])
    assert banks.roots == tuple(roots)
    assert (banks.root, banks.union) == (roots[0], "best")


@pytest.mark.parametrize("written", [0, 1, 2])
def test_record_in_quarantine_answers_nothing_where_it_is_the_only_one(
    roots: list[Path], written: int
) -> None:
    (record, *_) = Bank(roots[0]).iter_records(roots[0] / FILE)
    workload = workload_of(record)
    assert workload is not None
    aoebank.quarantine_add(record.key, root=roots[0], reason="bad", keep=True)
    for root in roots[1:]:
        Bank(root).remove(root / FILE, [record.key])
    bank = UnionBank(roots[written], roots)
    noted = next(iter(Bank(roots[0]).iter_provenance(roots[0] / FILE))).fingerprint
    journal = BankJournal(bank, SOC, fingerprint=noted, model={}, engine_version="0")
    operators = OperatorBank(journal, core_num=2)
    assert operators.find(workload) is None
    assert operators.quarantine_reason(workload) is not None
