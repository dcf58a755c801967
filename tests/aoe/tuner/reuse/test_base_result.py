"""`--base_result`: what an earlier run knows is taken over, only what changed is tuned."""

from __future__ import annotations

import filecmp
import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.engine.models import save_model
from support.engine.result_files import change_kernel_sources
from support.engine.scripted_runs import ScriptedRuns, blocks_net, evenly_profiled
from support.tiers import few_every_day

from aoe.errors import OfflineModelError, OptionError
from aoe.ort.profile import ModelProfile
from aoe.runs.operators.result import OpatResult
from aoe.tuner.reuse.kinds import ReuseKind, ReuseSummary
from aoebank import Bank, validate

FIRST = blocks_net([3, 5, 7])
CHANGED = blocks_net([3, 9, 11], head="LogSoftmax")


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ScriptedRuns:
    """Runs by a script, with places of their own."""
    for name in ("HOME", "ASCEND_WORK_PATH"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    return ScriptedRuns()


def _tune(
    runs: ScriptedRuns, root: Path, model: onnx.ModelProto, name: str, **options: Any
) -> OpatResult:
    file = save_model(model, root / f"{name}.onnx")
    tuned = runs.tune(
        file, output=root / name, bank=options.pop("bank", root / f"{name}.bank"), **options
    )
    return tuned.get(OpatResult)


def _keys(result: OpatResult) -> set[str]:
    return {one.operator.key for one in result.operators}


def _reuse(result: OpatResult) -> ReuseSummary:
    assert result.reuse is not None
    return result.reuse


def _of(result: OpatResult, kind: ReuseKind) -> set[str]:
    return {part.key for part in _reuse(result).parts if part.kind is kind}


def _trials(result: OpatResult) -> int:
    return sum(len(one.search.trials) for one in result.operators if one.search is not None)


def _base(root: Path, first: OpatResult, place: str) -> Path:
    """Return an earlier result in one of the forms it is given in."""
    match place:
        case "directory":
            return root / "first"
        case "model beside its results":
            return first.om_file
        case "model alone":
            (root / "alone").mkdir()
            return Path(shutil.copy(first.om_file, root / "alone" / "tuned.om"))
        case "bank":
            return root / "first.bank"
        case "directory without a bank":
            shutil.rmtree(root / "first" / "bank")
            return root / "first"
    raise AssertionError(place)


@pytest.mark.parametrize(
    "place",
    few_every_day(
        [
            "directory",
            pytest.param("model beside its results", marks=pytest.mark.slow),
            "model alone",
            "bank",
            pytest.param("directory without a bank", marks=pytest.mark.slow),
        ]
    ),
)
def test_only_what_changed_is_tuned(runs: ScriptedRuns, tmp_path: Path, place: str) -> None:
    first = _tune(runs, tmp_path, FIRST, "first")
    runs.trials()
    second = _tune(runs, tmp_path, CHANGED, "second", base_result=_base(tmp_path, first, place))
    assert _of(second, ReuseKind.REUSED) == _keys(first) & _keys(second) != set()
    tuned = _of(second, ReuseKind.RETUNED) | _of(second, ReuseKind.NEW)
    assert tuned == _keys(second) - _keys(first) != set()
    searched = {one.operator.key for one in second.operators if one.search is not None}
    assert searched == tuned
    gone = _keys(first) - _keys(second) if place != "bank" else set()
    assert _of(second, ReuseKind.DROPPED) == gone


def test_reasons_name_what_is_different_and_the_summary_tells_every_part(
    runs: ScriptedRuns, tmp_path: Path
) -> None:
    _tune(runs, tmp_path, FIRST, "first")
    assert json.loads((tmp_path / "first" / "summary.json").read_text())["reuse"] is None
    second = _tune(runs, tmp_path, CHANGED, "second", base_result=tmp_path / "first")
    here = {p.op_names[0]: p for p in _reuse(second).parts if p.kind is not ReuseKind.DROPPED}
    assert (here["lrn0"].kind, here["lrn0"].reason) == (ReuseKind.REUSED, "in the earlier result")
    assert here["lrn1"].kind is ReuseKind.RETUNED
    assert here["lrn1"].reason in {"size changed 5->9", "size changed 7->9", "size changed 3->9"}
    gone = {p.op_names[0]: p.reason for p in _reuse(second).parts if p.kind is ReuseKind.DROPPED}
    assert {"lrn1", "lrn2"} <= gone.keys()
    assert set(gone.values()) == {"not in the model any more"}
    told = json.loads((tmp_path / "second" / "summary.json").read_text())["reuse"]
    assert told["base"] == str(tmp_path / "first")
    assert sum(told["counts"].values()) == len(told["parts"]) == len(_reuse(second).parts)
    assert {part["kind"] for part in told["parts"]} <= {"reused", "retuned", "new", "dropped"}


@pytest.mark.slow
def test_other_shape_is_named_and_seeds_the_search(runs: ScriptedRuns, tmp_path: Path) -> None:
    _tune(runs, tmp_path, FIRST, "first")
    wide = blocks_net([3, 5, 7], extents=(32, 56))
    second = _tune(runs, tmp_path, wide, "second", base_result=tmp_path / "first")
    assert {part.reason for part in _reuse(second).parts if part.kind is ReuseKind.RETUNED} == {
        "shape changed 32->56"
    }
    alone = _tune(runs, tmp_path, wide, "alone")
    assert _trials(second) < _trials(alone)  # half as many where a like one is known


_FIRST, _CHANGED = [3, 5, 7, 9, 11, 13], [3, 5, 7, 9, 11, 15]
"""Sizes of LRN: one is another one, and so are the neighbours of two kernels."""


@dataclass(frozen=True, slots=True)
class _Work:
    """What a run has asked of the machine."""

    trials: int
    comparisons: int
    processes: int
    profiles: int


def _work_of(runs: ScriptedRuns, result: OpatResult, profiles: list[object]) -> _Work:
    (runner,) = runs.runners
    found = _Work(
        trials=_trials(result),
        comparisons=len(runner.asked("compare_models")),
        processes=runner.restarts,
        profiles=len(profiles),
    )
    runs.runners.clear()
    profiles.clear()
    return found


@pytest.fixture
def profiles(runs: ScriptedRuns) -> list[object]:
    """Return the profiles runs take; seven kernels save as much alone as in the model."""
    taken: list[object] = []

    def profiled(*given: Any, **options: Any) -> ModelProfile:
        taken.append(given)
        return evenly_profiled(*given, **options)

    runs.parts["profile_model"] = profiled
    runs.candidate = lambda schedule: 1.05
    return taken


@pytest.mark.slow
def test_judging_is_spared_for_what_stands_as_it_stood(
    runs: ScriptedRuns, profiles: list[object], tmp_path: Path
) -> None:
    """What a run asks of the machine is counted, so that it cannot creep back."""
    first = _tune(runs, tmp_path, blocks_net(_FIRST), "first")
    _work_of(runs, first, profiles)
    work = {}
    for name, options in {"with": {"base_result": tmp_path / "first"}, "alone": {}}.items():
        result = _tune(runs, tmp_path, blocks_net(_CHANGED), name, **options)
        work[name] = _work_of(runs, result, profiles)
        assert len(result.validation.kept) == 7
    spared, full = work["with"], work["alone"]
    assert (spared.comparisons, spared.processes, spared.profiles) == (1, 1, 2)
    assert (full.comparisons, full.processes, full.profiles) == (4, 3, 2)
    assert 0 < spared.trials < full.trials / 6


def test_run_that_knows_everything_has_one_comparison_and_no_trial(
    runs: ScriptedRuns, profiles: list[object], tmp_path: Path
) -> None:
    """So it is after a first run, after one with an earlier result, and every time.

    The times of nodes are those of an earlier run, unless a time limit is shared out by them.
    """
    first = _tune(runs, tmp_path, blocks_net(_FIRST), "first")
    changed = _tune(runs, tmp_path, blocks_net(_CHANGED), "changed", base_result=tmp_path / "first")
    for result, model in ((first, _FIRST), (changed, _CHANGED)):
        name = result.om_file.parent.name
        for _ in range(2):
            runs.runners.clear()
            profiles.clear()
            again = _tune(runs, tmp_path, blocks_net(model), name)
            assert _work_of(runs, again, profiles) == _Work(0, 1, 0, 0)
            assert len(again.validation.kept) == 7
            for now, then in (
                (again.profile, result.profile),
                (again.tuned_profile, result.tuned_profile),
            ):
                assert now is not None and then is not None
                assert now == replace(then, is_recalled=True)
        limited = _tune(runs, tmp_path, blocks_net(model), name, tuning_time_limit_s=600.0)
        assert _work_of(runs, limited, profiles).profiles == 2


def test_result_stands_alone(runs: ScriptedRuns, tmp_path: Path) -> None:
    """What was taken over is in the bank and in the results, with its provenance."""
    _tune(runs, tmp_path, FIRST, "first")
    second = _tune(runs, tmp_path, CHANGED, "second", base_result=tmp_path / "first")
    kept = shutil.copy(second.om_file, tmp_path / "kept.om")
    for gone in ("first", "first.bank", "second"):
        shutil.rmtree(tmp_path / gone)
    runs.trials()
    again = _tune(runs, tmp_path, CHANGED, "second")
    assert runs.trials() == 0
    assert {one.outcome.value for one in again.operators} == {"reserved"}
    assert filecmp.cmp(again.om_file, kept, shallow=False)
    lines = [
        line
        for file in Bank(tmp_path / "second.bank").iter_files()
        for line in Bank(tmp_path / "second.bank").iter_provenance(file)
        if line.event == "add"
    ]
    assert {line.model["name"] for line in lines} == {"first", "second"}
    assert not [f for f in validate(tmp_path / "second.bank").findings if f.severity == "error"]


@pytest.mark.slow
def test_search_that_found_nothing_then_is_not_made_again(
    runs: ScriptedRuns, tmp_path: Path
) -> None:
    runs.candidate = lambda schedule: 1.0
    _tune(runs, tmp_path, FIRST, "first")
    runs.candidate = lambda schedule: 2.0
    second = _tune(runs, tmp_path, CHANGED, "second", base_result=tmp_path / "first")
    reused = [part for part in _reuse(second).parts if part.kind is ReuseKind.REUSED]
    assert {part.reason for part in reused} == {"default was best in an earlier search"}
    assert {one.operator.key for one in second.operators if one.search is None} == {
        part.key for part in reused
    }


def test_search_that_was_cut_goes_on_without_a_limit_only(
    runs: ScriptedRuns, tmp_path: Path
) -> None:
    runs.candidate = lambda schedule: 1.0
    first = _tune(runs, tmp_path, FIRST, "first", max_tuning_count=7)
    cut = {one.operator.key for one in first.operators if one.search is not None}
    assert cut and _trials(first) == 7
    base, changed = {"base_result": tmp_path / "first"}, blocks_net([3, 5, 9])
    limited = _tune(runs, tmp_path, changed, "limited", tuning_time_limit_s=600.0, **base)
    searched = {one.operator.key for one in limited.operators if one.search is not None}
    assert searched and searched.isdisjoint(cut)
    assert cut <= _of(limited, ReuseKind.REUSED)
    unlimited = _tune(runs, tmp_path, changed, "unlimited", **base)
    assert cut <= {one.operator.key for one in unlimited.operators if one.search is not None}


def test_records_of_changed_kernel_code_are_tuned_again(runs: ScriptedRuns, tmp_path: Path) -> None:
    first = _tune(runs, tmp_path, FIRST, "first")
    change_kernel_sources(tmp_path / "first")
    second = _tune(runs, tmp_path, FIRST, "second", base_result=tmp_path / "first")
    assert _of(second, ReuseKind.RETUNED) == _keys(first)
    assert {part.reason for part in _reuse(second).parts} == {"kernel source changed: stale"}


@pytest.mark.slow
def test_record_of_another_library_version_is_reused_and_doubted(
    runs: ScriptedRuns, tmp_path: Path
) -> None:
    first = _tune(runs, tmp_path, FIRST, "first")
    versions = {**first.versions, "onnxruntime": "9.9.9"}
    runs.parts["versions"] = lambda: versions
    second = _tune(runs, tmp_path, FIRST, "second", base_result=tmp_path / "first")
    assert _of(second, ReuseKind.REUSED) == _keys(first)
    (reason,) = {part.reason for part in _reuse(second).parts}
    then = first.versions["onnxruntime"]
    assert reason == (
        f"in the earlier result; onnxruntime {then} -> 9.9.9: soft mismatch, to be checked again"
    )


@pytest.mark.parametrize("kind", ["empty directory", "nothing", "file"])
def test_place_without_a_result_is_refused(runs: ScriptedRuns, tmp_path: Path, kind: str) -> None:
    place = tmp_path / "base"
    if kind == "empty directory":
        place.mkdir()
    expected = OptionError if kind != "file" else OfflineModelError
    if kind == "file":
        place.write_text("text")
    with pytest.raises(expected) as caught:
        _tune(runs, tmp_path, FIRST, "first", base_result=place)
    assert str(place) in str(caught.value)


@pytest.mark.slow
def test_details_written_before_records_were_in_them_are_read(
    runs: ScriptedRuns, tmp_path: Path
) -> None:
    first = _tune(runs, tmp_path, FIRST, "first")
    for file in (tmp_path / "first" / "op_tuning").iterdir():
        details = json.loads(file.read_text())
        for detail in details:
            del detail["record"], detail["provenance"]
        file.write_text(json.dumps(details))
    shutil.rmtree(tmp_path / "first" / "bank")
    second = _tune(runs, tmp_path, FIRST, "second", base_result=tmp_path / "first")
    assert _of(second, ReuseKind.REUSED) == _keys(first)
    assert "kernel source was not noted" in _reuse(second).parts[0].reason


@pytest.mark.slow
def test_details_somebody_has_broken_are_passed_over(runs: ScriptedRuns, tmp_path: Path) -> None:
    _tune(runs, tmp_path, FIRST, "first")
    shutil.rmtree(tmp_path / "first" / "bank")
    folder = tmp_path / "first" / "op_tuning"
    for number, text in enumerate(("", "{", "[1, null, {}]", '[{"op_names": [], "workload": 3}]')):
        (folder / f"odd{number}.json").write_text(text)
    for file in folder.glob("[A-Z]*.json"):
        details = json.loads(file.read_text())
        for detail in details:
            detail["provenance"] = [None, {"key": 1}, {"event": "add"}]
            detail["record"] = {"strategy": {"engine": "aoe", "steps": "odd"}}
        file.write_text(json.dumps(details))
    second = _tune(runs, tmp_path, FIRST, "second", base_result=tmp_path / "first")
    assert _of(second, ReuseKind.REUSED) == set()


def test_damaged_file_of_an_earlier_bank_is_told_and_its_details_answer(
    runs: ScriptedRuns, tmp_path: Path
) -> None:
    first = _tune(runs, tmp_path, FIRST, "first")
    files = [*Bank(tmp_path / "first" / "bank").iter_files()]
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[:-30])
    told: list[str] = []
    found = _tune(
        runs,
        tmp_path,
        FIRST,
        "second",
        base_result=tmp_path / "first",
        progress=lambda event: told.append(event.text),
    )
    assert _of(found, ReuseKind.REUSED) == _keys(first)
    assert [one.file for one in found.damaged] == files
    assert all(
        any(text.startswith(f"{file}: ") and "passed over" in text for text in told)
        for file in files
    )
    assert [file.exists() for file in files] == [True] * len(files)  # it is not ours to mend
