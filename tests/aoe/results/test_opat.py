"""AOE's result file of operator tuning: exact names, identities that always hold."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engine.fakes import MEMORY

from aoe.results.files import Gain, GainKind, RepoOutcome, TuningResult, repo_summary
from aoe.results.opat import OpatReport, OperatorResult, opat_report_to_json

_TIMES = st.floats(0.001, 1e9)
_GAINS = st.builds(Gain, kind=st.sampled_from(GainKind), before_us=_TIMES, after_us=_TIMES)
_OPERATORS = st.builds(
    OperatorResult,
    op_name=st.text(min_size=1, max_size=8),
    op_types=st.lists(st.sampled_from(["Conv", "Relu", "LRN"]), min_size=1, max_size=3).map(tuple),
    outcome=st.sampled_from(RepoOutcome),
    gains=st.lists(_GAINS, max_size=2, unique_by=lambda gain: gain.kind).map(tuple),
    failed=st.booleans(),
)
_REPORTS = st.builds(
    OpatReport,
    tuning_name=st.text(max_size=8),
    tuning_time_s=st.floats(0, 1e6),
    baseline_ms=st.none() | _TIMES,
    speedup=st.floats(0.1, 100),
    result=st.sampled_from(TuningResult),
    tasks=st.lists(_OPERATORS, max_size=12).map(tuple),
)
_LRN = OperatorResult(op_name="lrn", op_types=("LRN",), outcome=RepoOutcome.RESERVED)
_FINAL = {"model_performance_improvement", "model_result_performance(ms)"}
"""What only the end of a run can tell."""


def _body(report: OpatReport) -> dict[str, Any]:
    basic, *sections = opat_report_to_json(report)
    assert list(basic) == ["basic"]
    if report.result is TuningResult.SUCCESSFUL and not report.tasks:
        assert sections == []
        return {"repo_summary": repo_summary([]), "repo_modified_operators": []}
    assert [list(section) for section in sections] == [["OPAT"]]
    found: dict[str, Any] = sections[0]["OPAT"]
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
    assert repo["total_num"] == len(report.tasks)


@given(_REPORTS)
def test_modified_operators_are_those_added_and_updated(report: OpatReport) -> None:
    body = _body(report)
    modified = body["repo_modified_operators"]
    repo = body["repo_summary"]
    assert len(modified) == repo["repo_add_num"] + repo["repo_update_num"]
    for entry in modified:
        assert set(entry) == {"op_name", "op_type", "tune_performance"}
        assert set(entry["tune_performance"]) <= {"Format", "Impl", "Schedule"}
        for gain in entry["tune_performance"].values():
            assert set(gain) == {
                "performance_after_tune(us)",
                "performance_before_tune(us)",
                "performance_improvement",
                "update_mode",
            }
            assert gain["update_mode"] in ("add", "update")


@given(_REPORTS)
def test_what_only_the_end_tells_is_absent_before(report: OpatReport) -> None:
    basic, *sections = opat_report_to_json(report)
    ended = report.result is not TuningResult.INCOMPLETE
    assert ("tuning_time(s)" in basic["basic"]) is ended
    told = _FINAL & set(sections[0]["OPAT"]) if sections else set()
    known = report.result is TuningResult.SUCCESSFUL and report.baseline_ms is not None
    assert told == (_FINAL if known and sections else set())


@given(_REPORTS)
def test_failed_operators_are_named_where_the_tuning_failed(report: OpatReport) -> None:
    is_failed = report.result is TuningResult.FAILED
    failed = [one.op_name for one in report.tasks if one.failed and is_failed]
    assert _body(report).get("tuning_failed_operators", []) == failed


def test_nothing_tunable_leaves_only_the_basic_section() -> None:
    report = OpatReport(tuning_name="x", baseline_ms=3.0, result=TuningResult.SUCCESSFUL)
    assert opat_report_to_json(report) == [{"basic": {"tuning_name": "x", "tuning_time(s)": 0}}]


def test_several_operators_are_a_list_and_each_choice_has_its_gain() -> None:
    fused = OperatorResult(
        op_name="conv",
        op_types=("Conv", "Relu"),
        outcome=RepoOutcome.UPDATE,
        gains=(
            Gain(kind=GainKind.IMPL, before_us=300, after_us=200),
            Gain(kind=GainKind.SCHEDULE, before_us=200, after_us=160),
        ),
    )
    (entry,) = _body(OpatReport(tuning_name="x", tasks=(fused,)))["repo_modified_operators"]
    assert entry["op_type"] == ["Conv", "Relu"]
    gains = entry["tune_performance"]
    assert [gains[kind]["performance_improvement"] for kind in gains] == ["50.00%", "25.00%"]


@given(_REPORTS)
def test_report_is_strict_json(report: OpatReport) -> None:
    text = json.dumps(opat_report_to_json(report), allow_nan=False)
    assert json.loads(text) == opat_report_to_json(report)


def test_report_reads_as_aoe_documents_it() -> None:
    """The example of AOE's documentation, with a tune mode of this engine."""
    report = OpatReport(
        tuning_name="resnet50_20260101000000000",
        tuning_time_s=1827.4,
        baseline_ms=113.588725,
        speedup=113.588725 / 113.236731,
        result=TuningResult.SUCCESSFUL,
        tasks=(
            OperatorResult(
                op_name="softmax",
                op_types=("Softmax",),
                outcome=RepoOutcome.ADD,
                gains=(Gain(kind=GainKind.SCHEDULE, before_us=134, after_us=99),),
            ),
            _LRN,
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
                        "op_type": "Softmax",
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
        "tuned": {"session_bytes": 105 << 20, "peak_bytes": 126 << 20},
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
    report = OpatReport(tuning_name="x", result=result, tasks=(_LRN,))
    assert _body(report)["opat_tuning_result"] == words
