"""Values of the bank layer keep their invariants."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from aoebank import BankNotFoundError, Finding, RecordError
from aoebank.model.codes import CODES
from aoebank.model.finding import Location, make_finding
from aoebank.model.json_value import ExactFloat
from aoebank.model.record import with_raw
from aoebank.testing.factories import make_provenance, make_record


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
