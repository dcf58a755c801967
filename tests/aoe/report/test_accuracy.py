"""What a model gave up for its speed, told to its user."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from support.engine.tuning import make_kernel, make_opat_result, make_tuned

from aoe.report.tuning import OperatorTuningReport
from aoe.runs.operators.result import OpatResult
from aoe.schedule import Schedule
from aoe.tasks.operators.chosen_kernel import ChosenKernel
from aoe.tasks.operators.operators import ModelNode
from aoe.tuner.precision.constraint import DEFAULT, Trade
from aoe.tuner.precision.settings import PrecisionMode, PrecisionSettings
from aoe.validation.accuracy import HeldAccuracy
from aoe.workload import Precision
from aoebank import emit


def _lower(number: int) -> ChosenKernel:
    kernel = make_kernel(number, gain_us=100.0 * (number + 1))
    source = replace(
        kernel.source,
        name=f"lower{number}",
        workload=replace(kernel.source.workload, precision=Precision.BFLOAT16),
        schedule=Schedule(algorithm="direct_bf16"),
    )
    return replace(kernel, source=source)


def _result(*, roll_back: bool = False, holds: bool = True) -> OpatResult:
    """Return a run that lowered two operators; the first goes back if `roll_back`."""
    kernels = (_lower(0), _lower(1))
    kept = kernels[1:] if roll_back else kernels
    trade = Trade(
        lowered=frozenset(kernel.source.name for kernel in kept),
        roll_back=("lower0",) if roll_back else (),
        value=0.99951,
        at_first=0.98 if roll_back else 0.99951,
        alone={"lower0": 0.981, "lower1": 0.99952} if roll_back else {},
        holds=holds,
    )
    held = HeldAccuracy(
        constraint=DEFAULT, trade=trade, kernels=kept, weighed=kernels, sets=1, made_up=True
    )
    exact = make_tuned("conv1")
    workload = replace(exact.operator.workload, precision=Precision.BFLOAT16)
    lower = replace(exact, operator=replace(exact.operator, workload=workload))
    result = make_opat_result(exact, lower)
    return replace(
        result,
        validation=replace(result.validation, kept=kept, accuracy=held),
        allowed=PrecisionSettings(mode=PrecisionMode.MIXED_BFLOAT16),
    )


def _told(result: OpatResult, capsys: pytest.CaptureFixture[str]) -> str:
    emit(OperatorTuningReport(result=result), as_json=False, no_color=True)
    return capsys.readouterr().out


def test_every_headline_says_the_precision(capsys: pytest.CaptureFixture[str]) -> None:
    text = _told(_result(), capsys)
    assert "whole model in bfloat16: 1.000 ms" in text
    assert text.splitlines()[-1].endswith("Performance improved by 50.00% (bfloat16)")
    assert "accuracy: cosine 0.99951 on made-up inputs (cosine >= 0.999)" in text
    rows = [line for line in text.splitlines() if "conv1" in line]
    assert len(rows) == 2
    assert "float32" in rows[0] and "bfloat16" in rows[1]
    assert "put back" not in text


def test_float32_says_nothing_of_precision(capsys: pytest.CaptureFixture[str]) -> None:
    text = _told(make_opat_result(make_tuned("conv1")), capsys)
    assert "precision" not in text
    assert "accuracy" not in text


def test_trade_is_a_table_of_accuracy_against_speed(capsys: pytest.CaptureFixture[str]) -> None:
    text = _told(_result(roll_back=True), capsys)
    assert "accuracy against speed, cosine >= 0.999" in text
    first, second = (
        next(line for line in text.splitlines() if line.startswith(name) and "bfloat16" in line)
        for name in ("n0 ", "n1 ")
    )
    assert "100.0" in first and "0.981" in first and "put back" in first
    assert "200.0" in second and "0.99952" in second and "yes" in second
    assert text.index("\nn1 ") < text.index("\nn0 ")
    assert "1 of 2 kernels put back to keep it: cosine was 0.98 with all of them" in text


def test_trade_names_operators_as_the_table_above_it_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = _result()
    held = result.validation.accuracy
    assert held is not None
    (exact, lower) = result.operators
    named = replace(lower.operator, model_nodes=(ModelNode(name="head/mish", op_type="Exp"),))
    weighed = (replace(held.weighed[0], key=named.key), *held.weighed[1:])
    validation = replace(result.validation, accuracy=replace(held, weighed=weighed))
    operators = (exact, replace(lower, operator=named))
    text = _told(replace(result, operators=operators, validation=validation), capsys)
    operator, _, trade = text.partition("accuracy against speed")
    assert "\nhead/mish " in operator and "\nhead/mish " in trade and "\nn1 " in trade


def test_what_there_was_no_time_for_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    result = _result(roll_back=True)
    held = result.validation.accuracy
    assert held is not None
    late = replace(held.trade, value=math.nan, at_first=math.nan, alone={}, in_time=False)
    validation = replace(result.validation, accuracy=replace(held, trade=late))
    text = _told(replace(result, validation=validation), capsys)
    assert "accuracy: cosine not measured for want of time (cosine >= 0.999)" in text
    assert "put back to keep it: no time was left to run the model with them" in text
    assert "nan" not in text


def test_missed_bound_is_shouted(capsys: pytest.CaptureFixture[str]) -> None:
    assert "MISSED, even in float32" in _told(_result(holds=False), capsys)


def test_summary_holds_the_trade_and_is_json() -> None:
    found = json.loads(json.dumps(_result(roll_back=True).summary()))
    assert (found["precision"], found["precision_mode"]) == ("bfloat16", "allow_mix_precision_bf16")
    assert [row["precision"] for row in found["operators"]] == ["float32", "bfloat16"]
    accuracy = found["accuracy"]
    assert accuracy["constraint"] == "cosine >= 0.999"
    assert accuracy["holds"] and accuracy["made_up_inputs"]
    assert accuracy["value_before_putting_back"] == 0.98
    assert [
        (row["kernel"], row["put_back"], row["value_alone"]) for row in accuracy["kernels"]
    ] == [
        ("lower0", True, 0.981),
        ("lower1", False, 0.99952),
    ]
    plain = make_opat_result(make_tuned("conv1")).summary()
    assert (plain["precision"], plain["accuracy"]) == ("float32", None)
    assert plain["strict_fp32"] is False
