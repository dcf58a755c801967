"""The JSON parser keeps spellings, knows positions and never fails otherwise than clearly."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoebank.formats.lines import LineIndex
from aoebank.formats.text.json_text import (
    JsonTextError,
    dumps,
    find_duplicates,
    loads,
    locate,
    pointer,
    scan,
)

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(values)
def test_dumps_writes_what_the_standard_library_writes(value: Any) -> None:
    assert dumps(value) == json.dumps(value)
    assert loads(dumps(value)) == value


@pytest.mark.parametrize(
    "text", ["1e-4", "1.50", "-0", "-0.0", "1E+2", "18446744073709551615", "9" * 5000, "1e999"]
)
def test_numbers_keep_their_spelling(text: str) -> None:
    assert dumps(loads(text)) == text
    assert (
        dumps(loads(f'{{"a": [{text}, {{"b": {text}}}]}}')) == f'{{"a": [{text}, {{"b": {text}}}]}}'
    )


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_words_that_only_python_reads_are_refused_where_they_stand(text: str) -> None:
    with pytest.raises(JsonTextError, match="no JSON number") as caught:
        loads(f'["NaN", 1, {text}]')
    assert caught.value.offset == 11


@pytest.mark.parametrize(
    ("text", "offset"), [("", 0), ("[1,}", 3), ('{"a" 1}', 5), ("[1] x", 4), ('"a\nb"', 2)]
)
def test_syntax_error_has_the_offset_of_what_is_wrong(text: str, offset: int) -> None:
    with pytest.raises(JsonTextError) as caught:
        loads(text)
    assert caught.value.offset == offset


@pytest.mark.parametrize(("text", "container"), [("[1 ,\n]", "array"), ('{"a":1,}', "object")])
def test_comma_too_many_is_told_alike_by_every_python(text: str, container: str) -> None:
    with pytest.raises(JsonTextError) as caught:
        loads(text)
    assert caught.value.problem == f"illegal trailing comma before end of {container}"
    assert text[caught.value.offset] == ","


def test_message_ends_where_a_place_is_told_beside_it() -> None:
    with pytest.raises(JsonTextError) as caught:
        loads('{"a": "b')
    assert (caught.value.problem, caught.value.offset) == ("unterminated string", 6)


@pytest.mark.parametrize("depth", [101, 500, 100_000])
def test_nesting_beyond_the_limit_is_refused(depth: int) -> None:
    with pytest.raises(JsonTextError) as caught:
        loads("[" * depth + "]" * depth)
    assert caught.value.code == "AB108"


def test_many_brackets_side_by_side_are_not_deep() -> None:
    text = "[" + ", ".join(["[1]"] * 500) + "]"
    assert dumps(loads(text)) == text


def test_dumps_refuses_values_json_has_no_word_for() -> None:
    with pytest.raises(ValueError):
        dumps({"a": float("nan")})


def test_scan_ends_behind_the_value() -> None:
    assert scan("x[1, 2]y", 1) == ([1, 2], 7)


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        ((), "{"),
        (("b",), "["),
        (("b", "1"), '"x"'),
        (("b", "1", "deeper"), '"x"'),
        (("b", "7"), "["),
        (("ä",), "true"),
    ],
)
def test_locate_finds_the_value_or_its_nearest_parent(tokens: tuple[str, ...], found: str) -> None:
    text = ' {"a": 1, "b": [0, "x"], "ä": true}'
    assert text[locate(text, tokens) :].startswith(found)


def test_duplicates_are_found_at_every_depth_in_file_order() -> None:
    text = '{"a": 1, "b": {"c": 1, "c": 2}, "a": [{"x": 0, "x": 0}]}'
    found = find_duplicates(text)
    assert [tokens for tokens, _ in found] == [("b", "c"), ("a",), ("a", "0", "x")]
    assert [text[place : place + 3] for _, place in found] == ['"c"', '"a"', '"x"']


@given(values)
def test_values_python_wrote_have_no_duplicates(value: Any) -> None:
    assert find_duplicates(json.dumps(value)) == []


def test_pointer_escapes_tilde_and_slash() -> None:
    assert pointer(("a/b", "~")) == "/a~1b/~0"


@given(st.text(alphabet="aä€😀\n", max_size=30), st.data())
def test_position_counts_lines_and_characters(text: str, data: st.DataObject) -> None:
    offset = data.draw(st.integers(0, len(text)))
    before = text[:offset]
    line, column = LineIndex(text.encode()).position(len(before.encode()))
    assert line == before.count("\n") + 1
    assert column == len(before) - before.rfind("\n")
