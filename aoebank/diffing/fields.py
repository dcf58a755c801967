"""Changed members between two JSON values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from aoebank.formats.text.engine_words import step_lines
from aoebank.formats.text.json_text import dumps, pointer
from aoebank.model.digest import canonical_text
from aoebank.model.json_value import ExactFloat, ExactInt, JsonValue

_CONTAINERS = (Mapping, list)
_STEPS = "steps"  # member of an engine's strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChange:
    """One member that changed; `has_a` and `has_b` tell an absent member from a null."""

    pointer: str
    a: JsonValue
    b: JsonValue
    has_a: bool = True
    has_b: bool = True
    unread: str = ""  # Why no reader uses it; empty if one may
    is_words: bool = False  # Whether the values are words, which need no quotes

    @property
    def member(self) -> str:
        """Return the member of the strategy it is, or is in; empty for the strategy itself."""
        name = self.pointer.removeprefix("/").partition("/")[0]
        return name.replace("~1", "/").replace("~0", "~")


def diff_fields(a: JsonValue, b: JsonValue) -> tuple[FieldChange, ...]:
    """Return the changes from `a` to `b`, sorted by JSON pointer."""
    return tuple(sorted(_changes(a, b, ()), key=lambda change: change.pointer))


def diff_steps(a: JsonValue, b: JsonValue) -> tuple[FieldChange, ...]:
    """Return the changes of the steps of an engine's schedule, each step in words.

    Nothing where a strategy has no such steps: `diff_fields` tells them then.
    """
    old, new = step_lines(a), step_lines(b)
    if not old or not new:
        return ()
    from difflib import SequenceMatcher  # slow to import

    found = []
    matcher = SequenceMatcher(a=old, b=new, autojunk=False)
    for kind, start_a, end_a, start_b, end_b in matcher.get_opcodes():
        pairs = zip_longest(old[start_a:end_a], new[start_b:end_b])
        for place, (left, right) in enumerate(pairs, start_a) if kind != "equal" else ():
            found.append(
                FieldChange(
                    pointer=f"/{_STEPS}/{place}",
                    a=left,
                    b=right,
                    has_a=left is not None,
                    has_b=right is not None,
                    is_words=True,
                )
            )
    return tuple(found)


def told_changes(
    fields: Sequence[FieldChange], steps: Sequence[FieldChange]
) -> tuple[FieldChange, ...]:
    """Return changes as people read them: steps in words, where there are words for them."""
    return (*(one for one in fields if not steps or one.member != _STEPS), *steps)


def field_value(field: FieldChange, *, of_b: bool) -> str:
    """Return a member on one side, `(absent)` where there is none."""
    if not (field.has_b if of_b else field.has_a):
        return "(absent)"
    value = field.b if of_b else field.a
    return str(value) if field.is_words else dumps(value)


def _changes(a: JsonValue, b: JsonValue, tokens: tuple[str, ...]) -> Iterator[FieldChange]:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for name in {**a, **b}:
            if name in a and name in b:
                yield from _changes(a[name], b[name], (*tokens, name))
            else:
                yield _change((*tokens, name), a.get(name), b.get(name), name in a, name in b)
    elif _is_same(a, b):
        return
    elif isinstance(a, list) and isinstance(b, list):
        if len(a) == len(b) and not any(isinstance(item, _CONTAINERS) for item in (*a, *b)):
            for number, (left, right) in enumerate(zip(a, b, strict=True)):
                yield from _changes(left, right, (*tokens, str(number)))
        else:
            yield from _list_changes(a, b, tokens)
    else:
        yield _change(tokens, a, b, True, True)


def _is_same(a: JsonValue, b: JsonValue) -> bool:
    if type(a) is type(b) and isinstance(a, int | str):  # nearly all members, and nothing odd
        return a == b
    return canonical_text(a) == canonical_text(b)


def _list_changes(
    a: Sequence[JsonValue], b: Sequence[JsonValue], tokens: tuple[str, ...]
) -> Iterator[FieldChange]:
    """Yield the changes of a list, its items aligned first."""
    from deepdiff import DeepDiff
    from deepdiff.helper import notpresent

    # as texts they can be aligned whatever they are, and 1 is neither 1.0 nor True
    tree = DeepDiff([*map(canonical_text, a)], [*map(canonical_text, b)], view="tree")
    for level in (level for levels in tree.values() for level in levels):
        (place,) = level.path(output_format="list")
        at = (*tokens, str(place))
        if level.t2 is notpresent:
            yield _change(at, a[place], None, True, False)
        elif level.t1 is notpresent:
            yield _change(at, None, b[place], False, True)
        else:
            (other,) = level.path(output_format="list", use_t2=True)
            yield from _changes(a[place], b[other], at)


def _change(
    tokens: tuple[str, ...], a: JsonValue, b: JsonValue, has_a: bool, has_b: bool
) -> FieldChange:
    return FieldChange(pointer=pointer(tokens), a=plain(a), b=plain(b), has_a=has_a, has_b=has_b)


def plain(value: JsonValue) -> JsonValue:
    """Return the value with ordinary numbers; one too big for a float becomes its text."""
    if isinstance(value, ExactFloat):
        number = float(value)
        return number if number - number == 0 else value.text
    if isinstance(value, ExactInt):
        return int(value)
    if isinstance(value, Mapping):
        return {name: plain(member) for name, member in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(member) for member in value]
    return value
