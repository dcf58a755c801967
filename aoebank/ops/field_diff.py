"""Which members of one JSON value changed into which of another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aoebank.formats.json_text import pointer
from aoebank.model.json_value import ExactFloat, JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChange:
    """One member that changed; `has_a` and `has_b` tell an absent member from a null."""

    pointer: str
    a: JsonValue
    b: JsonValue
    has_a: bool = True
    has_b: bool = True


def diff_fields(a: JsonValue, b: JsonValue) -> tuple[FieldChange, ...]:
    """Return the changes from `a` to `b`, sorted by JSON pointer."""
    from deepdiff import DeepDiff
    from deepdiff.helper import notpresent

    left, right = plain(a), plain(b)
    # lists are aligned by equality first, and for that 1, 1.0 and True are the same
    tree = DeepDiff(left, right, view="tree") or DeepDiff(
        left, right, view="tree", zip_ordered_iterables=True
    )
    changes = []
    for levels in tree.values():
        for level in levels:
            tokens = [str(token) for token in level.path(output_format="list")]
            changes.append(
                FieldChange(
                    pointer=pointer(tokens),
                    a=None if level.t1 is notpresent else level.t1,
                    b=None if level.t2 is notpresent else level.t2,
                    has_a=level.t1 is not notpresent,
                    has_b=level.t2 is not notpresent,
                )
            )
    return tuple(sorted(changes, key=lambda change: change.pointer))


def plain(value: JsonValue) -> JsonValue:
    """Return the value with ordinary numbers; one too big for a float becomes its text."""
    if isinstance(value, ExactFloat):
        number = float(value)
        return number if number - number == 0 else value.text
    if isinstance(value, Mapping):
        return {name: plain(member) for name, member in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(member) for member in value]
    return value
