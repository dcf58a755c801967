"""Which members of a strategy changed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoebank.diffing.fields import diff_fields, plain
from aoebank.formats.text.json_text import loads
from aoebank.model.digest import canonical_text
from aoebank.model.json_value import ExactFloat

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from((0.0, -0.0, 1.0, 1e308))
    | st.text("ab/~'", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab/~'", max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(json_values)
def test_value_has_no_change_to_itself(value: Any) -> None:
    assert diff_fields({"top": value}, {"top": value}) == ()


@given(json_values, json_values)
def test_different_values_always_have_a_change(a: Any, b: Any) -> None:
    if canonical_text(a) != canonical_text(b):
        assert diff_fields({"top": a}, {"top": b})
        assert diff_fields(a, b)


objects = st.dictionaries(st.text("ab/~'", max_size=3), json_values, max_size=4)


@given(objects, objects)
def test_changes_of_members_are_all_and_right(a: dict[str, Any], b: dict[str, Any]) -> None:
    touched = {change.pointer.split("/")[1] for change in diff_fields(a, b)}
    expected = {
        name
        for name in a.keys() | b.keys()
        if name not in a or name not in b or canonical_text(a[name]) != canonical_text(b[name])
    }
    assert touched == {name.replace("~", "~0").replace("/", "~1") for name in expected}


@given(json_values, json_values)
def test_changes_come_sorted_and_can_be_written_as_json(a: Any, b: Any) -> None:
    changes = diff_fields({"top": a}, {"top": b})
    assert [change.pointer for change in changes] == sorted(change.pointer for change in changes)
    assert json.dumps([(change.a, change.b) for change in changes])


def test_field_changes_tell_absent_from_null() -> None:
    gone, changed, new = diff_fields({"a": None, "b": [1, 2]}, {"b": [1, 3], "c": None})
    assert (gone.pointer, gone.has_a, gone.has_b) == ("/a", True, False)
    assert (changed.pointer, changed.a, changed.b) == ("/b/1", 2, 3)
    assert (new.pointer, new.has_a, new.has_b) == ("/c", False, True)


def test_step_put_into_a_list_is_one_change() -> None:
    steps = [["split", "y", 16], ["vectorize", "y"], ["parallel", "y"]]
    (change,) = diff_fields({"steps": steps}, {"steps": [steps[0], ["unroll", "y"], *steps[1:]]})
    assert (change.pointer, change.has_a, change.b) == ("/steps/1", False, ["unroll", "y"])


@pytest.mark.parametrize(
    ("a", "b", "pointer"),
    [
        ({"x": {"y": 1}}, {"x": {"y": True}}, "/x/y"),
        ({"x": [1, 2]}, {"x": [1, 2.0]}, "/x/1"),
        ({"x": 1}, {"x": [1]}, "/x"),
        ({"x": [[1]]}, {"x": [[True]]}, "/x/0/0"),
        (1, 2, ""),
        ({"x": "1"}, {"x": 1}, "/x"),
        ({"x": 0.0}, {"x": -0.0}, "/x"),
    ],
)
def test_types_and_places_are_told_apart(a: Any, b: Any, pointer: str) -> None:
    assert [change.pointer for change in diff_fields(a, b)] == [pointer]


def test_plain_keeps_numbers_and_spells_those_too_big() -> None:
    assert plain(loads("[1e-4, 1e999, [7]]")) == [0.0001, "1e999", [7]]
    assert not isinstance(plain(ExactFloat("1e-4")), ExactFloat)
