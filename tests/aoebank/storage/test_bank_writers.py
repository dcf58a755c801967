"""Eight writers at once lose nothing; a killed writer leaves the old file or the new one."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

from aoebank import Bank
from aoebank.formats.protocol import find_error
from aoebank.storage.bank import load_file
from aoebank.testing.factories import make_provenance, make_record

WRITERS = 8
RECORDS_EACH = 12
KILLS = 12
CONTEXT = multiprocessing.get_context("fork")


def _file(root: Path) -> Path:
    return Bank(root).unified_file(soc_version="x86-64-v4", core_num=2, op_type="Softmax")


def _write_some(root: Path, writer: int) -> None:
    bank, file = Bank(root), _file(root)
    for number in range(RECORDS_EACH):
        record = make_record(writer * RECORDS_EACH + number)
        bank.put(file, [record])
        bank.append_provenance(file, [make_provenance(record.key)])


def test_eight_concurrent_writers_lose_nothing(tmp_path: Path) -> None:
    processes = [
        CONTEXT.Process(target=_write_some, args=(tmp_path, writer)) for writer in range(WRITERS)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * WRITERS
    expected = {make_record(number).key for number in range(WRITERS * RECORDS_EACH)}
    bank, file = Bank(tmp_path), _file(tmp_path)
    assert {record.key for record in bank.iter_records(file)} == expected
    assert {entry.key for entry in bank.iter_provenance(file)} == expected
    assert {path.name for path in file.parent.iterdir()} == {
        file.name, f"{file.name}.provenance.jsonl"
    }  # fmt: skip


def _write_for_ever(root: Path, told: int) -> None:
    bank, file = Bank(root), _file(root)
    number = 0
    while True:
        bank.put(file, map(make_record, range(number, number + 50)))
        os.write(told, b".")
        number += 50


def test_killed_writers_leave_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    file = _file(tmp_path)
    written = 0
    for kill in range(KILLS):
        hear, tell = os.pipe()
        process = CONTEXT.Process(target=_write_for_ever, args=(tmp_path, tell))
        process.start()
        os.close(tell)
        for _ in range(kill % 3 + 1):  # dies at some moment of the write that follows
            os.read(hear, 1)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        os.close(hear)
        parsed = load_file(file)
        assert find_error(parsed) is None
        assert len(parsed) % 50 == 0
        assert len(parsed) >= written
        written = len(parsed)
    Bank(tmp_path).put(file, [make_record(10_000)])  # no lock outlives its process
    assert len(load_file(file)) == written + 1
