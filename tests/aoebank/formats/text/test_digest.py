"""Digests of records and sets: equal for equal values, whatever the spelling and order."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from support.diff_sides import unified

import aoebank
from aoebank.formats.text.digest import record_digest, record_set_hash
from aoebank.formats.unified.format import UnifiedFormat
from aoebank.merging.decisions import Reason
from aoebank.model.digest import canonical_text
from aoebank.model.json_value import ExactFloat
from aoebank.testing.factories import make_record

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def _shuffled(value: object) -> object:
    if isinstance(value, dict):
        return {name: _shuffled(value[name]) for name in reversed(value)}
    return [_shuffled(item) for item in value] if isinstance(value, list) else value


@given(JSON)
def test_spelling_of_a_value_does_not_count(value: object) -> None:
    plain = json.dumps(value).encode()
    spelled = json.dumps(_shuffled(value), indent=3, ensure_ascii=False)
    assert record_digest(plain) == record_digest(spelled.encode("utf-8", "surrogatepass")) or (
        not spelled.isascii() and any(0xD800 <= ord(character) < 0xE000 for character in spelled)
    )


BEYOND_A_DOUBLE = ("1e400", "1e500", "-1e400", "1" * 400 + ".5", "1e4000000")


def test_numbers_beyond_a_double_differ(tmp_path: Path) -> None:
    spelled = {text: ExactFloat(text) for text in BEYOND_A_DOUBLE}
    assert len({canonical_text({"a": [value]}) for value in spelled.values()}) == len(spelled)
    assert len({record_digest(text.encode()) for text in BEYOND_A_DOUBLE}) == len(spelled)
    for text in ("1E+400", "10.0e399", "0.01e402"):
        assert canonical_text(ExactFloat(text)) == canonical_text(spelled["1e400"])
        assert record_digest(text.encode()) == record_digest(b"1e400")
    for name in ("a", "b"):
        data = unified(make_record(1, strategy={"x": 1.5}))
        number = b"1e400" if name == "a" else b"1e500"
        (tmp_path / f"{name}.json").write_bytes(data.replace(b"1.5", number))
    (change,) = aoebank.diff(tmp_path / "a.json", tmp_path / "b.json").changes
    assert [(field.a, field.b) for field in change.fields] == [("1e400", "1e500")]
    merged = aoebank.merge(tmp_path / "a.json", tmp_path / "b.json", policy="fail", dry_run=True)
    assert merged.counts[Reason.POLICY_FAIL] == 1


@given(JSON, JSON)
def test_different_values_have_different_digests(a: object, b: object) -> None:
    left, right = json.dumps(a, sort_keys=True), json.dumps(b, sort_keys=True)
    assert (record_digest(left.encode()) == record_digest(right.encode())) == (left == right)


def test_number_and_its_kind_count_but_not_its_spelling() -> None:
    assert record_digest(b'{"a": 1e-4}') == record_digest(b'{"a":0.00010}')
    assert record_digest(b"1") != record_digest(b"1.0")
    assert record_digest(b"1") != record_digest(b"true")


def test_name_of_a_member_counts() -> None:
    assert record_digest(b'"a": [1]') == record_digest(b'"a" :\n[ 1 ]')
    assert record_digest(b'"a": [1]') != record_digest(b'"b": [1]')


@given(st.binary(max_size=40))
def test_any_bytes_have_a_digest(raw: bytes) -> None:
    assert len(record_digest(raw)) == 32


def test_values_nested_without_end_have_a_digest() -> None:
    assert record_digest(b"[" * 100_000) != record_digest(b"[" * 100_001)


@given(st.lists(st.binary(min_size=32, max_size=32)), st.randoms(use_true_random=False))
def test_hash_of_a_set_depends_on_the_records_alone(digests: list[bytes], random) -> None:  # type: ignore[no-untyped-def]
    mixed = list(digests)
    random.shuffle(mixed)
    assert record_set_hash(mixed) == record_set_hash(digests)
    assert record_set_hash([*digests, b"\0" * 32]) != record_set_hash(digests)


def test_hash_of_a_set_counts_how_often() -> None:
    digest = record_digest(b"1")
    assert record_set_hash([digest]) != record_set_hash([digest, digest])


def test_bank_written_another_way_has_the_same_hash() -> None:
    format_ = UnifiedFormat()
    empty = format_.parse(format_.empty, Path("a_1_AiCore_x.json"))
    records = [make_record(number) for number in range(5)]
    hashes = set()
    for order in (records, records[::-1]):
        data = format_.serialize(empty, {record.key: record for record in order})
        for text in (data, json.dumps(json.loads(data), indent=1).encode()):
            parsed = format_.parse(text, Path("a_1_AiCore_x.json"))
            digests = [record_digest(parsed.raw(number)) for number in range(len(parsed))]
            hashes.add(record_set_hash(digests))
    assert len(hashes) == 1


def test_canonical_text_sorts_and_is_ascii() -> None:
    assert canonical_text({"b": "ü", "a": [1.50, None]}) == '{"a":[1.5,null],"b":"\\u00fc"}'
