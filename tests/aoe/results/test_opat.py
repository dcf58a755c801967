"""AOE's result file of operator tuning: exact names, identities that always hold."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoe.results.files import RepoOutcome, TuningResult
from aoe.results.opat import OpatReport, OperatorResult, opat_report_to_json
from aoe.testing.fakes import MEMORY

_TIMES = st.floats(0.001, 1e9)
_OPERATORS = st.builds(
    OperatorResult,
    op_name=st.text(min_size=1, max_size=8),
    op_type=st.sampled_from(["lrn", "elementwise"]),
    outcome=st.sampled_from(RepoOutcome),
    before_us=_TIMES,
    after_us=_TIMES,
)
_REPORTS = st.builds(
    OpatReport,
    tuning_name=st.text(max_size=8),
    tuning_time_s=st.floats(0, 1e6),
    baseline_ms=st.none() | _TIMES,
    speedup=st.floats(0.1, 100),
    result=st.sampled_from(TuningResult),
    operators=st.lists(_OPERATORS, max_size=12).map(tuple),
)


def _body(report: OpatReport) -> dict[str, Any]:
    basic, body = opat_report_to_json(report)
    assert list(basic) == ["basic"]
    assert list(body) == ["OPAT"]
    found: dict[str, Any] = body["OPAT"]
    return found


@given(_REPORTS)
def test_identities_hold_for_any_report(report: OpatReport) -> None:
    repo = _body(report)["repo_summary"]
    assert set(repo) == {
        "repo_add_num",
        "repo_hit_num",
        "repo_reserved_num",
        "repo_unsatisfied_num",
        "repo_update_num",
        "total_num",
    }
    assert repo["repo_hit_num"] == repo["repo_update_num"] + repo["repo_reserved_num"]
    assert repo["total_num"] == (
        repo["repo_add_num"] + repo["repo_hit_num"] + repo["repo_unsatisfied_num"]
    )
    assert repo["total_num"] == len(report.operators)


@given(_REPORTS)
def test_modified_operators_are_those_added_and_updated(report: OpatReport) -> None:
    body = _body(report)
    modified = body["repo_modified_operators"]
    repo = body["repo_summary"]
    assert len(modified) == repo["repo_add_num"] + repo["repo_update_num"]
    for entry in modified:
        assert set(entry) == {"op_name", "op_type", "tune_performance"}
        (mode,) = entry["tune_performance"].values()
        assert set(mode) == {
            "performance_after_tune(us)",
            "performance_before_tune(us)",
            "performance_improvement",
            "update_mode",
        }
        assert mode["update_mode"] in ("add", "update")


@given(_REPORTS)
def test_report_is_strict_json(report: OpatReport) -> None:
    text = json.dumps(opat_report_to_json(report), allow_nan=False)
    assert json.loads(text) == opat_report_to_json(report)


def test_report_reads_as_aoe_documents_it() -> None:
    """The example of AOE's documentation, with this engine's only tune mode."""
    report = OpatReport(
        tuning_name="resnet50_20260101000000000",
        tuning_time_s=1827.4,
        baseline_ms=113.588725,
        speedup=113.588725 / 113.236731,
        result=TuningResult.SUCCESSFUL,
        operators=(
            OperatorResult(
                op_name="softmax",
                op_type="softmax",
                outcome=RepoOutcome.ADD,
                before_us=134,
                after_us=99,
            ),
            OperatorResult(op_name="lrn", op_type="lrn", outcome=RepoOutcome.RESERVED),
        ),
    )
    assert opat_report_to_json(report) == [
        {"basic": {"tuning_name": "resnet50_20260101000000000", "tuning_time(s)": 1827}},
        {
            "OPAT": {
                "model_baseline_performance(ms)": 113.588725,
                "model_performance_improvement": "0.31%",
                "model_result_performance(ms)": 113.236731,
                "opat_tuning_result": "tuning successful",
                "repo_modified_operators": [
                    {
                        "op_name": "softmax",
                        "op_type": "softmax",
                        "tune_performance": {
                            "Schedule": {
                                "performance_after_tune(us)": 99,
                                "performance_before_tune(us)": 134,
                                "performance_improvement": "35.35%",
                                "update_mode": "add",
                            }
                        },
                    }
                ],
                "repo_summary": {
                    "repo_add_num": 1,
                    "repo_hit_num": 1,
                    "repo_reserved_num": 1,
                    "repo_unsatisfied_num": 0,
                    "repo_update_num": 0,
                    "total_num": 2,
                },
            }
        },
    ]


def test_memory_of_sessions_is_told_where_it_is_known() -> None:
    assert "session_memory" not in _body(OpatReport(tuning_name="x"))
    assert _body(OpatReport(tuning_name="x", memory=MEMORY))["session_memory"] == {
        "untuned": {"session_bytes": 100 << 20, "peak_bytes": 120 << 20},
        "tuned": {"session_bytes": 150 << 20, "peak_bytes": 180 << 20},
    }


def test_running_task_is_incomplete_and_has_no_times_yet() -> None:
    body = _body(OpatReport(tuning_name="x"))
    assert body["opat_tuning_result"] == "tuning incomplete"
    assert not [name for name in body if name.startswith("model_")]


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (TuningResult.INCOMPLETE, "tuning incomplete"),
        (TuningResult.SUCCESSFUL, "tuning successful"),
        (TuningResult.FAILED, "tuning failed"),
    ],
)
def test_results_are_aoe_s_words(result: TuningResult, words: str) -> None:
    assert _body(OpatReport(tuning_name="x", result=result))["opat_tuning_result"] == words


def test_failed_operators_are_listed_when_there_are_any() -> None:
    assert "tuning_failed_operators" not in _body(OpatReport(tuning_name="x"))
    body = _body(OpatReport(tuning_name="x", failed_operators=("a",)))
    assert body["tuning_failed_operators"] == ["a"]
