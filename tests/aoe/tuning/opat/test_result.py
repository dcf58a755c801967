"""Reports of a run: where they are, that they are strict JSON, that nothing overwrites."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.engine.families import chain_workload
from support.engine.tuning import (
    guess_of,
    make_estimate,
    make_kernel,
    make_measurement,
    make_operator,
)

from aoe.execute.accuracy import Deviation
from aoe.execute.tasks import ModelComparison
from aoe.graph.regions import Refusal
from aoe.measurement import Measurement, Outcome
from aoe.ort.profile import ModelProfile
from aoe.results.files import RepoOutcome, TuningResult
from aoe.results.opat import OpatReport
from aoe.schedule import Configuration
from aoe.testing.fakes import make_target
from aoe.tuning.opat.judge import Judgement
from aoe.tuning.opat.loop import SearchResult, TrialRecord
from aoe.tuning.opat.operator import TunedOperator
from aoe.tuning.opat.result import OpatResult, summary, write_details
from aoe.tuning.workbench import ResultPlaces


def _written(folder: Path, result: OpatResult) -> None:
    write_details(replace(result, places=replace(result.places, results=folder)))


def _tuned(name: str, extent: int = 8, *, searched: bool = True) -> TunedOperator:
    workload = chain_workload(("Exp",), shape=(1, 8, extent, extent))
    schedule, guess = guess_of(workload)
    failure = Measurement.failure(Outcome.COMPILE, "illegal")
    search = SearchResult(
        configuration=guess,
        schedule=schedule,
        measurement=make_measurement(2.0),
        estimate=make_estimate(2.0),
        trials=(
            TrialRecord(configuration=guess, measurement=make_measurement(2.0)),
            TrialRecord(configuration=Configuration({"a": 1}), measurement=failure),
        ),
    )
    return TunedOperator(
        operator=make_operator(workload, op_names=(name,)),
        outcome=RepoOutcome.ADD,
        reason="better than the default",
        schedule=schedule,
        speedup=2.0,
        estimate=make_estimate(2.0),
        before_us=100.0,
        after_us=50.0,
        search=search if searched else None,
    )


def _result(*tuned: TunedOperator, max_abs_err: float = 1e-6) -> OpatResult:
    comparison = ModelComparison(
        measurement=make_measurement(1.5),
        deviation=Deviation(max_abs_err=max_abs_err, excess=0.1),
    )
    kernel = make_kernel(1)
    kept = (replace(kernel, key=tuned[0].operator.key),) if tuned else ()
    profile = ModelProfile(node_us={"a": 30.0, "b": 70.0}, model_us=110.0, tensors={})
    return OpatResult(
        model={"name": "net", "path": "net.onnx", "sha256": "0" * 64},
        target=make_target(),
        versions={"aoe": "0.1.0"},
        bank=Path("bank"),
        places=ResultPlaces(
            tuning_name="net_20260101",
            om_file=Path("out/net_tune.om"),
            results=Path("out"),
            result_file=Path("out/aoe_result_opat_20260101000000000_1.json"),
        ),
        operators=tuned,
        refusals=(Refusal(node="r", op_type="Relu", reason="touches 8 elements only"),),
        judgement=Judgement(
            kept=kept, dropped={}, comparison=comparison, estimate=make_estimate(1.5)
        ),
        profile=profile,
        tuned_profile=replace(profile, node_us={"a": 5.0}),
        report=OpatReport(tuning_name="net_20260101", result=TuningResult.SUCCESSFUL),
        seconds=12.34,
    )


def _strict(file: Path) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"{file}: {word}")

    return json.loads(file.read_text(), parse_constant=refuse)


def test_everything_is_where_aoe_s_users_look(tmp_path: Path) -> None:
    _written(tmp_path, _result(_tuned("conv1")))
    assert {str(f.relative_to(tmp_path)) for f in tmp_path.rglob("*") if f.is_file()} == {
        "summary.json",
        "op_tuning/conv1.json",
        "profiling/before_tuning/op_summary.csv",
        "profiling/after_tuning/op_summary.csv",
    }


def test_summary_has_the_figures_and_what_was_left(tmp_path: Path) -> None:
    _written(tmp_path, _result(_tuned("conv1"), _tuned("conv2", 16)))
    summary = _strict(tmp_path / "summary.json")
    assert summary["schema"] == "aoe.summary/1"
    assert summary["om"] == "net_tune.om"
    assert summary["speedup"] == 1.5
    assert summary["improvement_percent"] == 50.0
    assert summary["target"]["soc_version"] == "x86-64-test"
    assert [row["in_model"] for row in summary["operators"]] == [True, False]
    assert [row["op_names"] for row in summary["operators"]] == [["conv1"], ["conv2"]]
    assert summary["left_to_onnxruntime"] == [
        {"node": "r", "op_type": "Relu", "reason": "touches 8 elements only"}
    ]


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_error_that_is_no_number_is_null(tmp_path: Path, value: float) -> None:
    _written(tmp_path, _result(_tuned("conv1"), max_abs_err=value))
    assert _strict(tmp_path / "summary.json")["max_abs_err"] is None


def test_operator_file_lists_every_trial_with_its_outcome(tmp_path: Path) -> None:
    _written(tmp_path, _result(_tuned("conv1")))
    detail = _strict(tmp_path / "op_tuning" / "conv1.json")
    assert [trial["outcome"] for trial in detail["trials"]] == ["correct", "compile"]
    assert [trial["speedup"] for trial in detail["trials"]] == [2.0, None]
    assert detail["trials"][1]["detail"] == "illegal"
    assert detail["strategy"]
    assert detail["workload"]["op_type"] == "elementwise"


def test_operator_that_was_not_searched_has_no_trials(tmp_path: Path) -> None:
    _written(tmp_path, _result(_tuned("conv1", searched=False)))
    assert _strict(tmp_path / "op_tuning" / "conv1.json")["trials"] == []


@pytest.mark.parametrize(
    "names",
    [
        ("a/b", "a_b"),
        ("Conv", "conv"),
        ("x" * 300, "x" * 300 + "y"),
        ("日" * 200, "日" * 201),
        ("../evil", ".."),
        ("", "_"),
    ],
)
def test_odd_and_long_names_give_distinct_files(tmp_path: Path, names: tuple[str, str]) -> None:
    tuned = [_tuned(name, extent) for name, extent in zip(names, (8, 16), strict=True)]
    _written(tmp_path, _result(*tuned))
    files = sorted((tmp_path / "op_tuning").iterdir())
    assert len(files) == 2
    assert {_strict(file)["key"] for file in files} == {t.operator.key for t in tuned}
    assert {path.name for path in tmp_path.iterdir()} == {
        "op_tuning",
        "profiling",
        "summary.json",
    }


def test_profile_is_sorted_by_time_with_shares(tmp_path: Path) -> None:
    _written(tmp_path, _result(_tuned("conv1")))
    with (tmp_path / "profiling" / "before_tuning" / "op_summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["node"] for row in rows] == ["b", "a"]
    assert [float(row["share_percent"]) for row in rows] == [70.0, 30.0]


def test_model_without_operators_is_reported_too(tmp_path: Path) -> None:
    _written(tmp_path, _result())
    assert _strict(tmp_path / "summary.json")["operators"] == []


def test_summary_is_what_its_file_says(tmp_path: Path) -> None:
    result = _result(_tuned("conv1"), _tuned("conv2", 16))
    _written(tmp_path, result)
    assert _strict(tmp_path / "summary.json") == summary(result)


def test_speedup_is_that_of_the_model_if_it_keeps_a_kernel() -> None:
    assert _result(_tuned("conv1")).speedup == 1.5
    assert _result().speedup == 1.0
