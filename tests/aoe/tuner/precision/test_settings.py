"""What a user may allow, and what contradicts itself or the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.engine.fakes import make_target

from aoe.errors import OptionError, TargetError
from aoe.target import InstructionSet
from aoe.tuner.precision.mixlist import Listing
from aoe.tuner.precision.settings import PrecisionMode, PrecisionSettings, parse_precision
from aoe.workload import Precision

_ABLE = make_target(bf16_dot=InstructionSet(cpu_features=("avx512_bf16",)))


def test_nothing_asked_keeps_float32() -> None:
    settings = parse_precision()
    assert settings == PrecisionSettings()
    assert settings.mode.lowest is Precision.FLOAT32
    settings.check(make_target())


@pytest.mark.parametrize("mode", ["allow_fp32_to_bf16", "allow_mix_precision_bf16"])
def test_lower_precision_needs_a_cpu_that_has_it(mode: str) -> None:
    settings = parse_precision(mode)
    assert settings.mode.lowest is Precision.BFLOAT16
    settings.check(_ABLE)
    with pytest.raises(TargetError, match="this CPU has no bfloat16 instructions") as caught:
        settings.check(make_target())
    assert caught.value.hint == "leave --precision_mode out to compute in float32"
    assert "Test CPU" in str(caught.value)


def test_integers_are_allowed_on_every_cpu_with_all_above_them() -> None:
    settings = parse_precision("allow_mix_precision_int8")
    assert settings.mode.lowered == (Precision.BFLOAT16, Precision.INT8)
    assert settings.mode.lowest is Precision.INT8
    assert str(settings.constraint) == "cosine >= 0.999"
    settings.check(make_target())
    settings = parse_precision("allow_mix_precision_int4")
    assert settings.mode.lowered == (Precision.BFLOAT16, Precision.INT8, Precision.INT4)
    settings.check(make_target())


@pytest.mark.parametrize(
    ("mode", "problem"),
    [
        ("allow_mix_precision", "not available here"),
        ("allow_fp32_to_fp16", "not available here"),
        ("force_fp32", "not available here"),
        ("fast", "unknown"),
    ],
)
def test_other_modes_are_refused_by_name(mode: str, problem: str) -> None:
    with pytest.raises(
        OptionError, match=rf"--precision_mode: {problem} \(got {mode}, expected"
    ) as caught:
        parse_precision(mode)
    assert bool(caught.value.hint) is (problem != "unknown")  # every mode of CANN has a way out


def test_lists_are_read_and_need_a_mode_they_apply_to(tmp_path: Path) -> None:
    file = tmp_path / "lists.json"
    file.write_text('{"black-list": {"to-add": ["Gemm"]}}')
    settings = parse_precision(PrecisionMode.MIXED_BFLOAT16, file)
    assert settings.lists.listings == {"Gemm": Listing.DENIED}
    with pytest.raises(OptionError, match="says nothing while float32 is kept"):
        parse_precision(None, file)


def test_strict_float32_contradicts_a_lower_precision() -> None:
    assert parse_precision(strict=True).strict
    with pytest.raises(OptionError, match="--strict_fp32: contradicts a lower precision"):
        parse_precision("allow_fp32_to_bf16", strict=True)
