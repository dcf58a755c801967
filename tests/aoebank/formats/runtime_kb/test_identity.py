"""Format A: the reader's hash and the key made of it."""

from __future__ import annotations

import struct
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from support.runtime_kb_lines import (
    EXAMPLE,
    FIRST,
    NAME,
    codes,
    line,
    parse,
)

from aoebank.formats.runtime_kb.format import common_hash, common_hashes, runtime_key
from aoebank.formats.runtime_kb.operator_schema import operator_schemas
from aoebank.merging.decisions import MergeRules, Policy, Three
from aoebank.merging.merge_bytes import merge_bytes
from aoebank.merging.versions import MergeContext


def slow_hash(data: bytes) -> int:
    """The hash written down once more, word by word as the facts tell it."""
    h, mask, word = 271828, 2**32 - 1, 0
    for (word,) in struct.iter_unpack("<I", data[: len(data) // 4 * 4]):
        h ^= (word + 0x9E3779B9 + ((h << 6) & mask) + (h >> 2)) & mask
    for i in range(len(data) & 3, 0, -1):
        word = ((word << 8) | data[i - 1]) & mask
    h ^= (word + 0x9E3779B9 + ((h << 6) & mask) + (h >> 2)) & mask
    h ^= len(data)
    return h ^ (h >> 16)


@given(st.binary(max_size=300))
def test_hash_is_the_published_algorithm(data: bytes) -> None:
    assert common_hash(data) == slow_hash(data)


@given(
    st.integers(0, 260).flatmap(
        lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=9)
    )
)
def test_many_hashes_at_once_are_the_single_ones(structs: list[bytes]) -> None:
    together = common_hashes(structs, len(structs[0]))
    assert list(together) == [common_hash(packed) for packed in structs]


def test_many_hashes_cross_the_border_of_a_batch() -> None:
    structs = [struct.pack("<QB", number, number % 251) for number in range(5000)]
    assert list(common_hashes(structs, 9)) == [common_hash(packed) for packed in structs]


def test_tail_takes_its_bytes_from_the_start_of_the_buffer() -> None:
    data = bytes(range(1, 8))
    assert common_hash(data[:4] + b"xyz") == common_hash(data[:4] + b"abc")


def test_no_hash_of_nothing() -> None:
    assert list(common_hashes([], 8)) == []


def test_key_starts_with_the_hash_of_the_reader() -> None:
    info = FIRST["info_dict"]
    packed = operator_schemas()["MatMulV3"].workload.pack(info)
    assert runtime_key("MatMulV3", info)[:8] == f"{common_hash(packed):08x}"
    assert parse(EXAMPLE).keys[0] == runtime_key("MatMulV3", info)


def test_key_does_not_depend_on_the_order_or_spelling_of_members() -> None:
    info = FIRST["info_dict"]
    backwards = dict(reversed(info.items()))
    assert runtime_key("MatMulV3", backwards) == runtime_key("MatMulV3", info)
    text = line().replace('"l1_fused_num": 0.0', '"l1_fused_num": 0e7')
    assert parse(text).keys == [runtime_key("MatMulV3", info)]


def test_unknown_member_of_the_workload_is_part_of_the_key_and_not_of_the_hash() -> None:
    known = runtime_key("MatMulV3", FIRST["info_dict"])
    mine, yours = (
        runtime_key("MatMulV3", {**FIRST["info_dict"], "note": note}) for note in ("mine", "yours")
    )
    assert len({known, mine, yours}) == 3
    assert known[:8] == mine[:8] == yours[:8]
    texts = [line(info_dict={**FIRST["info_dict"], "note": note}) for note in ("mine", "yours")]
    text = "\n".join([EXAMPLE.decode().rstrip(), *texts, EXAMPLE.decode().splitlines()[0]])
    assert parse(text).keys[-3:] == [mine, yours, known]
    assert codes("\n".join([line(), *texts])).count("AB310") == 2


def test_merge_keeps_records_apart_that_differ_in_an_unknown_member() -> None:
    ours, theirs = (
        (line(info_dict={**FIRST["info_dict"], "mode": mode}) + "\n").encode() for mode in (1, 2)
    )
    context = MergeContext(rules=MergeRules(policy=Policy.THEIRS), is_two_way=True)
    merged = merge_bytes(Three(base=None, ours=ours, theirs=theirs), Path(NAME), context)
    assert merged.data == ours + theirs


def test_operator_without_a_schema_is_known_by_its_canonical_json() -> None:
    key = runtime_key("FFN", {"a": 1e-4, "b": [1]})
    assert key == runtime_key("FFN", {"b": [1], "a": 0.0001})
    assert key != runtime_key("FFN2", {"a": 1e-4, "b": [1]})
    assert parse(line(op="FFN", info_dict={"b": [1], "a": 1e-4})).keys == [key]


def test_number_beyond_floats_in_an_unknown_operator_is_no_trouble() -> None:
    text = line(op="FFN").replace('"m": 16', '"m": 1e999, "x": ' + "1" * 5000)
    assert len(parse(text)) == 1
    assert codes(text, "Ascend910B2_24_AiCore_FFN_runtime_kb.json") == ["AB116", "AB212"]
