"""Reports of a run: where they are, that they are strict JSON, that nothing overwrites."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.engine.profiles import make_operator_profile
from support.engine.tuning import make_measurement, make_opat_result, make_tuned

from aoe.kernels.algorithms import KNOB
from aoe.measurement import Measurement, Outcome
from aoe.results.files import Gain, GainKind, RepoOutcome
from aoe.results.opat import opat_report_to_json
from aoe.runs.model_mode import write_run_summary
from aoe.runs.operators.result import (
    OpatResult,
    gains_of,
    has_failed,
    operator_result,
    write_details,
)
from aoe.schedule import Configuration
from aoe.tasks.operators.operator import TunedOperator
from aoe.tuner.task_search import SearchResult, TrialRecord
from aoe.workload import Precision


def _written(folder: Path, result: OpatResult) -> None:
    placed = replace(result, places=replace(result.places, results=folder))
    write_details(placed)
    write_run_summary([placed])


_IMPORTS = """
import sys
import aoe.report.tuning, aoe.runs.operators.run, aoe.runs.model_mode, aoe.runs.run
found = [name for name in sys.modules if name.startswith("aoe.runs.subgraphs")]
assert not found, found
"""


def test_operator_tuning_loads_nothing_of_subgraph_tuning() -> None:
    command = [sys.executable, "-c", _IMPORTS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


def _strict(file: Path) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"{file}: {word}")

    return json.loads(file.read_text(), parse_constant=refuse)


def test_everything_is_where_aoe_s_users_look(tmp_path: Path) -> None:
    _written(tmp_path, make_opat_result(make_tuned("conv1")))
    assert {str(f.relative_to(tmp_path)) for f in tmp_path.rglob("*") if f.is_file()} == {
        "summary.json",
        "op_tuning/Exp_float32.json",
        "profiling/before_tuning/op_summary.csv",
        "profiling/after_tuning/op_summary.csv",
    }


def test_summary_has_the_figures_and_what_was_left(tmp_path: Path) -> None:
    _written(tmp_path, make_opat_result(make_tuned("conv1"), make_tuned("conv2", 16)))
    summary = _strict(tmp_path / "summary.json")
    assert summary["schema"] == "aoe.summary/1"
    assert summary["om"] == "net_tune.om"
    assert summary["speedup"] == 1.5
    assert summary["improvement_percent"] == 50.0
    assert summary["performance_improvement"] == "50.00%"
    assert (summary["baseline_ms"], summary["tuned_ms"]) == (1.0, 0.6667)
    assert (summary["total_ops"], summary["tuned_ops"], summary["tuning_time"]) == (2, 1, "12s")
    assert summary["top_improved_ops"] == [{"op": "conv1", "improvement": "100.00%"}]
    assert summary["target"]["soc_version"] == "x86-64-test"
    assert [row["in_model"] for row in summary["operators"]] == [True, False]
    assert [row["op_names"] for row in summary["operators"]] == [["conv1"], ["conv2"]]
    assert summary["left_to_onnxruntime"] == [
        {"node": "r", "op_type": "Relu", "reason": "touches 8 elements only"}
    ]


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_error_that_is_no_number_is_null(tmp_path: Path, value: float) -> None:
    _written(tmp_path, make_opat_result(make_tuned("conv1"), max_abs_err=value))
    assert _strict(tmp_path / "summary.json")["max_abs_err"] is None


def test_operator_file_lists_every_trial_with_its_outcome(tmp_path: Path) -> None:
    _written(tmp_path, make_opat_result(make_tuned("conv1")))
    (detail,) = _strict(tmp_path / "op_tuning" / "Exp_float32.json")
    assert detail["op_names"] == ["conv1"]
    assert [trial["outcome"] for trial in detail["trials"]] == ["correct", "compile"]
    assert [trial["speedup"] for trial in detail["trials"]] == [2.0, None]
    assert detail["trials"][1]["detail"] == "illegal"
    assert detail["strategy"]
    assert detail["workload"]["op_type"] == "elementwise"


def test_operator_that_was_not_searched_has_no_trials(tmp_path: Path) -> None:
    _written(tmp_path, make_opat_result(make_tuned("conv1", searched=False)))
    assert _strict(tmp_path / "op_tuning" / "Exp_float32.json")[0]["trials"] == []


def test_workloads_of_one_type_and_precision_share_a_file(tmp_path: Path) -> None:
    """Whatever the nodes are called."""
    names = ("a/b", "x" * 300, "../evil", "")
    tuned = [make_tuned(name, 8 * number) for number, name in enumerate(names, start=1)]
    _written(tmp_path, make_opat_result(*tuned))
    (file,) = (tmp_path / "op_tuning").iterdir()
    assert [detail["key"] for detail in _strict(file)] == [t.operator.key for t in tuned]
    assert [detail["op_names"] for detail in _strict(file)] == [[name] for name in names]


def test_profile_is_sorted_by_time_with_shares(tmp_path: Path) -> None:
    _written(tmp_path, make_opat_result(make_tuned("conv1")))
    with (tmp_path / "profiling" / "before_tuning" / "op_summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["node"] for row in rows] == ["b", "a"]
    assert [float(row["share_percent"]) for row in rows] == [70.0, 30.0]


def test_profile_has_the_figures_of_the_screen_beside_its_own(tmp_path: Path) -> None:
    tuned = make_tuned("a")
    _written(tmp_path, make_opat_result(tuned))
    with (tmp_path / "profiling" / "before_tuning" / "op_summary.csv").open() as file:
        measured = {row["node"]: row["measured_us"] for row in csv.DictReader(file)}
    (operator,) = _strict(tmp_path / "summary.json")["operators"]
    assert measured == {"a": str(operator["before_us"]), "b": ""}


def test_profile_has_the_figures_of_aoe_profile(tmp_path: Path) -> None:
    figures = (
        make_operator_profile(
            "a", median_us=30.0, roofline_us=6.0, op_names=("conv", "relu"), op_types=("C", "R")
        ),
    )
    _written(tmp_path, replace(make_opat_result(), figures=(figures, ())))
    with (tmp_path / "profiling" / "before_tuning" / "op_summary.csv").open() as file:
        rows = {row["node"]: row for row in csv.DictReader(file)}
    known = rows["a"]
    assert (known["op_names"], known["output_shapes"]) == ("conv relu", "1x16x8x8")
    assert (known["roofline_us"], known["lost_us"]) == ("6.0", "24.0")
    assert (known["peak_percent"], known["bound"]) == ("20.0", "compute")
    assert rows["b"]["op_names"] == ""


def test_profile_has_no_percentage_above_all_of_the_peak(tmp_path: Path) -> None:
    """A kernel by Winograd's method does less than the definition of its operator says."""
    figures = (make_operator_profile("a", median_us=3.0, roofline_us=6.0),)
    _written(tmp_path, replace(make_opat_result(), figures=(figures, ())))
    with (tmp_path / "profiling" / "before_tuning" / "op_summary.csv").open() as file:
        rows = {row["node"]: row for row in csv.DictReader(file)}
    assert (rows["a"]["peak_percent"], rows["a"]["lost_us"]) == ("100.0", "0.0")


