"""Fingerprints: what makes a record stale, what makes it doubtful, what nobody noted."""

from __future__ import annotations

from typing import Any

import pytest

from aoebank import Drift, compare_fingerprints
from aoebank.model.fingerprint import UNKNOWN

_THEN = {
    "soc_version": "x86-64-zen5",
    "core_num": 2,
    "cpu_model": "EPYC 9R45",
    "features": "avx2-fma-avx512",
    "onnxruntime": "1.30.0",
    "halide": "21.0.0",
    "governor": "performance",
    "kernel_source": "0123456789abcdef",
}


def _drift(**now: Any) -> Drift:
    return compare_fingerprints(_THEN, {**_THEN, **now})


def test_same_environment_has_no_drift() -> None:
    assert _drift() == Drift()
    assert not _drift().is_stale


@pytest.mark.parametrize(
    ("now", "sentence"),
    [
        ({"soc_version": "x86-64-zen4"}, "target x86-64-zen5 -> x86-64-zen4: made for another one"),
        ({"kernel_source": "fedcba9876543210"}, "kernel source changed: stale"),
        ({"features": "avx2-fma"}, "instructions that are not here: avx512"),
    ],
)
def test_what_code_depends_on_is_hard(now: dict[str, str], sentence: str) -> None:
    drift = _drift(**now)
    assert drift.is_stale
    assert drift == Drift(hard=(sentence,))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("onnxruntime", "1.31.0"),
        ("halide", "22.0.0"),
        ("cpu_model", "EPYC 9R14"),
        ("governor", "powersave"),
        ("core_num", 4),
    ],
)
def test_what_times_depend_on_is_soft(name: str, value: object) -> None:
    drift = _drift(**{name: value})
    sentence = f"{name} {_THEN[name]} -> {value}: soft mismatch, to be checked again"
    assert drift == Drift(soft=(sentence,))
    assert not drift.is_stale


def test_more_instructions_than_then_are_no_drift() -> None:
    assert _drift(features="avx2-fma-avx512-vnni") == Drift()


def test_several_mismatches_are_all_told() -> None:
    drift = _drift(onnxruntime="1.31.0", kernel_source="0", cpu_model="other")
    assert str(drift) == (
        "kernel source changed: stale; "
        "cpu_model EPYC 9R45 -> other: soft mismatch, to be checked again; "
        "onnxruntime 1.30.0 -> 1.31.0: soft mismatch, to be checked again"
    )


def test_what_one_side_does_not_know_is_not_compared() -> None:
    assert compare_fingerprints(_THEN, {"onnxruntime": "1.30.0"}) == Drift()
    assert (
        compare_fingerprints({"cpu_model": "EPYC 9R45"}, {**_THEN, "kernel_source": ""}).hard == ()
    )


@pytest.mark.parametrize("then", [None, {}])
def test_record_without_fingerprint_is_doubtful_not_stale(then: dict[str, str] | None) -> None:
    assert compare_fingerprints(then, _THEN) == Drift(soft=(UNKNOWN,))


def test_older_line_without_kernel_source_is_doubtful() -> None:
    then = {name: value for name, value in _THEN.items() if name != "kernel_source"}
    (sentence,) = compare_fingerprints(then, _THEN).soft
    assert sentence == "kernel source was not noted: to be checked again"
