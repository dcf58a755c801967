"""The plan of gradient tuning, with a training run that computes its times."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.documents import find_faults
from support.engine.trainings import SLOW, FakeProgram, FakeTraining, tuned_into

from aoe.gradients.cost import AllReduceCost
from aoe.report.reuse import PlanReport
from aoe.results.files import DEFAULT_WAS_BEST
from aoe.runs.planning import TuningPlan, plan_model
from aoe.tuner.mode import JobType, ModeContext, TuneSettings
from aoe.tuner.progress import SilentProgress
from aoe.tuner.reuse.kinds import Reuse, ReuseKind


def _planned(
    folder: Path, training: FakeTraining, *, repeat_tune: bool = False
) -> tuple[TuningPlan, Reuse]:
    settings = TuneSettings(
        model=FakeProgram(training), job_types=(JobType.GDAT,), repeat_tune=repeat_tune
    )
    plan = plan_model(
        ModeContext(
            settings=settings,
            env={"TUNE_BANK_PATH": str(folder)},
            cwd=folder,
            progress=SilentProgress(),
            now=datetime(2026, 1, 2, tzinfo=UTC),
        )
    )
    (part,) = plan.kinds[JobType.GDAT].reuse.parts
    return plan, part


def test_unknown_training_is_new_and_its_search_lasts_no_longer_than_planned(
    tmp_path: Path,
) -> None:
    training = FakeTraining()
    plan, part = _planned(tmp_path, training)
    assert (part.kind, part.key) == (ReuseKind.NEW, str(training.model_hash))
    assert "no record" in part.reason and "at most 11 groupings" in part.reason  # 36.5 MiB
    assert not (training.raced or training.confirmed or training.recorded)
    assert training.applied[-1] is None and not list(tmp_path.iterdir())
    tuned = tuned_into(tmp_path, FakeTraining())
    assert 0 < len(tuned.candidates) <= 11
    step_us = tuned.step_us(1)
    assert tuned.steps * step_us / 1e6 <= plan.most_s


def test_known_training_is_reused_and_takes_no_search(tmp_path: Path) -> None:
    tuned_into(tmp_path, FakeTraining())
    plan, part = _planned(tmp_path, FakeTraining())
    assert part.kind is ReuseKind.REUSED and part.reason.startswith("in the bank, measured in")
    assert plan.most_s == 0.0
    report = PlanReport(plan=plan)
    document = {"schema": report.schema, **report.document()}
    assert find_faults(document) == [] and document["group"] == "4 processes, gloo"


def test_default_known_to_be_best_is_reused_unless_times_have_changed(tmp_path: Path) -> None:
    training = FakeTraining()
    training.penalty = 2.0
    tuned_into(tmp_path, training)
    again = FakeTraining()
    again.penalty = 2.0
    part = _planned(tmp_path, again)[1]
    assert part.kind is ReuseKind.REUSED and DEFAULT_WAS_BEST in part.reason
    again.batch = 2.0
    part = _planned(tmp_path, again)[1]
    assert part.kind is ReuseKind.NEW
    assert part.reason.startswith(f"{DEFAULT_WAS_BEST}, but a training step takes")


@pytest.mark.parametrize(
    ("training", "why"),
    [
        (FakeTraining(AllReduceCost(latency_us=300.0, us_per_byte=1e-3 / 2.5)), "all-reduce takes"),
        (FakeTraining(SLOW, world_size=8), "of another cluster"),
    ],
)
def test_training_in_another_cluster_is_tuned_again(
    tmp_path: Path, training: FakeTraining, why: str
) -> None:
    tuned_into(tmp_path, FakeTraining())
    plan, part = _planned(tmp_path, training)
    assert part.kind is ReuseKind.RETUNED and why in part.reason and plan.most_s > 0


def test_repeat_tune_tunes_the_known_again(tmp_path: Path) -> None:
    tuned_into(tmp_path, FakeTraining())
    assert _planned(tmp_path, FakeTraining(), repeat_tune=True)[1].kind is ReuseKind.RETUNED