def test_model_without_operators_is_reported_too(tmp_path: Path) -> None:
    _written(tmp_path, make_opat_result())
    assert _strict(tmp_path / "summary.json")["operators"] == []


def test_summary_is_what_its_file_says(tmp_path: Path) -> None:
    result = make_opat_result(make_tuned("conv1"), make_tuned("conv2", 16))
    _written(tmp_path, result)
    found = _strict(tmp_path / "summary.json")
    assert {name: found[name] for name in result.summary()} == result.summary()


def test_speedup_is_that_of_the_model_if_it_keeps_a_kernel() -> None:
    assert make_opat_result(make_tuned("conv1")).speedup == 1.5
    assert make_opat_result().speedup == 1.0


def _trial(algorithm: str, tile: int, speedup: float | None) -> TrialRecord:
    failure = Measurement.failure(Outcome.COMPILE, "illegal")
    return TrialRecord(
        configuration=Configuration({KNOB: algorithm, "tile": tile}),
        measurement=failure if speedup is None else make_measurement(speedup),
    )


def _tuned(*trials: TrialRecord, best: int, after_us: float) -> TunedOperator:
    """Return an operator that took 100 us and takes `after_us` with the trial `best`."""
    search = SearchResult(configuration=trials[best].configuration, trials=trials)
    return replace(make_tuned("n"), search=search, before_us=100.0, after_us=after_us)


