"""Lines read without a JSON reader give what the JSON reader gives, whatever they hold."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import merge_files
from support.merge_files import Answer, Style, make_file

from aoebank import JsonValue
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.runtime_kb.format import KnownLines, RuntimeKbFormat
from aoebank.formats.runtime_kb.line_template import LineTemplates
from aoebank.formats.runtime_kb.operator_schema import OperatorSchema, operator_schemas

RUNTIME = "runtime_kb"
NAME = Path(merge_files.NAMES[RUNTIME])
MEMBERS = (
    b'"id"',
    b'"version"',
    b'"m"',
    b'"k"',
    b'"bias_flag"',
    b'"l1_fused_num"',
    b'"baseM"',
)
# spellings of a value, good and bad, that come in the place of another one
SPELLINGS = (
    b"0",
    b"-0",
    b"7",
    b"-7",
    b"007",
    b"+7",
    b"7.",
    b"7.0",
    b"7e2",
    b"7E+2",
    b".7",
    b"0x7",
    b"-",
    b"true",
    b"false",
    b"True",
    b"null",
    b"NaN",
    b"Infinity",
    b'"7"',
    b"[]",
    b"{}",
    b"",
    b" 7",
    b"4294967296",
    b"-2147483649",
    b"9" * 25,
    b"9" * 5000,
    b"1e999",
    b"7,",
    b"7}",
    b"\xff",
)


FAST = RuntimeKbFormat(templates=partial(LineTemplates, 0))
SLOW = RuntimeKbFormat(templates=partial(LineTemplates, sys.maxsize))


def parse(data: bytes, format_: RuntimeKbFormat = FAST) -> ParsedFile:
    """Parse with a template from the first line on."""
    return format_.parse(data, Path("bank") / NAME)


def parse_slowly(data: bytes) -> ParsedFile:
    """Parse without templates."""
    return parse(data, SLOW)


def assert_same(a: ParsedFile, b: ParsedFile) -> None:
    assert a.keys == b.keys
    assert (a.starts, a.ends) == (b.starts, b.ends)
    assert a.findings == b.findings


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """Draw a line as CANN writes it, some of its values spelled in another way."""
    answer = Answer(tile=draw(st.integers(1, 3)))
    style = Style(is_spaced=draw(st.booleans()))
    text = merge_files.record_text(RUNTIME, draw(st.integers(0, 9)), answer, style).encode()
    for _ in range(draw(st.integers(0, 2))):
        text = respelled(text, *draw(st.tuples(*map(st.sampled_from, (MEMBERS, SPELLINGS)))))
    return text


def respelled(line: bytes, member: bytes, spelling: bytes) -> bytes:
    """Return a line with another text in the place of a value."""
    start = line.index(b":", line.index(member)) + 1
    end = min(place for mark in b",}" if (place := line.find(bytes([mark]), start)) > 0)
    return line[:start] + spelling + line[end:]


@pytest.mark.parametrize("member", MEMBERS)
def test_any_spelling_behind_a_usual_line_is_read_as_json_would(member: bytes) -> None:
    usual = merge_files.record_text(RUNTIME, 1, Answer()).encode()
    for spelling in SPELLINGS:
        data = b"\n".join([usual, respelled(usual, member, spelling), usual])
        assert_same(parse(data), parse_slowly(data))


@given(texts=st.lists(lines(), max_size=6))
def test_templates_change_nothing_but_time(texts: list[bytes]) -> None:
    data = b"\n".join(texts)
    assert_same(parse(data), parse_slowly(data))


@given(first=st.lists(lines(), max_size=6), second=st.lists(lines(), max_size=6))
def test_parsing_like_another_version_changes_nothing_but_time(
    first: list[bytes], second: list[bytes]
) -> None:
    like = parse(b"\n".join(first))
    data = b"\n".join([*second, *first[::2], *second[::-1]])
    assert_same(FAST.parse_like(data, Path("bank") / NAME, like), parse_slowly(data))


class Counting(LineTemplates):
    """Count the lines that were read as JSON."""

    read = 0

    def learn(self, raw: bytes, value: Mapping[str, JsonValue], schema: OperatorSchema) -> None:
        self.read += 1
        super().learn(raw, value, schema)


@pytest.mark.parametrize(("after", "read"), [(0, 1), (7, 8), (50, 50)])
def test_lines_of_one_writer_need_the_json_reader_until_there_is_a_template(
    after: int, read: int
) -> None:
    templates = Counting(after)
    data = make_file(RUNTIME, {key: Answer(tile=key) for key in range(50)})
    assert len(parse(data, RuntimeKbFormat(templates=lambda: templates)).keys) == 50
    assert templates.read == read


def test_many_writers_do_not_make_many_templates() -> None:
    record = json.loads(merge_files.record_text(RUNTIME, 1, Answer()))
    texts = [json.dumps({**record, f"extra{number}": 1}) for number in range(30)]
    templates, schema = LineTemplates(0), operator_schemas()["MatMulV3"]
    for text in texts:
        templates.learn(text.encode(), json.loads(text), schema)
    assert sum(templates.find(text.encode()) is not None for text in texts) == 8
    data = "\n".join(texts).encode()
    assert len(parse(data)) == 30


def test_name_that_comes_twice_is_read_as_json() -> None:
    text = merge_files.record_text(RUNTIME, 1, Answer())
    twice = text.replace('"m":2', '"m":5,"m":2')
    data = "\n".join([twice, twice.replace('"m":2', '"m":3')]).encode()
    assert_same(parse(data), parse_slowly(data))
    assert len({*parse(data).keys}) == 2


@given(data=st.data())
def test_known_lines_give_the_key_of_these_very_bytes(data: st.DataObject) -> None:
    keys = data.draw(st.permutations(range(6)))
    parsed = parse(make_file(RUNTIME, {key: Answer() for key in keys}))
    known = KnownLines(parsed)
    for number in data.draw(st.lists(st.integers(0, 5), max_size=12)):
        raw = parsed.raw(number)
        assert known.find_key(raw) == parsed.keys[number]
        assert known.find_key(raw + b" ") is None
        assert known.find_key(b"") is None


def test_long_line_is_not_made_into_a_pattern() -> None:
    """A pattern takes 130 bytes of memory for each byte of the line it is made from."""
    templates, schema = LineTemplates(0), operator_schemas()["MatMulV3"]
    record = json.loads(merge_files.record_text(RUNTIME, 0, Answer()))
    for number, is_learnt in ((4_000, True), (100_000, False)):
        record["knowledge"]["more"] = [0] * number
        line = json.dumps(record).encode()
        templates.learn(line, record, schema)
        assert (templates.find(line) is not None) is is_learnt
