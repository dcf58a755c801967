"""Result file of gradient tuning: AOE's fields."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engine.gradients import make_gdat_report

from aoe.errors import ResultFileError
from aoe.gradients.cost import TableCost
from aoe.results.files import RepoOutcome, TuningResult
from aoe.results.gradients import (
    GdatReport,
    gdat_report_from_json,
    gdat_report_to_json,
    load_gdat_report,
    printable,
)

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


EMPTY = GdatReport(
    tuning_name="net", modelhash="7", gradients=3, total_bytes=12, world_size=2, backend="gloo"
)


@pytest.mark.parametrize(
    "report",
    [
        REPORT,
        EMPTY,
        replace(REPORT, busy="the process served worst got 40%"),
        replace(REPORT, result=TuningResult.FAILED, estimate=None),
        replace(REPORT, cost=TableCost(sizes_bytes=(1, 2), times_us=(3, 4)), after=None),
    ],
)
def test_report_comes_back(report: GdatReport, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text(json.dumps(gdat_report_to_json(report)))
    loaded = load_gdat_report(file)
    assert gdat_report_to_json(loaded) == gdat_report_to_json(report)
    assert (loaded.cost, loaded.estimate) == (report.cost, report.estimate)


def test_layout_of_several_tasks_is_read_too() -> None:
    value = {"report_20260301_1": gdat_report_to_json(REPORT)}
    assert gdat_report_from_json(value).tuning_name == REPORT.tuning_name


CHANGES: list[tuple[tuple[Any, ...], Any]] = [
    (("world_size",), 0),
    (("world_size",), "4"),
    (("world_size",), True),
    (("modelhash",), 7),
    (("modelhash",), "x"),
    (("schema",), "aoe.gdat_result/9"),
    (("gdat_tuning_result",), "tuned"),
    (("outcome",), "hit"),
    (("cost",), {"kind": "cubic"}),
    (("cost",), {"kind": "line"}),
    (("cost",), {"kind": "line", "latency_us": 10**400, "us_per_byte": 0}),
    (("gradients",), None),
    (("gradients", "count"), -1),
    (("before",), []),
    (("before", "source"), "guess"),
    (("before", "segments"), {}),
    (("before", "segments", 0), 5),
    (("before", "segments", 0, "start_us"), "1"),
    (("before", "segments", 0, "start_us"), -1),
    (("before", "segments", 0, "end_us"), 1e300),
    (("before", "segments", 1, "end_us"), 0),
    (("before", "segments", 0, "bytes"), 1.5),
    (("before", "backward_end_us"), None),
    (("speedup",), 1.2),
    (("speedup", "median"), 0),
    (("candidates",), {}),
    (("candidates", 0, "segments"), None),
    (("versions",), {"a": 1}),
    (("candidates", 0, "speedup"), {"median": 1}),
    (("machine",), []),
]


@pytest.mark.parametrize(("place", "value"), CHANGES)
def test_changed_member_is_named(place: tuple[Any, ...], value: Any, tmp_path: Path) -> None:
    document = copy.deepcopy(gdat_report_to_json(REPORT))
    holder: Any = document[1]["GDAT"]
    for step in place[:-1]:
        holder = holder[step]
    holder[place[-1]] = value
    file = tmp_path / "result.json"
    file.write_text(json.dumps(document))
    with pytest.raises(ResultFileError) as caught:
        load_gdat_report(file)
    assert str(file) in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("member", ["schema", "gradients", "world_size", "modelhash", "backend"])
def test_missing_member_is_named(member: str) -> None:
    document = copy.deepcopy(gdat_report_to_json(REPORT))
    del document[1]["GDAT"][member]
    with pytest.raises(ValueError, match=member):
        gdat_report_from_json(document)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        "null",
        "7",
        '"x"',
        "[1]",
        "[{}]",
        '[{"OPAT": {}}]',
        '{"a": []}',
        '[{"GDAT": null}]',
        '[{"GDAT": {}}, {"basic": {}}]',
        "NaN",
        "[" * 100_000,
        "\ufeff[]",
        '[{"basic": {"tuning_name": "a", "tuning_time(s)": NaN}}]',
        "\x00",
    ],
)
def test_file_that_is_something_else_is_one_clear_error(text: str, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ResultFileError, match=r"result\.json: "):
        load_gdat_report(file)


def test_bytes_that_are_not_text_are_one_clear_error(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_bytes(b"\xff\xfe\x00[\xd8")
    with pytest.raises(ResultFileError):
        load_gdat_report(file)


def test_result_of_operator_tuning_is_called_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text('[{"basic": {}}, {"OPAT": {}}]')
    with pytest.raises(ResultFileError, match=r"got OPAT, basic, expected GDAT"):
        load_gdat_report(file)


def test_absent_file_and_folder_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ResultFileError, match="cannot be read: no such file"):
        load_gdat_report(tmp_path / "no.json")
    with pytest.raises(ResultFileError, match="cannot be read: is a directory"):
        load_gdat_report(tmp_path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(JSON, JSON)
def test_any_json_is_a_report_or_a_value_error(body: Any, basic: Any) -> None:
    for value in (body, [body], [{"GDAT": body, "basic": basic}]):
        with pytest.raises(ValueError):
            gdat_report_from_json(value)


@given(st.sampled_from(list(gdat_report_to_json(REPORT)[1]["GDAT"])), JSON)
def test_any_member_may_be_anything(member: str, value: Any) -> None:
    document = copy.deepcopy(gdat_report_to_json(REPORT))
    document[1]["GDAT"][member] = value
    try:
        gdat_report_from_json(document)
    except ValueError as error:
        assert str(error)


def test_names_cannot_command_a_terminal() -> None:
    assert printable("a\x1b[31m\n\ud800b\u202e") == "a?[31m??b?"
    report = replace(REPORT, tuning_name="\x1b]0;x\x07")
    loaded = gdat_report_from_json(gdat_report_to_json(report))
    assert loaded.tuning_name == "?]0;x?"
