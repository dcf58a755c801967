"""AOE's result file of subgraph tuning: fields, identities, and what is absent when."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from aoe.results.files import RepoOutcome, TuningResult
from aoe.results.sgat import SgatReport, SubgraphResult, sgat_report_to_json

ADDED = SubgraphResult(
    repo_key="7",
    outcome=RepoOutcome.ADD,
    strategy="convolution-split@1",
    before_us=150.0,
    after_us=100.0,
)
REPORT = SgatReport(
    tuning_name="net_1",
    tuning_time_s=12.4,
    baseline_ms=3.0,
    speedup=1.5,
    result=TuningResult.SUCCESSFUL,
    tasks=(
        ADDED,
        replace(ADDED, repo_key="8", outcome=RepoOutcome.UPDATE),
        replace(ADDED, repo_key="9", outcome=RepoOutcome.RESERVED),
        SubgraphResult(repo_key="10", outcome=RepoOutcome.UNSATISFIED, failed=True),
    ),
)


def _section(report: SgatReport) -> dict[str, Any]:
    basic, section = sgat_report_to_json(report)
    assert list(basic) == ["basic"]
    found: dict[str, Any] = section["SGAT"]
    return found


def test_successful_run_in_aoe_s_form() -> None:
    row = {
        "repo_key": "7",
        "strategy": "convolution-split@1",
        "performance_before_tune(ms)": 0.15,
        "performance_after_tune(ms)": 0.1,
        "performance_improvement": "50.00%",
    }
    assert sgat_report_to_json(REPORT) == [
        {"basic": {"tuning_name": "net_1", "tuning_time(s)": 12}},
        {
            "SGAT": {
                "model_baseline_performance(ms)": 3.0,
                "model_performance_improvement": "50.00%",
                "model_result_performance(ms)": 2.0,
                "sgat_tuning_result": "tuning successful",
                "repo_modified_subgraphs": {
                    "add_repo_subgraphs": [row],
                    "update_repo_subgraphs": [{**row, "repo_key": "8"}],
                },
                "repo_summary": {
                    "repo_add_num": 1,
                    "repo_hit_num": 2,
                    "repo_reserved_num": 1,
                    "repo_unsatisfied_num": 1,
                    "repo_update_num": 1,
                    "total_num": 4,
                },
                "tuning_failed_subgraphs": ["10"],
            }
        },
    ]


@pytest.mark.parametrize("outcomes", list(product(RepoOutcome, repeat=3)))
def test_identities_hold_whatever_became_of_subgraphs(outcomes: tuple[RepoOutcome, ...]) -> None:
    subgraphs = tuple(replace(ADDED, outcome=outcome) for outcome in outcomes)
    section = _section(replace(REPORT, tasks=subgraphs, result=TuningResult.INCOMPLETE))
    repo, modified = section["repo_summary"], section["repo_modified_subgraphs"]
    assert repo["repo_hit_num"] == repo["repo_update_num"] + repo["repo_reserved_num"]
    assert (
        repo["total_num"]
        == 3
        == sum(repo[name] for name in ("repo_add_num", "repo_hit_num", "repo_unsatisfied_num"))
    )
    assert len(modified["add_repo_subgraphs"]) == repo["repo_add_num"]
    assert len(modified["update_repo_subgraphs"]) == repo["repo_update_num"]


def test_run_in_progress_says_no_more_than_it_knows() -> None:
    start = SgatReport(tuning_name="net_1")
    assert sgat_report_to_json(start)[0] == {"basic": {"tuning_name": "net_1"}}
    assert "model_baseline_performance(ms)" not in _section(start)
    assert "model_result_performance(ms)" not in _section(replace(start, baseline_ms=3.0))


def test_section_is_absent_when_tuning_fails_or_there_is_nothing_to_tune() -> None:
    for report in (
        replace(REPORT, result=TuningResult.FAILED),
        replace(REPORT, tasks=()),
    ):
        assert [list(part) for part in sgat_report_to_json(report)] == [["basic"]]
