"""Values of the bank layer keep their invariants."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoebank import BankNotFoundError, RecordError
from aoebank.model.codes import CODES
from aoebank.model.file_name import (
    CORE_TYPES,
    RUNTIME_SUFFIX,
    UNIFIED_SUFFIX,
    BankFileName,
    find_bank_file_name,
)
from aoebank.model.finding import Finding, Location, make_finding
from aoebank.model.json_value import ExactFloat
from aoebank.model.record import with_raw
from aoebank.testing.factories import make_provenance, make_record


@pytest.mark.parametrize(
    ("name", "soc_version", "core_num", "core_type", "op_type"),
    [
        ("Ascend910B1_25_AiCore_matmul.json", "Ascend910B1", 25, "AiCore", "matmul"),
        ("Ascend910_9391_24_AiCore_conv2d.json", "Ascend910_9391", 24, "AiCore", "conv2d"),
        ("Ascend910B4-1_20_AiCore_a_b.json", "Ascend910B4-1", 20, "AiCore", "a_b"),
        ("BS9SX2AB_48_VectorCore_x.json", "BS9SX2AB", 48, "VectorCore", "x"),
        ("x86-64-v4_zen5_2_AiCore_Softmax.json", "x86-64-v4_zen5", 2, "AiCore", "Softmax"),
    ],
)
def test_file_name_keeps_soc_version_verbatim(
    name: str, soc_version: str, core_num: int, core_type: str, op_type: str
) -> None:
    expected = BankFileName(
        soc_version=soc_version, core_num=core_num, core_type=core_type, op_type=op_type
    )
    assert find_bank_file_name(name) == expected
    assert str(expected) == name


def test_runtime_bank_name_keeps_its_suffix_apart_from_the_op_type() -> None:
    name = find_bank_file_name("Ascend310P3_8_AiCore_MatMulV3_runtime_kb.json")
    assert name is not None
    assert (name.op_type, name.suffix) == ("MatMulV3", RUNTIME_SUFFIX)


@pytest.mark.parametrize(
    "name",
    [
        "matmul.json",
        "Ascend910_AiCore_matmul.json",
        "Ascend910_32_AICORE_matmul.json",
        "Ascend910_032_AiCore_matmul.json",
        "_32_AiCore_matmul.json",
        "a_1_AiCore_.json",
        "Ascend910_32_AiCore_matmul.json.aoe",
        "",
    ],
)
def test_other_names_are_no_bank_file_names(name: str) -> None:
    assert find_bank_file_name(name) is None


@given(
    soc=st.from_regex(r"[A-Za-z0-9_-]{1,12}", fullmatch=True),
    core_num=st.integers(0, 99),
    core_type=st.sampled_from(CORE_TYPES),
    op_type=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9]{0,9}", fullmatch=True),
    suffix=st.sampled_from((UNIFIED_SUFFIX, RUNTIME_SUFFIX)),
)
def test_file_name_round_trip(
    soc: str, core_num: int, core_type: str, op_type: str, suffix: str
) -> None:
    name = BankFileName(
        soc_version=soc, core_num=core_num, core_type=core_type, op_type=op_type, suffix=suffix
    )
    assert find_bank_file_name(str(name)) == name


@pytest.mark.parametrize("soc_version", ["", "a/b", "../x"])
def test_file_name_refuses_what_would_leave_the_folder(soc_version: str) -> None:
    with pytest.raises(ValueError):
        BankFileName(soc_version=soc_version, core_num=1, op_type="x")


@pytest.mark.parametrize("cost", [0.0, -1.0, float("nan"), float("inf")])
def test_record_refuses_a_time_that_is_none(cost: float) -> None:
    with pytest.raises(ValueError, match="cost_us"):
        make_record(cost_us=cost)


def test_replacing_a_field_drops_the_bytes_a_record_was_read_from() -> None:
    record = with_raw(make_record(), b"as it stood in the file")
    assert record.raw == b"as it stood in the file"
    assert replace(record, origin="someone").raw is None


def test_bytes_and_place_take_no_part_in_equality() -> None:
    place = Location(path=Path("a"), line=3, column=1)
    assert with_raw(make_record(location=place), b"x") == make_record()


@pytest.mark.parametrize(
    "time",
    [
        "yesterday",
        "2026-01-02",
        "2026-01-02T03:04:05",
        "2026-02-30T00:00:00Z",
        "2026-01-02T03:04:05+02:00",
        "2026-1-2T03:04:05Z",
    ],
)
def test_provenance_refuses_a_time_not_in_utc(time: str) -> None:
    with pytest.raises(ValueError, match="RFC 3339"):
        make_provenance("a" * 32, time=time)


def test_provenance_refuses_a_negative_speedup() -> None:
    with pytest.raises(ValueError, match="speedup_low"):
        make_provenance("a" * 32, speedup_low=-1.0)


def test_finding_takes_the_severity_of_its_code() -> None:
    for code, meaning in CODES.items():
        finding = make_finding(code, Location(path=Path("a")), "wrong")
        assert finding.severity is meaning.severity


def test_finding_refuses_an_unknown_code() -> None:
    with pytest.raises(ValueError, match="AB999"):
        Finding(code="AB999", location=Location(path=Path("a")), message="wrong")


def test_error_composes_where_what_got_expected_and_hint() -> None:
    error = RecordError(
        "member is missing",
        path=Path("a.json"),
        line=2,
        column=5,
        pointer="/k/0",
        got="a list",
        expected="an object",
        hint="mend it",
    )
    assert str(error) == (
        "a.json:2:5: /k/0: member is missing (got a list, expected an object)\nhint: mend it"
    )


def test_errors_are_also_the_builtin_people_catch_and_cross_processes() -> None:
    error = BankNotFoundError("does not exist", variable="TUNE_BANK_PATH", path=Path("/x"))
    assert isinstance(error, FileNotFoundError)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.variable) == (str(error), "TUNE_BANK_PATH")


def test_exact_float_survives_pickling_with_its_spelling() -> None:
    number = pickle.loads(pickle.dumps(ExactFloat("1e-4")))
    assert (number, number.text) == (0.0001, "1e-4")
