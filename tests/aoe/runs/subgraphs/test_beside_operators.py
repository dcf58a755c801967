"""Forms and operators together are held against operators alone, and the faster model is kept.

Graphs are cut, rewritten and put together for real; times are scripted, and nothing is compiled.
"""

from __future__ import annotations

import filecmp
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.engine.convolutions import BLOCK
from support.engine.fakes import always_twice_as_fast
from support.engine.subgraph_runs import Run
from support.engine.subgraphs import splits

from aoe.errors import RunError
from aoe.execute.messages import ModelPart
from aoe.om.file import read_manifest
from aoe.runs.subgraphs.result import SgatResult
from aoe.tuner.mode import JobType

_BOTH = {"job_types": (JobType.SGAT, JobType.OPAT), "trials": 1}
_with_operators_in_both_graphs = pytest.mark.skipif(
    BLOCK != 16, reason="the halves of the network are whole blocks of this CPU: nothing to tune"
)
_HELD = "holding the whole model against operator tuning alone"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    found = Run(tmp_path)
    found.candidate = always_twice_as_fast
    return found


def _times(*, together: float, alone: float) -> Callable[[ModelPart, ModelPart], float]:
    """Script: a Split costs a fifth; with kernels, the model takes what is given."""

    def time(part: ModelPart) -> float:
        if part.library is None:
            return 1.2 ** splits(part.model)
        return alone if _is_alone(part) else together

    return lambda baseline, tuned: time(baseline) / time(tuned)


def _is_alone(part: ModelPart) -> bool:
    """Return whether a model is put together from the imported graph, beside the chosen one."""
    return "alone" in part.model.parts


def _om(run: Run) -> Path:
    return run.place / "out" / "net_tune.om"


def _again_writes_the_same(run: Run) -> SgatResult:
    shutil.copy(_om(run), run.place / "first.om")
    again = run.tune(**_BOTH)
    assert filecmp.cmp(_om(run), run.place / "first.om", shallow=False)
    assert _HELD not in run.progress.texts("step")  # what was decided is believed
    return again


def test_forms_go_where_operators_alone_are_faster(run: Run) -> None:
    run.script = _times(together=0.7, alone=0.5)
    first = run.tune(**_BOTH)
    assert first.chosen is not None  # each of them has won, and all together
    assert _HELD in run.progress.texts("step")
    manifest = read_manifest(_om(run))
    assert manifest.subgraphs == ()
    assert manifest.kernels
    assert _again_writes_the_same(run).chosen is None


@_with_operators_in_both_graphs
def test_forms_stay_where_they_are_faster_with_operators(run: Run) -> None:
    run.script = _times(together=0.5, alone=0.7)
    first = run.tune(**_BOTH)
    assert _HELD in run.progress.texts("step")
    assert first.chosen is not None
    manifest = read_manifest(_om(run))
    assert manifest.subgraphs == first.chosen.uses
    assert manifest.kernels
    assert _again_writes_the_same(run).used_ids == first.used_ids


@_with_operators_in_both_graphs
def test_repeat_tune_decides_again(run: Run) -> None:
    run.script = _times(together=0.7, alone=0.5)
    run.tune(**_BOTH)
    run.script = _times(together=0.5, alone=0.7)
    again = run.tune(**_BOTH, repeat_tune=True)
    assert again.chosen is not None
    assert read_manifest(_om(run)).subgraphs == again.chosen.uses


def test_forms_stay_for_now_where_the_other_model_cannot_be_run(run: Run) -> None:
    scripted = _times(together=0.7, alone=0.5)

    def deadly(baseline: ModelPart, tuned: ModelPart) -> Any:
        if _is_alone(baseline):
            return RunError("compare_models", "the worker ended with signal 11")
        return scripted(baseline, tuned)

    run.script = deadly
    first = run.tune(**_BOTH)
    assert first.chosen is not None
    assert read_manifest(_om(run)).subgraphs == first.chosen.uses
    assert any("the rewrites stay" in text for text in run.progress.texts("warn"))
    run.script = scripted
    run.tune(**_BOTH)
    assert read_manifest(_om(run)).subgraphs == ()


@_with_operators_in_both_graphs
def test_operators_only_the_imported_graph_has_are_tuned_too(run: Run) -> None:
    run.script = _times(together=0.7, alone=0.5)
    run.tune(**_BOTH)
    beside = {use.key for use in read_manifest(_om(run)).kernels}
    run.script = _times(together=0.5, alone=0.7)
    run.tune(**_BOTH, repeat_tune=True)
    assert beside - {use.key for use in read_manifest(_om(run)).kernels}


def test_candidates_of_both_graphs_are_within_the_limit_of_the_run(run: Run) -> None:
    run.script = _times(together=0.7, alone=0.5)
    run.tune(job_types=_BOTH["job_types"], max_tuning_count=4)
    asked = run.runners[-1].asked("measure_candidates")
    screened = [call for call in asked if call.arguments["policy"].pairs_max <= 16]
    assert sum(len(call.arguments["schedules"]) for call in screened) <= 4


@pytest.mark.parametrize("most", [3, 5])
def test_candidates_of_all_modes_are_within_the_limit_of_the_run(run: Run, most: int) -> None:
    run.script = _times(together=0.7, alone=0.5)
    found = run.tune(job_types=_BOTH["job_types"], max_tuning_count=most)
    rewrites = sum(len(one.trials) for one in found.subgraphs)
    asked = run.runners[-1].asked("measure_candidates")
    screened = [call for call in asked if call.arguments["policy"].pairs_max <= 16]
    operators = sum(len(call.arguments["schedules"]) for call in screened)
    assert rewrites and rewrites + operators <= most


def test_what_is_looked_up_is_not_held_against_anything(run: Run) -> None:
    run.script = _times(together=0.5, alone=0.7)
    run.tune(**_BOTH)
    run.tune(**_BOTH, lookup_only=True)
    assert _HELD not in run.progress.texts("step")
