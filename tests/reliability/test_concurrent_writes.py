"""Many processes at one bank: every record is there in the end, nobody is turned away."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from aoebank import Bank, quarantine_add, quarantine_list
from aoebank.testing.factories import make_provenance, make_record

CONTEXT = multiprocessing.get_context("fork")
WRITERS = 10
AMOUNTS = [6, pytest.param(83, marks=pytest.mark.slow)]  # of each


def _file(bank: Bank) -> Path:
    return bank.unified_file(soc_version="x86-64-v4", core_num=2, op_type="Softmax")


def _put(root: Path, writer: int, amount: int) -> None:
    bank = Bank(root)
    for number in range(writer * amount, (writer + 1) * amount):
        record = make_record(number)
        bank.put(_file(bank), [record])
        bank.append_provenance(_file(bank), [make_provenance(record.key)])


def _quarantine(root: Path, number: int) -> None:
    quarantine_add(make_record(number).key, root, reason=f"wrong {number}")


def _run(*processes: multiprocessing.context.ForkProcess) -> None:
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * len(processes)


@pytest.mark.parametrize("amount", AMOUNTS)
def test_concurrent_puts_lose_nothing(
    tmp_path: Path, amount: int, capsys: pytest.CaptureFixture[str]
) -> None:
    _run(*(CONTEXT.Process(target=_put, args=(tmp_path, n, amount)) for n in range(WRITERS)))
    bank = Bank(tmp_path)
    wanted = {make_record(number).key for number in range(WRITERS * amount)}
    assert {record.key for record in bank.iter_records(_file(bank))} == wanted
    assert {entry.key for entry in bank.iter_provenance(_file(bank))} == wanted
    if amount > AMOUNTS[0]:  # type: ignore[operator]
        with capsys.disabled():
            print(f"\nconcurrent puts: {len(wanted)} by {WRITERS} processes")


def test_concurrent_quarantines_wait_for_each_other(tmp_path: Path) -> None:
    bank = Bank(tmp_path)
    bank.put(_file(bank), map(make_record, range(WRITERS + 2)))
    _run(*(CONTEXT.Process(target=_quarantine, args=(tmp_path, n)) for n in range(WRITERS)))
    held = {listed.entry.key for listed in quarantine_list(tmp_path)}
    assert held == {make_record(number).key for number in range(WRITERS)}
    left = {record.key for record in Bank(tmp_path).iter_records(_file(bank))}
    assert left == {make_record(number).key for number in (WRITERS, WRITERS + 1)}
