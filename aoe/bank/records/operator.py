"""The record of a workload's strategy, read as what anybody may have edited."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aoe.bank.journal import ENGINE
from aoe.bank.stored import Stored
from aoe.measurement import RoundingSteps
from aoe.schedule import Configuration, Schedule, schedule_from_json, schedule_to_json
from aoe.workload import Workload, workload_from_json, workload_to_json
from aoebank import Record, words_of

STRATEGY_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAnswer(Stored):
    """Stored answer for a workload."""

    key: str  # Record key
    schedule: Schedule  # The strategy, replayable
    configuration: Configuration  # The knobs it came from
    file: Path  # Bank file it is in
    old_name: str = ""  # The target's name in that file, empty if it is the present one
    is_built_in: bool = False  # True if it came with the package
    # Model and range of shapes it was last used for, `bert over x:1~4,64`; empty where it was used
    # for fixed shapes.
    range_model: str = ""
    rounding: RoundingSteps | None = None  # Of its last measurement, for results that are integers
    is_of_this_run: bool = False  # True if the run that asks has written it

    @property
    def range_words(self) -> str:
        """Range it is from, for reports; empty for an answer of the very shape."""
        return self.range_model and f"in the bank for a range that holds it, {self.range_model}"


def strategy_to_json(schedule: Schedule, configuration: Configuration) -> dict[str, Any]:
    """Return the strategy members of a record."""
    return {
        "engine": ENGINE,
        "version": STRATEGY_VERSION,
        "knobs": dict(configuration),
        "steps": schedule_to_json(schedule),
    }


def strategy_of(record: Record) -> tuple[Schedule, Configuration] | None:
    """Return the strategy of a record, None if it is another engine's.

    Raises:
        ValueError: it is ours, but cannot be read.
    """
    strategy = record.strategy
    if not isinstance(strategy, Mapping) or strategy.get("engine") != ENGINE:
        return None
    return schedule_from_json(strategy.get("steps")), configuration_of(strategy.get("knobs"))


def strategy_problem(record: Record) -> str:
    """Find the fault that makes this engine miss a record of its own; empty without one.

    >>> strategy_problem(Record(key="k", workload={}, strategy={"engine": "aoe", "steps": "x"}))
    'schedule: must be a list of steps (got str)'
    """
    try:
        strategy_of(record)
    except ValueError as error:
        return str(error)
    return ""


def configuration_of(knobs: object) -> Configuration:
    """Return the knobs of a candidate, as they are stored.

    Raises:
        ValueError: they cannot be read.
    """
    if isinstance(knobs, Mapping):
        values = {name: value for name, value in knobs.items() if type(value) in (int, str)}
        if len(values) == len(knobs):
            return Configuration(values)
    raise ValueError(f"knobs: must be an object of numbers and words (got {knobs!r:.80})")


def workload_words(workload: Workload) -> str:
    """Return the operators and tensors of a workload, in the words of its record."""
    return words_of(Record(key="-", workload=workload_to_json(workload), strategy={})).computes


def workload_of(record: Record) -> Workload | None:
    """Return the workload of a record, None if it cannot be read."""
    if not isinstance(record.workload, Mapping):
        return None
    try:
        return workload_from_json(record.workload)
    except ValueError:
        return None
