"""A whole run of subgraph tuning: record, second run, result file, tuned model.

Graphs are cut, rewritten and loaded for real; only times are scripted.
"""

from __future__ import annotations

import contextlib
import filecmp
import json
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.contracts.kernels import block_size
from support.engine.environments import run_environment
from support.engine.subgraph_runs import Run
from support.engine.subgraphs import NetworkBuilder, by_splits, c2f_network, splits
from support.tiers import chosen_every_day

import aoe
from aoe.bank.journal import BankJournal
from aoe.bank.records.subgraph import strategy_of
from aoe.bank.subgraphs import SubgraphBank
from aoe.errors import OptionError, RunError, RunTimeoutError
from aoe.execute.messages import ModelPart
from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.protocol import Finding
from aoe.graph.rewrites.registry import RULES
from aoe.measurement import Outcome
from aoe.om.file import read_manifest
from aoe.report.tuning import report_of
from aoe.results.files import RepoOutcome
from aoe.runs.operators.result import OpatResult
from aoe.runs.run import tune_with
from aoe.runs.subgraphs.result import SgatResult
from aoe.runs.subgraphs.run import rival_per_s, time_for_rewrites
from aoe.tasks.rewrites.experience import Experience
from aoe.tasks.rewrites.rewrite_tasks import RewriteBudget
from aoe.tasks.rewrites.subgraphs import work_of
from aoe.tuner.live_report import start_stopwatch
from aoe.tuner.mode import JobType, TuneSettings
from aoe.tuner.precision.settings import parse_precision
from aoe.validation.time_reserve import PROCESSES
from aoebank import emit, show, validate

_NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_what_pays_off_is_recorded_and_becomes_part_of_the_model(run: Run) -> None:
    result = run.tune()
    used = [tuned for tuned in result.subgraphs if tuned.subgraph.graph_id in result.used_ids]
    assert {str(tuned.strategy) for tuned in used} == {"convolution-split@1"}
    assert sum(len(tuned.subgraph.occurrences) for tuned in used) == 3
    assert result.speedup == pytest.approx(1.2**3, rel=0.02)
    section = run.section()
    added = section["repo_modified_subgraphs"]["add_repo_subgraphs"]
    assert {row["repo_key"] for row in added} == result.used_ids
    assert section["repo_summary"]["repo_unsatisfied_num"] >= 1  # the mean brings nothing
    manifest = read_manifest(result.om_file)
    assert {use.graph_id for use in manifest.subgraphs} == result.used_ids
    assert sum(len(use.op_names) for use in manifest.subgraphs) == 3
    bank = validate(run.place / "bank")
    assert list(bank.findings) == []
    details = run.progress.texts("detail")
    assert any(text.startswith("convolution-split@1: matched Conv_") for text in details)
    assert any(text.startswith("mean-to-global-pool@1: matched ReduceMean_") for text in details)


def test_rule_that_fails_is_left_out_and_named_once(tmp_path: Path) -> None:
    def failing(graph: ModelGraph) -> Iterable[Finding]:
        raise IndexError("tuple index out of range")

    split = RULES["convolution-split"]
    broken = replace(split, name="broken", find=failing)
    run = Run(tmp_path, rules={"broken": broken, split.name: split})
    assert run.tune().speedup == pytest.approx(1.2**3, rel=0.02)
    (warning,) = run.progress.texts("warn")
    assert "rewrite rule broken" in warning
    assert "IndexError: tuple index out of range (test_run.py:" in warning


