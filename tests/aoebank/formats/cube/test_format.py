"""Format C: contract, identity without names, the binary twin as far as it can be checked."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import sample_bank_files
from support.format_reading import FormatReading

from aoebank import Finding
from aoebank.formats.cube.format import NAME_MEMBERS, CubeFormat, cube_key
from aoebank.testing.format_tests import FormatTests

FORMAT = CubeFormat()
NAME = sample_bank_files.CUBE.name
READING = FormatReading(FORMAT, NAME)
parse, codes = READING.parse, READING.codes
EXAMPLE = sample_bank_files.CUBE.read_bytes()
BINARY_CACHE = sample_bank_files.CUBE.with_suffix(".bin").read_bytes()
FIRST: dict[str, Any] = json.loads(EXAMPLE.splitlines()[0])


def line(**changes: Any) -> str:
    return json.dumps({**FIRST, **changes})


def without(name: str) -> str:
    return json.dumps({key: value for key, value in FIRST.items() if key != name})


class TestContract(FormatTests):
    format = FORMAT
    file_name = NAME
    example = EXAMPLE


def test_names_take_no_part_in_the_identity_and_everything_else_does() -> None:
    shape = FIRST["shape"]
    named = {**shape, **dict.fromkeys(NAME_MEMBERS, "another")}
    assert cube_key(named) == cube_key(dict(reversed(shape.items())))
    assert cube_key({**shape, "A_dtype": "float32"}) != cube_key(shape)


def test_record_tells_time_operator_and_keeps_the_names() -> None:
    record = FORMAT.record(parse(EXAMPLE), 0)
    assert record.cost_us == FIRST["cost_time"]
    assert record.op_type == "matmul"
    assert record.soc_version == "Ascend910B2"
    assert record.workload["kernel_name"] == "matmul_0"  # type: ignore[index, call-overload]


def test_time_that_is_none_survives_a_change() -> None:
    record = FORMAT.record(parse(line(cost_time=-1)), 0)
    assert record.cost_us is None
    data = FORMAT.serialize(parse(b""), {record.key: replace(record, strategy=[1])})
    assert json.loads(data) == {**FIRST, "tiling": [1], "cost_time": -1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (line(), []),
        ("", ["AB110"]),
        (line() + "\n\n", ["AB112"]),
        ("{}", ["AB115"]),
        ("null", ["AB204"]),
        ("{", ["AB103"]),
        (without("shape"), ["AB205"]),
        (without("tiling"), ["AB205"]),
        (line(shape=[]), ["AB206"]),
        (line(tiling=1), ["AB206"]),
        (line(cost_time="1"), ["AB206"]),
        (without("cost_time"), ["AB401"]),
        (line(cost_time=-1), ["AB401"]),
        (line(cost_time=0), ["AB402"]),
        (line(mine=1), ["AB207"]),
        (line() + "\n" + line(cost_time=1), ["AB305"]),
        (line() + "\n" + line(tiling=[1]), ["AB306"]),
        (line().replace('"tiling":', '"tiling": 1, "tiling":'), ["AB109"]),
    ],
)
def test_findings(text: str, expected: list[str]) -> None:
    assert codes(text) == expected


# -- twin -------------------------------------------------------------------------------------


def binary_cache_findings(data: bytes | None, bank: bytes = EXAMPLE) -> list[Finding]:
    return [*FORMAT.check_companion(parse(bank), data)]


def test_twin_is_the_file_of_the_same_name() -> None:
    assert FORMAT.companion(sample_bank_files.CUBE) == sample_bank_files.CUBE.with_suffix(".bin")


def test_good_twin_has_no_findings() -> None:
    assert binary_cache_findings(BINARY_CACHE) == []


def test_missing_twin_means_that_readers_see_no_bank() -> None:
    (finding,) = binary_cache_findings(None)
    assert finding.code == "AB508"
    assert finding.expected == sample_bank_files.CUBE.with_suffix(".bin").name


@pytest.mark.parametrize(
    ("binary_cache", "message"),
    [
        (BINARY_CACHE[:63], "head is cut short"),
        (b"", "head is cut short"),
        (b"\0\0\0\0" + BINARY_CACHE[4:], "checksum"),
        (BINARY_CACHE[:4] + b"\x41\0\0\0" + BINARY_CACHE[8:], "length of the head"),
        (BINARY_CACHE.replace(b"AaZ", b"BbZ"), "platform"),
        (BINARY_CACHE[:64], "number of records differs"),
        (BINARY_CACHE.replace(b"AaZ\0\x06", b"AaZ\0\x07"), "number of records"),
    ],
)
def test_twin_that_does_not_fit_is_found(binary_cache: bytes, message: str) -> None:
    (finding,) = binary_cache_findings(binary_cache)
    assert finding.code == "AB509"
    assert message in finding.message
    assert finding.location.path.suffix == ".bin"


def test_twin_of_an_empty_bank_may_be_empty_too() -> None:
    head = BINARY_CACHE[:64].replace(b"AaZ\0\x06", b"AaZ\0\x00")
    assert binary_cache_findings(head, b"") == []
    assert [finding.code for finding in binary_cache_findings(BINARY_CACHE, b"")][-1:] == ["AB509"]


@given(st.binary(max_size=100))
def test_any_bytes_as_a_twin_never_raise(data: bytes) -> None:
    assert all(finding.message for finding in binary_cache_findings(data))
