"""What a conflict is about, in a few lines: the shape, and the fields that differ."""

from __future__ import annotations

from collections.abc import Iterator

from aoebank.diffing.fields import FieldChange, diff_fields
from aoebank.formats.text.json_text import dumps_compact
from aoebank.merging.decisions import Decision, KeptRecord
from aoebank.model.json_value import JsonValue
from aoebank.report.output import cut

_SHOWN = 4
_WIDTH = 40  # of one value
_ABSENT = "absent"


def conflict_lines(decision: Decision) -> Iterator[str]:
    """Yield the workload, then each field of the strategies that differs, the first few."""
    if decision.workload:
        is_named = not decision.op_type or decision.op_type in decision.workload
        yield decision.workload if is_named else f"{decision.op_type} {decision.workload}"
    left, right = decision.ours, decision.theirs
    words = ("ours", "theirs")
    if left is None or right is None:  # removed on one side: what the other one did to it
        words = ("base", "ours" if right is None else "theirs")
        left, right = decision.base, left or right
    changes = _changes(left, right)
    for change in changes[:_SHOWN]:
        a, b = _value(change.a, change.has_a), _value(change.b, change.has_b)
        yield f"{change.pointer or 'strategy'}: {words[0]} {a}, {words[1]} {b}"
    if len(changes) > _SHOWN:
        yield f"and {len(changes) - _SHOWN} more that differ"


def _changes(a: KeptRecord | None, b: KeptRecord | None) -> tuple[FieldChange, ...]:
    if a is None or b is None or a.strategy is None or b.strategy is None:
        return ()
    return diff_fields(a.strategy, b.strategy)


def _value(value: JsonValue, is_there: bool) -> str:
    return cut(dumps_compact(value) if is_there else _ABSENT, _WIDTH)