@pytest.mark.parametrize(
    ("trials", "expected"),
    [
        ([("a", 1, 2.0)], [(GainKind.IMPL, 100, 50)]),
        (
            [("b", 1, 3.0), ("a", 1, None), ("a", 2, 1.25), ("a", 3, 2.0)],
            [(GainKind.IMPL, 100, 80), (GainKind.SCHEDULE, 80, 50)],
        ),
        ([("a", 1, 0.5), ("a", 2, 2.0)], [(GainKind.SCHEDULE, 100, 50)]),
        ([("a", 1, 2.5), ("a", 2, 2.0)], [(GainKind.IMPL, 100, 50)]),
    ],
)
def test_gain_is_that_of_switching_one_choice(
    trials: list[tuple[str, int, float | None]], expected: list[tuple[GainKind, float, float]]
) -> None:
    tuned = _tuned(*(_trial(*trial) for trial in trials), best=-1, after_us=50.0)
    assert gains_of(tuned) == tuple(
        Gain(kind=kind, before_us=before, after_us=pytest.approx(after))
        for kind, before, after in expected
    )


@pytest.mark.parametrize(
    ("formatted_us", "first", "expected"),
    [
        (80.0, 1.25, [(GainKind.FORMAT, 100, 80), (GainKind.SCHEDULE, 80, 50)]),
        (
            80.0,
            1.6,
            [
                (GainKind.FORMAT, 100, 80),
                (GainKind.IMPL, 80, 62.5),
                (GainKind.SCHEDULE, 62.5, 50),
            ],
        ),
        (90.0, 0.5, [(GainKind.FORMAT, 100, 90), (GainKind.SCHEDULE, 90, 50)]),
        (30.0, 2.0, [(GainKind.FORMAT, 100, 50)]),
        (110.0, 2.0, [(GainKind.IMPL, 100, 50)]),
        (None, 2.0, [(GainKind.IMPL, 100, 50)]),
    ],
)
def test_layout_goes_first_and_no_more_is_its_gain_than_there_is(
    formatted_us: float | None, first: float, expected: list[tuple[GainKind, float, float]]
) -> None:
    trials = [_trial("a", 1, first), _trial("a", 2, 2.0)]
    tuned = replace(_tuned(*trials, best=-1, after_us=50.0), formatted_us=formatted_us)
    found = [(gain.kind, gain.before_us, gain.after_us) for gain in gains_of(tuned)]
    assert found == [(kind, before, pytest.approx(after)) for kind, before, after in expected]


@pytest.mark.parametrize("outcome", [RepoOutcome.RESERVED, RepoOutcome.UNSATISFIED])
def test_what_is_not_modified_gained_nothing(outcome: RepoOutcome) -> None:
    tuned = _tuned(_trial("a", 1, 2.0), best=0, after_us=50.0)
    assert gains_of(replace(tuned, outcome=outcome)) == ()


def test_operator_has_failed_if_no_candidate_was_right() -> None:
    tried = replace(_tuned(_trial("a", 1, None), best=0, after_us=50.0))
    lost = replace(tried, outcome=RepoOutcome.UNSATISFIED)
    assert has_failed(lost) and operator_result(lost).failed
    for hit in (RepoOutcome.RESERVED, RepoOutcome.UPDATE):
        assert not operator_result(replace(tried, outcome=hit)).failed
    assert not has_failed(_tuned(_trial("a", 1, None), _trial("a", 2, 0.5), best=1, after_us=200.0))
    assert not has_failed(replace(lost, search=None))
    assert not has_failed(replace(lost, search=SearchResult()))


def test_result_file_of_aoe_says_it_only_below_float32() -> None:
    tuned = make_tuned("conv1")
    report = replace(make_opat_result(tuned).report, tasks=(operator_result(tuned),))
    assert "precision" not in json.dumps(opat_report_to_json(report))
    lower = replace(report, precision=Precision.BFLOAT16)
    assert opat_report_to_json(lower)[1]["OPAT"]["precision"] == "bfloat16"
