"""Lines of a file: where they are, and what happens to those around an edit."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoebank.formats.text import json_text
from aoebank.formats.text.json_lines import iter_lines


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\n\nb\n", [b"a", b"", b"b"]),
        (b"\n", [b""]),
        (b" a \r\n\tb\t", [b"a", b"b"]),
        (b"\xef\xbb\xbfa\n", [b"a"]),
        (b"  \r\n", [b""]),
    ],
)
def test_lines_come_without_white_space(data: bytes, lines: list[bytes]) -> None:
    assert [data[start:end] for start, end in iter_lines(data)] == lines


@given(st.binary(max_size=60).map(lambda data: data.replace(b"\0", b"\n")))
def test_lines_are_those_of_split(data: bytes) -> None:
    text = data.removeprefix(b"\xef\xbb\xbf")
    expected = [line.strip(b" \t\r\n") for line in text.split(b"\n")]
    if text.endswith(b"\n") or not text:
        expected.pop()
    assert [data[start:end] for start, end in iter_lines(data)] == expected


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(json_values)
def test_scan_line_reads_what_json_reads(value: object) -> None:
    assert json_text.scan_line(json.dumps(value)) == value


@pytest.mark.parametrize(
    "text", ["", "{", "1 2", "[1]]", "NaN", "[" * 500 + "]" * 500, "[" * 10**5]
)
def test_scan_line_refuses_what_is_no_single_value(text: str) -> None:
    with pytest.raises(json_text.JsonTextError):
        json_text.scan_line(text)


def test_scan_line_takes_integers_of_any_length() -> None:
    assert json_text.scan_line("[" + "9" * 6000 + "]") == [float("inf")]


@pytest.mark.parametrize(
    ("text", "is_maybe"),
    [
        ('{"a": "b", "c": [{"d": 1}]}', False),
        ('{"a": 1, "a": 2}', True),
        ('{"a": {"b": 1, "b": 1}}', True),
        ('{"\\u0061": 1}', True),  # an escape may hide a quote, so it is looked at closely
        ("[1, 2.5, null]", False),
    ],
)
def test_quick_look_for_duplicates_never_misses_one(text: str, is_maybe: bool) -> None:
    assert json_text.may_hold_duplicates(text, json.loads(text)) is is_maybe


@given(json_values)
def test_compact_text_is_that_of_json(value: object) -> None:
    expected = json.dumps(value, separators=(",", ":"))
    assert json_text.dumps_compact(value) == expected  # type: ignore[arg-type]
    exact = json_text.loads(expected)
    assert json_text.dumps_compact(exact) == expected
