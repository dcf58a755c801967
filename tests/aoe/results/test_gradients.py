"""Result file of gradient tuning: AOE's fields."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.engine.gradients import make_gdat_report

from aoe.results.files import RepoOutcome
from aoe.results.gradients import GdatReport, gdat_report_to_json

REPORT = make_gdat_report()


def body(report: GdatReport) -> dict[str, Any]:
    found: dict[str, Any] = gdat_report_to_json(report)[1]["GDAT"]
    return found


def test_head_and_performance_are_as_in_other_result_files() -> None:
    basic, _ = gdat_report_to_json(REPORT)
    assert basic == {"basic": {"tuning_name": "net_20260301", "tuning_time(s)": 42}}
    assert body(REPORT)["gdat_tuning_result"] == "tuning successful"
    assert body(REPORT)["model_baseline_performance(ms)"] == 20
    assert body(REPORT)["model_performance_improvement"] == "25.00%"
    assert body(REPORT)["model_result_performance(ms)"] == 16


@pytest.mark.parametrize(
    ("outcome", "ones"),
    [
        (None, set()),
        (RepoOutcome.ADD, {"repo_add_num", "total_num"}),
        (RepoOutcome.UPDATE, {"repo_hit_num", "repo_update_num", "total_num"}),
        (RepoOutcome.RESERVED, {"repo_hit_num", "repo_reserved_num", "total_num"}),
        (RepoOutcome.UNSATISFIED, {"repo_unsatisfied_num", "total_num"}),
    ],
)
def test_summary_keeps_the_identities_of_aoe(outcome: RepoOutcome | None, ones: set[str]) -> None:
    summary = body(replace(REPORT, outcome=outcome))["repo_summary"]
    assert {name for name, count in summary.items() if count} == ones
    assert summary["repo_hit_num"] == summary["repo_update_num"] + summary["repo_reserved_num"]


def test_timelines_say_overlap_and_tail() -> None:
    assert REPORT.before is not None
    before = body(REPORT)["before"]
    timeline = REPORT.before.timeline
    assert before["tail_us"] == pytest.approx(timeline.tail_us, abs=1e-3)
    assert before["overlap_ratio"] == pytest.approx(timeline.overlap_ratio, abs=1e-4)
    assert sum(segment["bytes"] for segment in before["segments"]) == REPORT.total_bytes
