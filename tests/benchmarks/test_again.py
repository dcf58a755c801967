"""Benchmarks that go on where they were ended, and the tables they write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest

pytest.importorskip("torch")

import incremental
import large_model
import time_limits
from comparison.steps import CommandError, Steps, measure_each, run_aoe
from comparison.tables import place_of, put_between

_DOCS = Path(__file__).resolve().parents[2] / "docs"
_FIGURES: dict[str, Any] = {
    "speedup": 1.2,
    "speedup_low": 1.1,
    "speedup_high": 1.3,
    "trials": 7,
    "reuse": None,
}
_FIGURES["phase_seconds"] = {"start": 0.5, "search": 3.0}


def test_step_is_done_once_and_dropped_where_anything_it_depends_on_changes(tmp_path: Path) -> None:
    file, done = tmp_path / "steps.json", []

    def work() -> dict[str, int]:
        done.append(1)
        return {"seconds": len(done)}

    assert Steps(file, {"a": 1}).once("one", work) == {"seconds": 1}
    assert Steps(file, {"a": 1}).once("one", work) == {"seconds": 1}
    assert Steps(file, {"a": 2}).once("one", work) == {"seconds": 2}


def test_step_that_fails_is_done_again(tmp_path: Path) -> None:
    def fail() -> dict[str, int]:
        raise KeyboardInterrupt

    steps = Steps(tmp_path / "steps.json", {})
    steps.once("one", lambda: {"seconds": 1})
    with pytest.raises(KeyboardInterrupt):
        steps.once("two", fail)
    assert {*json.loads((tmp_path / "steps.json").read_text())["steps"]} == {"one"}


def test_network_whose_tuning_fails_is_told_and_leaves_the_next_one_its_turn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = []

    def measure(name: str) -> None:
        if name == "broken":
            run_aoe(tmp_path, ["--model", str(tmp_path / "none.onnx")])
        done.append(name)

    assert measure_each(["broken", "sound"], measure) == 1
    assert done == ["sound"]
    told = capsys.readouterr().err
    assert "broken was not measured: aoe ended with exit code 3: error: " in told
    assert "none.onnx" in told.rpartition("not measured")[2]
    assert measure_each(["sound"], measure) == 0


def test_error_of_a_command_that_answers_in_json_is_told(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"exit code 3: .*none\.om"):
        run_aoe(tmp_path, ["benchmark", str(tmp_path / "none.om"), "--json"])


def test_tables_of_a_network_have_what_is_known_so_far(tmp_path: Path) -> None:
    steps = Steps(tmp_path / "steps.json", {"options": ["--trials=1"]})
    steps.once("net first", lambda: {"seconds": 100.0, **_FIGURES})
    steps.once("net hits 0", lambda: {"seconds": 9.5, **_FIGURES})
    steps.once("net compile 0", lambda: {"seconds": 3.25})
    counts = {"reused": 4, "retuned": 1, "new": 1, "dropped": 2}
    steps.once("net base", lambda: {"seconds": 20.0, **_FIGURES, "reuse": counts})
    text = incremental.tables(steps.document)
    assert (
        "| net | changed, --base_result | 20 | 20% | 0.5, 3.0 | 7 | 1.200x (1.100 to 1.300) "
        "| 4 reused" in text
    )
    assert "all hits | 9.5 | 7 |" in text and "`aoe compile` | 3.2 | - |" in text
    assert "all anew" not in text


@pytest.mark.parametrize(("seconds", "expected"), [(21.0, True), (23.0, True), (23.1, False)])
def test_limit_holds_within_five_percent_and_a_trial(seconds: float, expected: bool) -> None:
    row = {"seconds": seconds, "longest_trial_s": 2.0}
    assert time_limits.holds(row, 20.0) is expected


def test_table_of_limits_says_which_was_exceeded(tmp_path: Path) -> None:
    steps = Steps(tmp_path / "steps.json", {"job_type": "sgat,opat"})
    row = {"longest_trial_s": 1.0, "reports_of_trials": 3, "speedup": 1.0}
    steps.once("net 20", lambda: {"seconds": 20.5, **row})
    steps.once("net 60", lambda: {"seconds": 90.0, **row})
    text = time_limits.table(steps.document)
    assert "| net | 20 | 20.5 | +2.5% | 1.0 | 3 | yes |" in text
    assert "| net | 60 | 90.0 | +50.0% | 1.0 | 3 | **no** |" in text


def test_table_of_large_models_marks_what_is_beyond_the_bound(tmp_path: Path) -> None:
    sizes = {"own_mib": 2300, "one_mib": 2400, "seconds": 12.4}
    options = {"gib": 2.1, "job_type": "opat", "trials": 2, "limit": 240}
    document = {
        **Steps(tmp_path / "steps.json", options).document,
        "steps": {
            "run": {"all_mib": 3200, "exit_code": 0, **sizes},
            "session": {"all_mib": 3201, "exit_code": 0, **sizes},
            "inspect": {"all_mib": 90, "exit_code": 0, **sizes},
            "profile": {"all_mib": 90, "exit_code": 3, **sizes},
        },
    }
    text = large_model.table(document)
    assert "| run | 3200 | 1024 | 2300 | 2400 | 12 |" in text
    assert "| session | 3201 | **1025** | 2300 | 2400 | 12 |" in text
    assert "| inspect | 90 | - | 2300 | 2400 | 12 |" in text
    assert "| profile | failed |" in text


def test_large_model_is_a_sound_one(tmp_path: Path) -> None:
    file = large_model.write_model(tmp_path, 3 * 8 * 8 * 4, width=8)
    assert (tmp_path / "large.weights").stat().st_size == 3 * 8 * 8 * 4
    onnx.checker.check_model(str(file), full_check=True)


@pytest.mark.parametrize("name", ["peers", "shape_ranges-xeon"])
def test_page_of_benchmarks_has_a_place_for_the_newest_results(name: str) -> None:
    file = _DOCS.parent / "benchmarks" / "results" / f"{name}.json"
    assert file.exists() and file.with_suffix(".md").exists()
    assert "new text" in put_between(_DOCS / "benchmarks.md", *place_of(file), "new text\n")
