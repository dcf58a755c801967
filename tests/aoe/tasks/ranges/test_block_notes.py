"""Later runs make kernels of the blocks an earlier run has measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.engine.fakes import make_target
from support.engine.families import chain_workload
from support.engine.tuning import guesses_of, make_bank, make_verdict

from aoe.bank.operators import OperatorBank
from aoe.device.compiler import KernelSource, RowBlock
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import get_family
from aoe.schedule import Schedule
from aoe.tasks.ranges.block_notes import TimedBlock, find_noted_rows, find_times, note_times
from aoe.workload import Workload
from aoebank import Event

_WORKLOADS = {rows: chain_workload(shape=(rows, 256)) for rows in (64, 16, 4, 1)}


def _schedule(workload: Workload, guess: int = 0) -> Schedule:
    configuration = guesses_of(workload)[guess]
    target = KernelTarget.of(make_target())
    return get_family(workload.op_type).schedule(workload, configuration, target)


def _timed(rows: int, guess: int = 0) -> TimedBlock:
    source = KernelSource.of(_WORKLOADS[rows], _schedule(_WORKLOADS[rows], guess))
    block = RowBlock(rows=rows, source=source, us=rows / 10 + 0.125)
    return TimedBlock(block=block, default_us=rows / 5)


def _save(bank: OperatorBank, rows: int) -> None:
    workload = _WORKLOADS[rows]
    verdict = make_verdict(Event.ADD, 1.2)
    bank.save(workload, _schedule(workload), guesses_of(workload)[0], verdict)


@pytest.fixture
def bank(tmp_path: Path) -> OperatorBank:
    """Return a bank with records of the blocks of 16 and 4 rows; that of 64 has no schedule."""
    bank = make_bank(tmp_path)
    _save(bank, 16)
    _save(bank, 4)
    return bank


_TIMED = [_timed(16), _timed(4), _timed(1, guess=-1)]


def test_later_run_finds_blocks_with_their_times_with_records_or_without(
    bank: OperatorBank,
) -> None:
    assert find_times(bank, _WORKLOADS) is None
    note_times(bank, _WORKLOADS, _TIMED, ("n0",))
    found = find_times(bank, _WORKLOADS)
    assert found == _TIMED
    assert found[-1].block.source.name != _timed(1).block.source.name  # not any guess
    assert find_times(bank, {rows: _WORKLOADS[rows] for rows in (16, 1)}) == _TIMED[::2]


@pytest.mark.parametrize("rows", [16, 1])
def test_blocks_are_measured_again_when_one_has_another_record(
    bank: OperatorBank, rows: int
) -> None:
    note_times(bank, _WORKLOADS, _TIMED, ("n0",))
    _save(bank, rows)
    assert find_times(bank, _WORKLOADS) is None


def test_blocks_are_measured_again_for_another_model_or_other_rows(
    bank: OperatorBank, tmp_path: Path
) -> None:
    note_times(bank, _WORKLOADS, _TIMED, ("n0",))
    assert find_times(make_bank(tmp_path, model="other"), _WORKLOADS) is None
    more = {**_WORKLOADS, 37: chain_workload(shape=(37, 256))}
    assert find_times(bank, more) is None


def test_later_run_finds_the_rows_that_have_blocks_and_those_that_are_cut(
    bank: OperatorBank,
) -> None:
    usual = {rows: _WORKLOADS[rows] for rows in (16, 1)}
    assert find_noted_rows(bank, usual) == {}
    note_times(bank, _WORKLOADS, _TIMED, ("n0",), cut_rows=[37, 5])
    assert find_noted_rows(bank, usual) == {
        64: False,
        16: True,
        4: True,
        1: True,
        37: False,
        5: False,
    }
    assert find_times(bank, _WORKLOADS) == _TIMED


def test_last_measured_times_count(bank: OperatorBank) -> None:
    slower = [replace(one, default_us=9.0) for one in _TIMED]
    for blocks in (_TIMED, slower):
        note_times(bank, _WORKLOADS, blocks, ("n0",))
    assert find_times(bank, _WORKLOADS) == slower
