"""Bank contents of a workload, to the details of a run and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from aoebank import Event, Provenance, last_measured

_LEFT_OUT = frozenset({"location", "extra"})
_TUPLES = ("op_names", "baseline_us", "tuned_us")


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedOperator:
    """A record and the lines of the side-car that still count."""

    # Of the record, as it is stored; None where there is none.
    strategy: Mapping[str, Any] | None = None
    cost_us: float | None = None  # Its time, None where it is not known
    lines: tuple[Provenance, ...] = ()  # Oldest first

    def without_samples(self) -> RememberedOperator:
        """Return a copy with the record's own line alone, and without samples."""
        last = last_measured(self.lines)
        line = replace(last, baseline_us=(), tuned_us=(), search={}) if last is not None else None
        return replace(self, lines=(line,) if line is not None else ())


def remembered_to_json(remembered: RememberedOperator) -> dict[str, Any]:
    """Return members for the details of an operator."""
    record = None
    if remembered.strategy is not None:
        record = {"strategy": remembered.strategy, "cost_us": remembered.cost_us}
    return {"record": record, "provenance": [_line_to_json(line) for line in remembered.lines]}


def remembered_from_json(members: Mapping[str, Any]) -> RememberedOperator:
    """Return the record and lines in the details of an operator; invalid members are left out."""
    record = members.get("record")
    strategy = record.get("strategy") if isinstance(record, dict) else None
    cost_us = record.get("cost_us") if isinstance(record, dict) else None
    lines = members.get("provenance")
    return RememberedOperator(
        strategy=strategy if isinstance(strategy, dict) else None,
        cost_us=cost_us if isinstance(cost_us, int | float) and cost_us > 0 else None,
        lines=_lines_from_json(lines if isinstance(lines, list) else ()),
    )


def _line_to_json(line: Provenance) -> dict[str, Any]:
    members = {
        field.name: getattr(line, field.name)
        for field in fields(line)
        if field.name not in _LEFT_OUT
    }
    return {name: _plain(value) for name, value in members.items() if value not in (None, (), {})}


def _plain(value: Any) -> Any:
    if isinstance(value, Event):
        return value.value
    return list(value) if isinstance(value, tuple) else value


def _lines_from_json(lines: Sequence[Any]) -> tuple[Provenance, ...]:
    found = []
    names = {field.name for field in fields(Provenance)} - _LEFT_OUT
    for line in lines:
        try:
            members = {name: line[name] for name in names if name in line}
            members |= {name: tuple(members[name]) for name in _TUPLES if name in members}
            found.append(Provenance(**{**members, "event": Event(members["event"])}))
        except (TypeError, ValueError, KeyError, AttributeError):
            continue
    return tuple(found)