def test_form_the_clock_has_ended_decides_nothing(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    late = RunTimeoutError("compare_models", "no answer from the worker", got="over 120.0 s")
    run.script = lambda baseline, tuned: (
        late if splits(tuned.model) < splits(baseline.model) else 1.0
    )
    found = run.tune()
    assert sum("not decided" in one.reason for one in found.subgraphs) == 2
    emit(report_of(found), as_json=False, no_color=True)
    assert found.summary()["undecided_subgraphs"] == 2
    assert "2 of 3 subgraphs are not decided" in " ".join(capsys.readouterr().out.split())
    run.script = by_splits(1.2)
    assert run.tune().speedup == pytest.approx(1.2**3, rel=0.02)


def test_search_that_fails_costs_its_own_subgraph_only(run: Run) -> None:
    def failing(baseline: ModelPart, tuned: ModelPart) -> float:
        if splits(tuned.model) < splits(baseline.model):
            raise KeyError("no such tensor")
        return 1.0

    run.script = failing
    found = run.tune()
    assert (
        sum("it failed: KeyError: 'no such tensor'" in one.reason for one in found.subgraphs) == 2
    )
    run.script = by_splits(1.2)
    assert run.tune().speedup == pytest.approx(1.2**3, rel=0.02)


def test_tuned_model_computes_what_the_imported_one_does(run: Run) -> None:
    result = run.tune()
    feed = {"x": np.random.default_rng(3).standard_normal((1, 4, 8, 8)).astype(np.float32)}
    model = aoe.load(result.om_file)
    imported = onnx.load(run.place / "net.onnx")
    session = run.runners[-1].device.open_session(imported.SerializeToString(), _options())
    (found,) = model.run(None, feed)
    (expected,) = session.run(None, feed)
    assert model.fallback_reason == ""
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def _options() -> Any:
    from aoe.ort.sessions import session_options

    return session_options(threads=1, optimize=True)


def test_second_run_measures_no_form_and_writes_the_same_model(run: Run) -> None:
    first = run.tune()
    shutil.copy(first.om_file, run.place / "first.om")
    second = run.tune()
    assert run.comparisons <= 3  # the baseline, and the whole model once
    assert filecmp.cmp(second.om_file, run.place / "first.om", shallow=False)
    outcomes = {tuned.outcome.value for tuned in second.subgraphs}
    assert outcomes == {"reserved", "unsatisfied"}
    assert all(not tuned.trials for tuned in second.subgraphs)


def test_look_up_takes_the_forms_of_the_bank_and_tries_and_notes_nothing(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run.tune()
    shutil.copy(first.om_file, run.place / "first.om")
    noted = _bank_files(run)
    second = run.tune(lookup_only=True)
    assert run.comparisons == 2  # the default once for its time, results once
    assert filecmp.cmp(second.om_file, run.place / "first.om", shallow=False)
    assert _bank_files(run) == noted
    assert (second.used_ids, second.speedup) == (first.used_ids, 1.0)
    emit(report_of(second), as_json=False, no_color=True)
    text = capsys.readouterr().out
    assert "of the bank, looked up and not measured" in text
    assert "process finished. From the bank: 2 subgraphs, not measured" in text
    reasons = {one.reason for one in second.subgraphs if one.strategy is None}
    assert reasons == {"default was best in an earlier search"}


def test_look_up_in_an_empty_bank_leaves_the_model_as_it_is(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run.tune(lookup_only=True)
    emit(report_of(result), as_json=False, no_color=True)
    said = "3 of 3 subgraphs are not in the bank, and were only looked up"
    assert said in " ".join(capsys.readouterr().out.split())
    assert result.validation.kept == ()
    assert {one.reason for one in result.subgraphs} == {"not in the bank, and only looked up"}
    assert _bank_files(run) == {}


def test_look_up_leaves_out_a_form_with_which_the_model_computes_something_else(run: Run) -> None:
    first = run.tune()

    def wrong(baseline: ModelPart, tuned: ModelPart) -> Any:
        return Outcome.CORRECTNESS if splits(tuned.model) < splits(baseline.model) else 1.0

    run.script = wrong
    second = run.tune(lookup_only=True)
    assert first.used_ids and second.used_ids == frozenset()
    assert second.validation.drops


def _bank_files(run: Run) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in (run.place / "bank").rglob("*") if file.is_file()}


def test_repeat_tune_tunes_what_the_bank_has(run: Run) -> None:
    run.tune()
    again = run.tune(repeat_tune=True)
    assert all(tuned.trials for tuned in again.subgraphs)
    assert "add" not in {tuned.outcome.value for tuned in again.subgraphs}


def test_record_whose_rule_has_changed_is_tuned_again(run: Run) -> None:
    first = run.tune()
    text = first.bank_file.read_text()
    first.bank_file.write_text(text.replace("convolution-split@1", "convolution-split@99"))
    again = run.tune()
    outcomes = {tuned.outcome.value for tuned in again.subgraphs}
    assert outcomes == {"update", "unsatisfied"}
    assert "convolution-split@99" not in first.bank_file.read_text()
    assert again.used_ids == first.used_ids


def test_stale_record_nothing_better_is_found_for_is_told_and_left(run: Run) -> None:
    first = run.tune()
    text = first.bank_file.read_text()
    first.bank_file.write_text(text.replace("convolution-split@1", "gone-rule@1"))
    run.script = by_splits(1.0)
    again = run.tune()
    reasons = [tuned.reason for tuned in again.subgraphs]
    assert any("stale: this version has no rule gone-rule" in reason for reason in reasons)
    assert again.used_ids == frozenset()
    assert again.speedup == 1.0


def test_form_that_wins_alone_and_loses_in_the_model_is_dropped_for_good(run: Run) -> None:
    def loses_in_the_whole(baseline: ModelPart, tuned: ModelPart) -> float:
        alone = by_splits(1.2)(baseline, tuned)
        return alone if baseline.model.name == "subgraph.onnx" else 1 / alone

    run.script = loses_in_the_whole
    result = run.tune()
    assert result.validation.kept == ()
    assert result.validation.dropped
    assert result.speedup == 1.0
    second = run.tune()
    assert second.validation.kept == ()
    assert run.comparisons <= 3


@pytest.mark.parametrize("failure", [Outcome.CORRECTNESS, RunError("worker", "died")])
def test_form_that_fails_costs_itself_only(run: Run, failure: Any) -> None:
    def fails(baseline: ModelPart, tuned: ModelPart) -> Any:
        return failure if by_splits(1.2)(baseline, tuned) > 1 else 1.0

    run.script = fails
    result = run.tune()
    assert result.validation.kept == ()
    assert run.section()["sgat_tuning_result"] == "tuning successful"
    assert run.section()["tuning_failed_subgraphs"]


def test_when_every_form_crashes_nothing_is_believed_and_a_later_run_tries_again(run: Run) -> None:
    def broken(baseline: ModelPart, tuned: ModelPart) -> Any:
        alone = baseline.model.name == "subgraph.onnx"
        return RunError("worker", "no space left on device") if alone else 1.0

    run.script = broken
    first = run.tune()
    assert all("not decided, none of" in tuned.reason for tuned in first.subgraphs)
    assert all("no space left on device" in tuned.reason for tuned in first.subgraphs)
    assert _bank_files(run) == {}
    run.script = by_splits(1.2)
    assert run.tune().used_ids


def test_wrong_results_of_every_form_are_believed(run: Run) -> None:
    def wrong(baseline: ModelPart, tuned: ModelPart) -> Any:
        return Outcome.CORRECTNESS if baseline.model.name == "subgraph.onnx" else 1.0

    run.script = wrong
    run.tune()
    assert all(not tuned.trials for tuned in run.tune().subgraphs)


class _Killed(BaseException):
    """What ends a process: no handler of the engine catches it."""


def _dying_at(number: int) -> Callable[[ModelPart, ModelPart], float]:
    """Script: the run is killed in its comparison of this number."""
    asked = 0

    def speedup(baseline: ModelPart, tuned: ModelPart) -> float:
        nonlocal asked
        asked += 1
        if asked == number:
            raise _Killed
        return by_splits(1.2)(baseline, tuned)

    return speedup


@pytest.mark.parametrize("number", chosen_every_day(range(1, 12), (2, 7)))
def test_run_that_is_killed_goes_on_where_it_was(run: Run, number: int) -> None:
    run.script = _dying_at(number)
    with contextlib.suppress(_Killed):
        run.tune()
    for file in (run.place / "out").glob("aoe_result_sgat_*.json"):
        basic, *section = json.loads(file.read_text())
        assert set(basic) == {"basic"} and len(section) <= 1
    assert list(validate(run.place / "bank").findings) == []
    stored = {file: file.read_bytes() for file in (run.place / "bank").rglob("*.json")}
    run.script = by_splits(1.2)
    again = run.tune()
    assert again.speedup == pytest.approx(1.2**3, rel=0.02)
    assert list(validate(run.place / "bank").findings) == []
    for file, content in stored.items():  # what was found is kept and not searched again
        assert file.read_bytes().startswith(content.rstrip().removesuffix(b"]"))
    kept = {tuned.subgraph.graph_id for tuned in again.subgraphs if not tuned.trials}
    recorded = b"".join(stored.values()).decode()
    assert {key for key in again.used_ids if key in recorded} <= kept


def test_failed_run_has_no_section(run: Run) -> None:
    def dies(baseline: ModelPart, tuned: ModelPart) -> Any:
        return RunError("model", "no")

    run.script = dies
    with pytest.raises(RunError):
        run.tune()
    (file,) = (run.place / "out").glob("aoe_result_sgat_*.json")
    assert [list(part) for part in json.loads(file.read_text())] == [["basic"]]


@pytest.mark.parametrize(("most", "trials"), [(1, 1), (2, 2), (99, 3)])
def test_most_trials_of_the_run_are_not_exceeded(run: Run, most: int, trials: int) -> None:
    result = run.tune(max_tuning_count=most)
    assert sum(len(tuned.trials) for tuned in result.subgraphs) <= min(most, trials)


def test_time_limit_that_is_over_leaves_the_model_and_remembers_nothing(run: Run) -> None:
    result = run.tune(tuning_time_limit_s=0.0)
    assert all(tuned.outcome.value == "unsatisfied" for tuned in result.subgraphs)
    assert not result.bank_file.exists()
    assert run.tune().used_ids


_BOTH = (JobType.SGAT, JobType.OPAT)


@pytest.mark.parametrize(
    ("settings", "limit_s", "left_s"),
    [
        ({"job_types": (JobType.SGAT,)}, 100.0, 40.0),
        ({"job_types": _BOTH}, 50.0, 30.0),  # half of 100 s
        ({"job_types": _BOTH, "stage_limits_s": (80.0, 60.0)}, 80.0, 80.0),
        ({"job_types": (JobType.SGAT,)}, None, None),
    ],
)
def test_forms_leave_kernels_their_share_of_the_time(
    settings: dict[str, Any], limit_s: float | None, left_s: float | None
) -> None:
    stopwatch = start_stopwatch(lambda: 0.0, limit_s)
    given = time_for_rewrites(stopwatch, TuneSettings(model=Path("net.onnx"), **settings))
    assert given.limit_s == (pytest.approx(left_s) if left_s is not None else None)


@pytest.mark.parametrize(
    ("settings", "limit_s", "expected"),
    [
        ({"job_types": (JobType.SGAT,)}, 100.0, 0.0),
        ({"job_types": _BOTH}, 50.0, 0.002),
        ({"job_types": _BOTH, "stage_limits_s": (80.0, 60.0)}, 80.0, 0.0),
        ({"job_types": _BOTH}, None, 0.0),
    ],
)
def test_forms_are_weighed_against_operators_where_both_share_a_limit(
    settings: dict[str, Any], limit_s: float | None, expected: float
) -> None:
    stopwatch = start_stopwatch(lambda: 0.0, limit_s)
    found = rival_per_s(stopwatch, TuneSettings(model=Path("net.onnx"), **settings))
    assert found == pytest.approx(expected)


def test_without_a_form_there_is_nothing_to_judge(run: Run) -> None:
    run.script = lambda baseline, tuned: 0.9
    run.tune()
    result = run.tune()
    assert (result.speedup, result.validation.kept) == (1.0, ())
    assert run.comparisons == 1  # what a run of the model takes


def test_screen_says_what_a_limit_has_left(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    result = run.tune(tuning_time_limit_s=0.0)
    assert {tuned.untried for tuned in result.subgraphs} == {"the time limit was reached"}
    assert all("the time limit was reached" in tuned.reason for tuned in result.subgraphs)
    emit(report_of(result), as_json=False, no_color=True)
    count = len(result.subgraphs)
    said = f"rewrites of 0 of {count} subgraphs tried, 0 kept; {count} untried, the time limit"
    assert said in capsys.readouterr().out
    counted = run.tune(max_tuning_count=0)
    assert {tuned.reason for tuned in counted.subgraphs} == {
        "not in the bank; max_tuning_count was reached"
    }


def test_rewrites_that_never_win_cost_no_measurement_in_front_of_operators(tmp_path: Path) -> None:
    rules = {name: RULES[name] for name in ("gate-into-weights",)}
    run = Run(tmp_path, rules=rules, plain_layouts=True)
    net = NetworkBuilder()
    x = net.silu(net.conv("x", 4, 16))
    onnx.save(net.model("x", 4, 8, [net.mean(net.c2f(x, 16))]), run.place / "net.onnx")
    both: dict[str, Any] = {"job_types": (JobType.SGAT, JobType.OPAT), "trials": 1}
    limited = run.tune(tuning_time_limit_s=600.0, **both)
    assert run.runners[0].asked("compare_models") == []
    never = "what can be done with it has not won on CPUs like this one"
    assert {tuned.untried for tuned in limited.subgraphs} == {never}
    count = len(limited.subgraphs)
    (said,) = (one for one in run.progress.texts("step") if one.startswith("rewrites of "))
    assert said.startswith(f"rewrites of 0 of {count} subgraph")
    assert said.endswith(f"tried, 0 kept; {count} untried, {never}")
    run.tune(**both)  # without a limit all is tried
    assert run.runners[2].asked("compare_models")


def test_words_name_the_share_of_the_limit_that_was_used_up(run: Run) -> None:
    def clock() -> float:
        return 25.0 if run.runners and run.comparisons else 0.0

    run.runs.parts["clock"] = clock
    result = run.tune(tuning_time_limit_s=60.0, trials=1)
    assert {tuned.untried for tuned in result.subgraphs} == {
        "the 24 s for rewrites, of 60 s, were over"
    }


def test_most_work_comes_first_and_is_told_in_the_order_of_the_model(run: Run) -> None:
    net = NetworkBuilder()
    x = net.silu(net.conv("x", 4, 16))
    x = net.silu(net.conv(net.c2f(x, 16), 16, 64, 1))  # little, then much
    x = net.mean(net.c2f(net.c2f(x, 64), 64))
    onnx.save(net.model("x", 4, 8, [x]), run.place / "net.onnx")
    result = run.tune(max_tuning_count=1)
    tried = [bool(tuned.trials) for tuned in result.subgraphs]
    (first,) = [tuned.subgraph for tuned in result.subgraphs if tuned.trials]
    assert work_of(first) == max(work_of(tuned.subgraph) for tuned in result.subgraphs)
    assert tried[0] is False
    starts = [tuned.subgraph.segment.nodes[0] for tuned in result.subgraphs]
    assert starts == sorted(starts)


def test_forms_there_is_no_time_for_are_left_to_a_later_run(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx.save(c2f_network(2, batch=4), run.place / "net.onnx")
    run.script = lambda baseline, tuned: 0.9
    with monkeypatch.context() as limited:
        limited.setattr(RewriteBudget, "next", lambda self, waiting: (waiting[0], 1))
        first = run.tune()
    second, third = run.tune(), run.tune()
    tried = [[len(tuned.trials) for tuned in one.subgraphs] for one in (first, second, third)]
    assert set(tried[0]) == {1}
    assert any(tried[1]) and not any(tried[2])  # what has been tried in full is not tried again


def test_every_trial_is_kept_to_learn_from(run: Run) -> None:
    result = run.tune()
    trials = [trial for tuned in result.subgraphs for trial in tuned.trials]
    here = _fingerprint_of(result.bank_file)
    learned = _bank(run, here).measured()
    assert {words for words, _ in learned} == {str(trial.strategy) for trial in trials}
    effects = Experience.of(learned).effects
    assert effects["convolution-split@1"] > 0.05 > effects["mean-to-global-pool@1"]
    assert _bank(run, {**here, "cpu_model": "another"}).measured() == []


def _bank(run: Run, fingerprint: dict[str, Any]) -> SubgraphBank:
    journal = BankJournal(
        run.place / "bank",
        fingerprint["soc_version"],
        fingerprint=fingerprint,
        model={"name": "other"},
        engine_version="1",
    )
    return SubgraphBank(journal)


def _fingerprint_of(bank_file: Path) -> dict[str, Any]:
    (side_car,) = bank_file.parent.glob("*.provenance.jsonl")
    found: dict[str, Any] = json.loads(side_car.read_text().splitlines()[0])["fingerprint"]
    return found


@pytest.mark.parametrize(
    "odd",
    [
        '[["a@1", "x"], [1, 2], null]',
        *(pytest.param(odd, marks=pytest.mark.slow) for odd in ("5", '[["a"]]', "null")),
    ],
)
def test_side_car_somebody_has_edited_teaches_nothing_wrong(run: Run, odd: str) -> None:
    first = run.tune()
    (side_car,) = first.bank_file.parent.glob("*.provenance.jsonl")
    text = re.sub(r'"tried": ?\[\[.*?\]\]', f'"tried": {odd}', side_car.read_text())
    side_car.write_text(text)
    assert run.tune(repeat_tune=True).used_ids == first.used_ids


def test_batches_are_cut_unevenly_only_where_that_is_allowed(run: Run) -> None:
    onnx.save(c2f_network(2, batch=7), run.place / "net.onnx")
    for allowed in (False, True):
        run.tune(nonhomo_split=allowed, repeat_tune=True)
        details = (run.place / "out/subgraph_tuning").glob("*.json")
        options = [word for file in details for word in json.loads(file.read_text())["options"]]
        assert ("4+3" in options) is allowed


@pytest.mark.skipif(not block_size(), reason="this CPU has no blocked layout")
def test_layout_that_pays_off_is_recorded_and_becomes_part_of_the_model(
    run: Run,
) -> None:
    run.runs.parts["plain_layouts"] = True
    run.script = lambda baseline, tuned: 1.2 ** (_noughts(tuned) - _noughts(baseline))
    first = run.tune()
    used = [tuned for tuned in first.subgraphs if tuned.subgraph.graph_id in first.used_ids]
    assert {str(tuned.strategy) for tuned in used} == {"plain layout"}
    assert '"layout.plain"' in first.bank_file.read_text()
    model = aoe.load(first.om_file)
    feed = {"x": np.random.default_rng(3).standard_normal((1, 4, 8, 8)).astype(np.float32)}
    imported = onnx.load(run.place / "net.onnx")
    session = run.runners[-1].device.open_session(imported.SerializeToString(), _options())
    np.testing.assert_allclose(
        model.run(None, feed)[0], session.run(None, feed)[0], rtol=1e-4, atol=1e-5
    )
    shutil.copy(first.om_file, run.place / "first.om")
    second = run.tune()
    assert run.comparisons <= 3
    assert filecmp.cmp(second.om_file, run.place / "first.om", shallow=False)


def test_default_bank_has_subgraphs_where_aoe_has_them(run: Run) -> None:
    result = run.tune({"TUNE_BANK_PATH": "", "HOME": str(run.place)})
    graphs = run.place / "Ascend/latest/data/aoe/custom/graph"
    assert result.bank_file.is_relative_to(graphs / result.target.soc_version)
    assert result.used_ids
    again = run.tune({"TUNE_BANK_PATH": "", "HOME": str(run.place)})
    assert again.used_ids == result.used_ids
    assert again.report.tasks and all(
        one.outcome is not RepoOutcome.ADD for one in again.report.tasks
    )
    in_results = run.place / "out/bank/graph"
    assert list(in_results.rglob("*_l2cache.json"))


def _noughts(part: ModelPart) -> int:
    """Return how many subgraphs of a model are kept in the plain layout."""
    nodes = onnx.load(part.model, load_external_data=False).graph.node
    return sum(node.op_type == "RandomUniform" for node in nodes)


def test_result_file_names_records_the_toolkit_shows(run: Run) -> None:
    run.tune()
    added = run.section()["repo_modified_subgraphs"]["add_repo_subgraphs"]
    for row in added:
        (shown,) = show(row["repo_key"], run.place / "bank").records
        assert shown.record.key == row["repo_key"]
        assert str(strategy_of(shown.record)) == "convolution-split@1"
        assert shown.provenance


def test_anonymous_record_names_no_model(run: Run) -> None:
    result = run.tune(anonymous=True)
    assert "modelName" not in result.bank_file.read_text()


def test_operators_are_tuned_in_the_graph_that_was_chosen(run: Run) -> None:
    facts = {
        "model": run.place / "net.onnx",
        "output": run.place / "out",
        "job_types": (JobType.SGAT, JobType.OPAT),
        "trials": 1,
    }
    env = run_environment(run.place / "bank")
    both = tune_with(
        TuneSettings(**facts),
        env=env,
        cwd=run.place,
        progress=run.progress,
        now=_NOW,
        engine=run.engine,
    )
    subgraphs, operators = both.get(SgatResult), both.get(OpatResult)
    assert subgraphs.chosen is not None
    # figures are over the imported model: what the first mode gained is in them
    assert operators.speedup == pytest.approx(subgraphs.speedup, rel=0.02)
    manifest = read_manifest(operators.om_file)
    assert manifest.subgraphs == subgraphs.chosen.uses
    model = aoe.load(operators.om_file)
    assert model.fallback_reason == ""
    texts = run.progress.texts("step")
    assert "measuring the whole model against the imported one" in texts
    shutil.copy(operators.om_file, run.place / "first.om")
    looked_up = TuneSettings(**facts, lookup_only=True)
    again = tune_with(
        looked_up, env=env, cwd=run.place, progress=run.progress, now=_NOW, engine=run.engine
    )
    assert filecmp.cmp(run.place / "first.om", operators.om_file, shallow=False)
    assert again.speedup == 1.0
    assert again.get(OpatResult).validation.graph_chosen


def test_operators_go_on_in_a_second_run_from_the_forms_of_the_first(run: Run) -> None:
    first = run.tune()
    both = {"job_types": (JobType.SGAT, JobType.OPAT), "trials": 1}
    again = run.tune(**both)
    assert not any(tuned.trials for tuned in again.subgraphs)
    assert again.used_ids == first.used_ids
    assert _is_finished(run, JobType.OPAT)
    manifest = read_manifest(run.place / "out/net_tune.om")
    assert {use.graph_id for use in manifest.subgraphs} == first.used_ids


def _is_finished(run: Run, job: JobType) -> bool:
    """Return whether the result file of a mode says that it came to its end."""
    (file,) = (run.place / "out").glob(f"aoe_result_{job}_*.json")
    return "tuning_time(s)" in json.loads(file.read_text())[0]["basic"]


def test_stages_report_each_for_itself(run: Run) -> None:
    jobs, limits = (JobType.SGAT, JobType.OPAT), (600.0, 60.0)
    run.tune(job_types=jobs, stage_limits_s=limits, trials=1)
    assert all(_is_finished(run, job) for job in jobs)
    assert [text for text in run.progress.texts("step") if text.startswith("stage ")] == [
        "stage 1 of 2: subgraph tuning (SGAT), 600 s",
        "stage 2 of 2: operator tuning (OPAT), 60 s",
    ]


def test_bound_on_accuracy_that_nobody_would_check_is_refused(run: Run) -> None:
    precision = parse_precision(None, None, accuracy="cosine>=0.999")
    with pytest.raises(OptionError, match=r"--accuracy: subgraph tuning has a fixed tolerance"):
        run.tune(precision=precision)
    assert not (run.place / "out").exists()


@pytest.mark.parametrize("stage_limits_s", [(), (60.0, 600.0)])
def test_operator_tuning_before_this_one_is_refused(
    run: Run, stage_limits_s: tuple[float, ...]
) -> None:
    jobs = (JobType.OPAT, JobType.SGAT)
    with pytest.raises(OptionError, match=r"--job_type: subgraph tuning comes first.*opat,sgat"):
        run.tune(job_types=jobs, stage_limits_s=stage_limits_s)
    assert not (run.place / "out").exists()


def test_screen_tells_forms_figures_and_where_things_are(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run.tune()
    emit(report_of(result), as_json=False, no_color=True)
    text = " ".join(capsys.readouterr().out.split())
    assert "convolution-split@1" in text
    assert " ms, 1.7" in text and "against ONNX Runtime with all optimisations" in text
    assert f"bank: {result.bank_file}" in text
    assert "process finished. Performance improved by 7" in text
    emit(report_of(result), as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "aoe.sgat/1"
    summary = document["summary"]
    written = json.loads((run.place / "out/summary.json").read_text())
    assert summary == {name: written[name] for name in summary}
    assert {row["graph_id"] for row in summary["subgraphs"] if row["in_model"]} == result.used_ids


def test_screen_says_why_nothing_was_gained(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run.script = by_splits(1.0)
    emit(report_of(run.tune()), as_json=False, no_color=True)
    text = " ".join(capsys.readouterr().out.split())
    assert "whole model: unchanged, no other form is kept" in text
    assert "(no record yet)" in text
    assert "Performance not improved: every subgraph is fastest as it is" in text


def test_tuned_model_is_tuned_again_from_what_is_in_it(run: Run) -> None:
    first = run.tune()
    kept = shutil.copy(first.om_file, run.place / "kept.om")
    (run.place / "net.onnx").unlink()
    again = run.tune(model=Path(kept), framework=None, repeat_tune=True)
    assert again.om_file == first.om_file and again.model["sha256"] == first.model["sha256"]
    assert any(tuned.trials for tuned in again.subgraphs)
    shutil.copy(first.om_file, run.place / "again.om")
    hits = run.tune(model=Path(kept), framework=None)
    assert not any(tuned.trials for tuned in hits.subgraphs)
    assert filecmp.cmp(hits.om_file, kept, shallow=False)


def test_run_loop_holds_for_the_figures_of_the_whole_model(run: Run) -> None:
    run.tune(run_loop=300)
    judged = run.runners[-1].asked("compare_models")[-1]
    assert PROCESSES * judged.arguments["policy"].pairs_min == 300
