"""What records of quantised operators compute, in the words of `aoebank`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.contracts.kernels import operation, plain
from support.engine.quantised import quantised_convolution

import aoebank
from aoe.workload import Workload, workload_to_json
from aoebank import Record, emit, make_unified_record
from aoebank.reading.ls import ListReport
from aoebank.reading.show import ShowReport


def _convolution(**changed: Any) -> Workload:
    return quantised_convolution((64, 64), (56, 56), (3, 3), pad=1, **changed)


CASES = (
    (
        _convolution(),
        "QLinearConv 3x3 64->64: 1x56x56x64 uint8, weights int8 symmetric per channel",
    ),
    (
        _convolution(scale_of_channels=False),
        "QLinearConv 3x3 64->64: 1x56x56x64 uint8, weights int8 symmetric per tensor",
    ),
    (
        _convolution(weights="uint8", zero_point=3),
        "QLinearConv 3x3 64->64: 1x56x56x64 uint8, weights uint8 zero point 3 per channel",
    ),
    (
        _convolution(levels="int8", made="int8", group=64, stride=2),
        (
            "QLinearConv 3x3 64->64 depthwise stride 2x2: 1x56x56x64 int8, "
            "weights int8 symmetric per channel, result 1x28x28x64 int8"
        ),
    ),
    (
        _convolution(added=True, group=4),
        (
            "QLinearConv 3x3 64->64 in 4 groups + QLinearAdd: 1x56x56x64 uint8, 1x56x56x64 uint8, "
            "weights int8 symmetric per channel"
        ),
    ),
    (
        Workload(
            op_type="matmul",
            inputs=(
                plain(8, 29),
                plain(29, 17, dtype="int8", constant=True),
                plain(constant=True),
                plain(dtype="int8", constant=True),
            ),
            operations=(operation("DynamicQuantizeMatMul", "x0 x1 x2 x3", domain="com.microsoft"),),
            output=plain(8, 17),
        ),
        (
            "DynamicQuantizeMatMul 29->17: 8x29 float32, weights int8 any zero point per tensor, "
            "result 8x17 float32"
        ),
    ),
    (
        Workload(
            op_type="elementwise",
            inputs=(plain(1, 8, 6, 6), plain(8)),
            operations=(operation("QuantizeLinear", "x0 x1", axis=1),),
            output=plain(1, 8, 6, 6, dtype="uint8"),
        ),
        "QuantizeLinear per channel: 1x8x6x6 float32, 8 float32, result 1x8x6x6 uint8",
    ),
)


def _record(workload: Workload, cost_us: float) -> Record:
    return make_unified_record(
        workload=workload_to_json(workload), strategy={"a": 1}, cost_us=cost_us, origin="aoe"
    )


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bank")
    _write(root, 10.0)
    return root


def _write(root: Path, cost_us: float) -> Path:
    bank = aoebank.Bank(root)
    file = bank.unified_file(soc_version="x86-64-zen4", core_num=1, op_type="some")
    bank.put(file, [_record(workload, cost_us) for workload, _ in CASES], [])
    return file


@pytest.mark.parametrize(("workload", "words"), CASES, ids=[words for _, words in CASES])
def test_show_tells_types_zero_points_and_granularity(
    bank: Path, workload: Workload, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    emit(ShowReport(result=aoebank.show(_record(workload, 1.0).key, bank)), as_json=False)
    assert f"computes: {words} strategy:" in " ".join(capsys.readouterr().out.split())


def test_listing_a_file_tells_them_too(bank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file,) = (one for one in bank.rglob("*.json"))
    emit(ListReport(result=aoebank.list_bank(file)), as_json=False)
    told = capsys.readouterr().out
    for _, words in CASES:
        assert words in told


def test_diff_tells_them_too(bank: Path, tmp_path: Path) -> None:
    _write(tmp_path, 20.0)
    told = str(aoebank.diff(bank, tmp_path))
    for _, words in CASES:
        assert words in told
