"""Members of an object are set, added and removed, and no other character moves."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoebank.formats.text.splice import remove_member, set_member

NAMES = st.sampled_from(["a", "b", "m b", "stepM", "z", "\u00e9", 'q"', "back\\slash"])
VALUES = st.one_of(st.integers(), st.booleans(), st.text(max_size=3), st.lists(st.integers()))
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=6)
STYLES = st.sampled_from(
    [{"separators": (",", ":")}, {}, {"indent": 2}, {"separators": (" ,\t", " : ")}]
)


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("{}", '{"f": 0}'),
        ('{"a":1}', '{"a":1,"f":0}'),
        ('{"a": 1, "k": 2}', '{"a": 1, "f": 0, "k": 2}'),  # sorted stays sorted
        ('{"k": 1, "a": 2}', '{"k": 1, "a": 2, "f": 0}'),
        ('{"g": 1, "k": 2}', '{"f": 0, "g": 1, "k": 2}'),
        ('{\n  "a": 1,\n  "b": 2\n}', '{\n  "a": 1,\n  "b": 2,\n  "f": 0\n}'),
        ('{\n  "a": 1\n}', '{\n  "a": 1,\n  "f": 0\n}'),
        ('{"f": 1, "f": [2, {"f": 3}]}', '{"f": 0, "f": 0}'),  # whichever a reader takes
    ],
)
def test_a_member_is_set_or_spelled_as_its_neighbours(text: str, after: str) -> None:
    assert set_member(text, 0, "f", "0") == after


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ('{"f": 1}', "{}"),
        ('{"f": 1, "b": 2}', '{"b": 2}'),
        ('{"a": 1, "f": 2}', '{"a": 1}'),
        ('{"f": 1, "a": {"f": 2}, "f": 3}', '{"a": {"f": 2}}'),
        ('{"a": 1}', '{"a": 1}'),
    ],
)
def test_a_member_goes_with_one_comma(text: str, after: str) -> None:
    assert remove_member(text, 0, "f") == after


@given(OBJECTS, STYLES, VALUES)
def test_adding_and_removing_gives_the_same_text(
    members: dict[str, object], style: dict[str, object], value: object
) -> None:
    text = f"[{json.dumps(members, **style)}, 1]"  # type: ignore[arg-type]
    added = set_member(text, 1, "new", json.dumps(value))
    assert json.loads(added) == [{**members, "new": value}, 1]
    assert remove_member(added, 1, "new") == text


@given(OBJECTS, STYLES, VALUES, NAMES)
def test_setting_and_setting_back_gives_the_same_text(
    members: dict[str, object], style: dict[str, object], value: object, name: str
) -> None:
    text = json.dumps({**members, name: 7}, **style)  # type: ignore[arg-type]
    changed = set_member(text, 0, name, json.dumps(value))
    assert json.loads(changed) == {**members, name: value}
    assert set_member(changed, 0, name, "7") == text
