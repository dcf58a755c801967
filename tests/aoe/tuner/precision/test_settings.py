"""What a user may allow, and what contradicts itself or the machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.engine.fakes import make_target

from aoe.errors import OptionError, TargetError
from aoe.target import InstructionSet
from aoe.tuner.precision.settings import (
    NO_LISTS,
    Listing,
    MixLists,
    PrecisionMode,
    PrecisionSettings,
    onnx_name,
    parse_precision,
    read_mix_lists,
)
from aoe.workload import Precision

_ABLE = make_target(bf16_dot=InstructionSet(cpu_features=("avx512_bf16",)))


def test_nothing_asked_keeps_float32() -> None:
    settings = parse_precision()
    assert settings == PrecisionSettings()
    assert settings.mode.lowest is Precision.FLOAT32
    settings.check(make_target())


def test_only_the_default_keeps_narrow_tensors_narrow() -> None:
    widening = [mode for mode in PrecisionMode if mode.widens]
    assert widening == [mode for mode in PrecisionMode if mode is not PrecisionMode.KEEP]
    settings = parse_precision("force_fp32", strict=True)
    assert settings.mode.lowest is Precision.FLOAT32
    assert settings.constraint is None
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


def _read(value: Any, directory: Path) -> MixLists:
    file = directory / "lists.json"
    file.write_text(value if isinstance(value, str) else json.dumps(value))
    return read_mix_lists(file)


def test_everything_is_allowed_at_first() -> None:
    assert NO_LISTS.listing("Conv", ("conv0",)) is Listing.ALLOWED


def test_file_of_cann_moves_operators_between_lists(tmp_path: Path) -> None:
    lists = _read(
        {
            "black-list": {"to-remove": ["Gemm"], "to-add": ["MatMulV2"]},
            "white-list": {"to-remove": ["ConvTranspose"], "to-add": ["Bias"]},
            "gray-list": {"to-add": ["Conv1D"], "to-remove": ["Pool"]},
        },
        tmp_path,
    )
    found = {
        kind: lists.listing(kind, ("n",))
        for kind in ("MatMul", "Gemm", "ConvTranspose", "Bias", "Conv", "Pool", "Other")
    }
    assert found == {
        "MatMul": Listing.DENIED,
        "Gemm": Listing.FOLLOWS,
        "ConvTranspose": Listing.FOLLOWS,
        "Bias": Listing.ALLOWED,
        "Conv": Listing.FOLLOWS,
        "Pool": Listing.ALLOWED,
        "Other": Listing.ALLOWED,
    }


def test_byte_order_mark_of_an_editor_is_no_part_of_the_lists(tmp_path: Path) -> None:
    lists = _read('\ufeff{"black-list": {"to-add": ["MatMul"]}}', tmp_path)
    assert lists.listing("MatMul", ("n",)) is Listing.DENIED


def test_what_is_added_outweighs_what_is_removed(tmp_path: Path) -> None:
    lists = _read(
        {"black-list": {"to-add": ["Conv2D"]}, "white-list": {"to-remove": ["Conv2D"]}}, tmp_path
    )
    assert lists.listing("Conv", ("n",)) is Listing.DENIED


def test_names_and_patterns_of_names_go_before_types(tmp_path: Path) -> None:
    lists = _read(
        {
            "black-list": {"to-add": ["Conv2D", "/head/*"]},
            "white-list": {"to-add": ["/layer[12]/Conv"]},
        },
        tmp_path,
    )
    assert lists.listing("Conv", ("/layer1/Conv",)) is Listing.ALLOWED
    assert lists.listing("Conv", ("b_nchwc", "/layer2/Conv")) is Listing.ALLOWED
    assert lists.listing("Conv", ("/layer3/Conv",)) is Listing.DENIED
    assert lists.listing("MatMul", ("/head/MatMul",)) is Listing.DENIED
    assert lists.listing("MatMul", ("/body/MatMul",)) is Listing.ALLOWED


@pytest.mark.parametrize(
    ("name", "onnx"),
    [("DepthwiseConv2D", "Conv"), ("BatchMatMulV2", "MatMul"), ("GemmV2", "Gemm"), ("Add", "Add")],
)
def test_cann_s_names_are_known(name: str, onnx: str) -> None:
    assert onnx_name(name) == onnx


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("not json", "cannot be read"),
        ([], r"not a list of CANN \(got \[\], expected an object with white-list"),
        ({"red-list": {}}, "got red-list, expected white-list or black-list or gray-list"),
        ({"black-list": ["MatMul"]}, r"lists.json: black-list: not a list of CANN"),
        ({"black-list": {"add": []}}, "got add, expected to-add or to-remove"),
        ({"black-list": {"to-add": "MatMul"}}, "black-list.to-add: .*expected a list of operators"),
        ({"black-list": {"to-add": [3]}}, "got 3, expected an operator type or a node name"),
        (
            {"black-list": {"to-add": ["Conv2D"]}, "white-list": {"to-add": ["Conv3D"]}},
            "added to two lists",
        ),
    ],
)
def test_what_cannot_be_meant_is_one_error_with_its_place(
    value: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(OptionError, match=message):
        _read(value, tmp_path)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"none.json: cannot be read: No such file"):
        read_mix_lists(tmp_path / "none.json")
