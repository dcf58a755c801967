"""Snapshots by several processes, beside writers of the bank, and killed at any moment."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from pathlib import Path

import pytest
from support import version_banks as banks

from aoebank.formats.protocol import find_error
from aoebank.history.log import verify_history
from aoebank.model.snapshot import Snapshot
from aoebank.storage.history.database import open_history
from aoebank.storage.history.store import list_snapshots
from aoebank.storage.sides.snapshots import open_snapshot_side
from aoebank.testing.factories import make_record

CONTEXT = multiprocessing.get_context("fork")
WRITERS = 4
EACH = 4
KILLS = 12
BATCH = 40


def _snapshots(root: Path) -> tuple[Snapshot, ...]:
    with open_history(root) as database:
        return list_snapshots(database)


def _write_and_record(root: Path, writer: int) -> None:
    for number in range(EACH):
        banks.put(root, make_record(writer * EACH + number), op=f"Op{writer}")
        banks.snap(root, f"{writer} {number}")


def test_concurrent_snapshots_form_one_chain(tmp_path: Path) -> None:
    processes = [
        CONTEXT.Process(target=_write_and_record, args=(tmp_path, writer))
        for writer in range(WRITERS)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * WRITERS
    banks.snap(tmp_path, "last")
    found = _snapshots(tmp_path)
    parents = ["", *(snapshot.id for snapshot in found[:-1])]
    assert [snapshot.parent for snapshot in found] == parents
    assert found[-1].records == WRITERS * EACH
    assert verify_history(tmp_path).problems == ()


def _write_for_ever(root: Path) -> None:
    number = 0
    while True:
        banks.put(root, *map(make_record, range(number, number + BATCH)))
        number += BATCH


def test_snapshot_beside_a_writer_has_every_file_whole(tmp_path: Path) -> None:
    banks.put(tmp_path, *map(make_record, range(BATCH)))
    writer = CONTEXT.Process(target=_write_for_ever, args=(tmp_path,))
    writer.start()
    try:
        identities = [banks.snap_id(tmp_path, str(number)) for number in range(6)]
    finally:
        writer.kill()
        writer.join()
    for identity in identities:
        side = open_snapshot_side(identity, root=tmp_path)
        parsed = side.load(side.names()[0])
        assert parsed is not None
        assert find_error(parsed) is None
        assert len(parsed) % BATCH == 0


def _record_for_ever(root: Path, told: int, number: int) -> None:
    while True:
        banks.put(root, *(make_record(place, tile=number) for place in range(BATCH)))
        banks.snap(root, f"number {number}", tag=f"t{number % 5}", force=True)
        os.write(told, b".")
        number += 1


@pytest.mark.slow
def test_killed_at_any_moment_the_history_is_whole(tmp_path: Path) -> None:
    moments = random.Random(20_260_102)
    recorded = 0
    for kill in range(KILLS):
        hear, on_event = os.pipe()
        process = CONTEXT.Process(target=_record_for_ever, args=(tmp_path, on_event, 1000 * kill))
        process.start()
        os.close(on_event)
        os.read(hear, 1)
        process.join(timeout=moments.uniform(0, 0.05))
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        os.close(hear)
        assert verify_history(tmp_path).problems == ()
        found = _snapshots(tmp_path)
        assert len(found) > recorded, kill
        recorded = len(found)
        side = open_snapshot_side("latest", root=tmp_path)
        assert all(side.load(name) for name in side.names())
    banks.put(tmp_path, make_record(10_000))
    assert banks.snap(tmp_path, "no lock outlives its process").recorded.is_new  # type: ignore[union-attr]


def _start_for_ever(root: Path) -> None:
    banks.snap(root, "first")


def test_killed_while_it_starts_a_history_can_be_started_again(tmp_path: Path) -> None:
    moments = random.Random(20_260_103)
    for kill in range(KILLS):
        root = tmp_path / str(kill)
        banks.put(root, make_record(1))
        process = CONTEXT.Process(target=_start_for_ever, args=(root,))
        process.start()
        process.join(timeout=moments.uniform(0, 0.08))
        process.kill()
        process.join()
        banks.snap(root, "again")
        assert len(_snapshots(root)) == 1
        assert verify_history(root).problems == ()
