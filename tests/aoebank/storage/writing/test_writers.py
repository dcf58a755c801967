"""Eight writers at once, ours and foreign ones, lose nothing, and a killed one costs nobody.

Foreign writers here do what CANN's static writer does: lock the bank file itself, look the
name up again, read, truncate, write in place.
"""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aoebank import Bank
from aoebank.formats.protocol import find_error
from aoebank.storage.bank import load_file
from aoebank.testing.factories import make_provenance, make_record

WRITERS = 8
RECORDS_EACH = 12
KILLS = 12
FOREIGN_RECORDS = 150
CONTEXT = multiprocessing.get_context("fork")


def _file(root: Path) -> Path:
    return Bank(root).unified_file(soc_version="x86-64-v4", core_num=2, op_type="Softmax")


def _write_some(root: Path, writer: int) -> None:
    bank, file = Bank(root), _file(root)
    for number in range(RECORDS_EACH):
        record = make_record(writer * RECORDS_EACH + number)
        bank.put(file, [record])
        bank.append_provenance(file, [make_provenance(record.key)])


def _write_for_ever(root: Path, told: int) -> None:
    bank, file = Bank(root), _file(root)
    number = 0
    while True:
        bank.put(file, map(make_record, range(number, number + 50)))
        os.write(told, b".")
        number += 50


@contextmanager
def _foreign_lock(path: Path) -> Iterator[int]:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o640)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _write_as_cann(root: Path, writer: int, records: int = RECORDS_EACH) -> None:
    path = _file(root)
    for number in range(records):
        record = make_record(1_000_000 * (writer + 1) + number)
        candidate = {"knowledge": record.strategy, "info_dict": record.workload, "cost_time": 5.0}
        with _foreign_lock(path) as descriptor:
            old = os.pread(descriptor, 1 << 24, 0)
            bank = json.loads(old) if old.strip() else {}
            bank[record.key] = [candidate]
            text = json.dumps(bank).encode()
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text[:20], 0)  # half of it, as a reader without lock sees it
            os.pwrite(descriptor, text[20:], 20)


def _foreign_keys(writers: int, records: int = RECORDS_EACH) -> set[str]:
    return {
        make_record(1_000_000 * (writer + 1) + number).key
        for writer in range(writers)
        for number in range(records)
    }


def test_foreign_writers_and_ours_lose_nothing_of_each_other(tmp_path: Path) -> None:
    _file(tmp_path).parent.mkdir(parents=True)
    processes = [
        CONTEXT.Process(target=target, args=(tmp_path, writer))
        for writer in range(WRITERS // 2)
        for target in (_write_some, _write_as_cann)
    ]
    for process in processes:
        process.start()
    reader = Bank(tmp_path)
    while any(process.is_alive() for process in processes):
        list(reader.iter_records(_file(tmp_path)))  # never meets half a file
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * WRITERS
    ours = {make_record(number).key for number in range(WRITERS // 2 * RECORDS_EACH)}
    bank, file = Bank(tmp_path), _file(tmp_path)
    found = {record.key for record in bank.iter_records(file)}
    assert found == ours | _foreign_keys(WRITERS // 2)
    assert {entry.key for entry in bank.iter_provenance(file)} == ours
    assert {path.name for path in file.parent.iterdir()} == {
        file.name,
        f"{file.name}.provenance.jsonl",
    }


def test_killing_ours_at_any_moment_costs_a_foreign_writer_nothing(tmp_path: Path) -> None:
    file = _file(tmp_path)
    file.parent.mkdir(parents=True)
    moments = random.Random(20_240_501)
    foreign = CONTEXT.Process(target=_write_as_cann, args=(tmp_path, 0, FOREIGN_RECORDS))
    foreign.start()
    theirs = _foreign_keys(1, FOREIGN_RECORDS)
    whole = 0
    for _ in range(KILLS):
        hear, on_event = os.pipe()
        process = CONTEXT.Process(target=_write_for_ever, args=(tmp_path, on_event))
        process.start()
        os.close(on_event)
        os.read(hear, 1)
        process.join(timeout=moments.uniform(0, 0.02))
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        os.close(hear)
        parsed = load_file(file)
        assert find_error(parsed) is None
        ours = set(parsed.keys) - theirs
        assert len(ours) % 50 == 0  # a batch of ours is there as a whole or not at all
        assert len(ours) >= whole
        whole = len(ours)
    foreign.join()
    assert foreign.exitcode == 0
    assert theirs <= set(load_file(file).keys)
    left_over = {path.suffix for path in file.parent.iterdir()} - {".json"}
    assert left_over <= {".aoebank-tmp"}
