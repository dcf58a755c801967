"""Notes on the blocks of a kernel in the side-car, so that later runs measure none of them.

Facts are about all blocks of an operator together, and stand with the record of each. They hold
until one of the records is replaced.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from aoe.bank.operators import OperatorBank
from aoe.bank.verdicts import BankNote
from aoe.device.compiler import KernelSource, RowBlock
from aoe.schedule import schedule_from_json, schedule_to_json
from aoe.workload import Workload
from aoebank import Event

_METHOD, _BLOCKS, _US, _SCHEDULE = "blocks", "blocks", "us", "schedule"


def note_blocks(
    bank: OperatorBank,
    workloads: Collection[Workload],
    facts: Mapping[str, object],
    op_names: tuple[str, ...],
) -> None:
    """Note facts on the records of all blocks.

    Args:
        bank: The bank.
        workloads: Of the blocks; those without a record get no note.
        facts: With their `method`.
        op_names: Nodes of the model.
    """
    note = BankNote(event=Event.RESERVED, op_names=op_names, search=facts)
    bank.note([(one, note) for one in workloads if bank.find(one) is not None])


def find_noted(
    bank: OperatorBank,
    workloads: Collection[Workload],
    method: str,
    member: str,
    *,
    of_this_model: bool,
) -> Mapping[str, Any] | None:
    """Return a member of the facts an earlier run has noted on the records of all blocks.

    None where records do not agree on it, as after one was replaced, or none has it.

    Args:
        bank: The bank.
        workloads: Of the blocks.
        method: Of the facts.
        member: An object in them.
        of_this_model: True to take only what was measured for this model and range.
    """
    found: list[Mapping[str, Any]] = []
    for workload in (one for one in workloads if bank.find(one) is not None):
        facts = bank.last_facts(workload, method, of_this_model=of_this_model)
        value = facts.get(member) if facts is not None else None
        if not isinstance(value, Mapping):
            return None
        found.append(value)
    return found[0] if found and all(one == found[0] for one in found) else None


# ---- times of blocks of rows ----


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedBlock:
    """A block of a kernel for any number of rows, as it was measured."""

    block: RowBlock  # With its time
    default_us: float  # Time of ONNX Runtime's default for as many rows


def note_times(
    bank: OperatorBank,
    workloads: Mapping[int, Workload],
    blocks: Collection[TimedBlock],
    op_names: tuple[str, ...],
    *,
    cut_rows: Collection[int] = (),
) -> None:
    """Note the times of blocks, and the schedules of those that have no record.

    Args:
        bank: The bank.
        workloads: Of the blocks, by their rows.
        blocks: All that there are; the others have no legal schedule.
        op_names: Nodes of the model.
        cut_rows: Rows of the points whose calls are cut into several of the blocks, for good.
    """
    facts: dict[str, dict[str, object] | None]
    facts = {str(rows): None for rows in (*workloads, *cut_rows)}
    for one in blocks:
        fact: dict[str, object] = {_US: [one.default_us, one.block.us]}
        facts[str(one.block.rows)] = fact
        if bank.find(workloads[one.block.rows]) is None:
            fact[_SCHEDULE] = schedule_to_json(one.block.source.schedule)
    note_blocks(bank, workloads.values(), {"method": _METHOD, _BLOCKS: facts}, op_names)


def find_times(bank: OperatorBank, workloads: Mapping[int, Workload]) -> list[TimedBlock] | None:
    """Return blocks as an earlier run over the same range has measured them.

    None unless the side-car has all of them.

    Args:
        bank: The bank.
        workloads: Of the blocks, by their rows.
    """
    facts = find_noted(bank, workloads.values(), _METHOD, _BLOCKS, of_this_model=True)
    if facts is None:
        return None
    found = []
    for rows, workload in workloads.items():
        answer = bank.find(workload)
        try:
            fact = facts[str(rows)]
            if fact is None:
                continue
            schedule = answer.schedule if answer else schedule_from_json(fact[_SCHEDULE])
            default_us, us = map(float, fact[_US])
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        block = RowBlock(rows=rows, source=KernelSource.of(workload, schedule), us=us)
        found.append(TimedBlock(block=block, default_us=default_us))
    return found


def find_noted_rows(bank: OperatorBank, workloads: Mapping[int, Workload]) -> dict[int, bool]:
    """Return the rows an earlier run over the same range has noted: True for those of blocks.

    Args:
        bank: The bank.
        workloads: Of blocks that every run has, by their rows.
    """
    facts = find_noted(bank, workloads.values(), _METHOD, _BLOCKS, of_this_model=True) or {}
    return {int(rows): fact is not None for rows, fact in facts.items() if rows.isdecimal()}
