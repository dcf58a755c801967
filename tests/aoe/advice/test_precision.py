"""Lower precision as an action: what a scripted tuning gives, in places that are scratch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.engine.tuning import make_estimate, make_kernel, make_measurement

from aoe.advice.precision import try_precision
from aoe.advice.trying import TrialVerdict, TriedAction
from aoe.errors import RunError
from aoe.profiling.run import ProfileSettings
from aoe.tuner.mode import TuneSettings
from aoe.tuner.precision.settings import parse_precision
from aoe.workload import Precision


def _lowered(kernel: Any) -> Any:
    workload = replace(kernel.source.workload, precision=Precision.BFLOAT16)
    return replace(kernel, source=replace(kernel.source, workload=workload), op_names=("n0", "n1"))


def _result(*kernels: Any, speedup: float = 1.3) -> Any:
    validation = SimpleNamespace(
        kept=kernels,
        estimate=make_estimate(speedup, 0.01),
        comparison=SimpleNamespace(measurement=make_measurement(speedup)),
    )
    result = SimpleNamespace(validation=validation, precision=Precision.BFLOAT16)
    return SimpleNamespace(get=lambda kind: result)


def _try(folder: Path, tune: Any) -> TriedAction:
    env = {"ASCEND_WORK_PATH": "/elsewhere", "TUNE_BANK_PATH": "/bank"}
    settings = ProfileSettings(model=Path("net.onnx"), threads=1, env=env)
    precision = parse_precision("allow_mix_precision_bf16")
    return try_precision(settings, precision, folder, room_us=5.0, tune=tune)


def test_gain_is_that_of_the_judged_model(tmp_path: Path) -> None:
    asked: list[tuple[TuneSettings, dict[str, Any]]] = []

    def tune(settings: TuneSettings, **how: Any) -> Any:
        asked.append((settings, how))
        return _result(_lowered(make_kernel(0)))

    tried = _try(tmp_path, tune)
    assert tried.verdict is TrialVerdict.GAIN
    assert tried.op_names == ("n0", "n1")
    assert "allow_mix_precision_bf16: 2 operators in bfloat16" in tried.what
    ((settings, how),) = asked
    assert settings.output == tmp_path
    assert settings.tuning_time_limit_s is not None
    assert how["env"]["TUNE_BANK_PATH"] == str((tmp_path / "bank").resolve())
    assert "ASCEND_WORK_PATH" not in how["env"]


@pytest.mark.parametrize("speedup", [0.97, 1.005])
def test_what_is_not_faster_is_not_claimed(speedup: float, tmp_path: Path) -> None:
    tried = _try(tmp_path, lambda *_, **__: _result(_lowered(make_kernel(0)), speedup=speedup))
    assert tried.verdict is not TrialVerdict.GAIN


def test_gain_of_kernels_in_float32_is_none_of_precision(tmp_path: Path) -> None:
    tried = _try(tmp_path, lambda *_, **__: _result(make_kernel(0)))
    assert (tried.verdict, tried.estimate) == (TrialVerdict.NO_GAIN, None)
    assert tried.reason == "no kernel of lower precision was kept"


def test_tuning_that_fails_is_a_failure(tmp_path: Path) -> None:
    def tune(*_: Any, **__: Any) -> Any:
        raise RunError("net", "does not run")

    tried = _try(tmp_path, cast(Any, tune))
    assert (tried.verdict, tried.reason) == (TrialVerdict.FAILED, "net: does not run")
