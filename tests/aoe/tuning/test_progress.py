"""What a run tells while it works: counted through all its parts."""

from __future__ import annotations

import pytest

from aoe.cli.progress import LineProgress
from aoe.testing.fakes import RecordingProgress
from aoe.tuning.progress import Progress, continued


def _tune_part(progress: Progress, operators: int) -> None:
    progress.plan(operators)
    for number in range(operators):
        progress.operator(f"op{number}", "done")


def test_operators_are_counted_through_the_parts_of_a_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress: Progress = LineProgress()
    for operators in (2, 1, 3):
        progress = continued(progress)
        _tune_part(progress, operators)
    lines = [line.split("s] ")[1] for line in capsys.readouterr().err.splitlines()]
    counts = [line.split(" ")[0] for line in lines if line.startswith("[")]
    assert counts == ["[1/2]", "[2/2]", "[3/3]", "[4/6]", "[5/6]", "[6/6]"]


def test_plan_that_grows_counts_what_was_done_before_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = continued(LineProgress())
    _tune_part(progress, 1)
    again = continued(progress)
    again.plan(1)
    again.operator("fused", "lost")
    again.plan(3)
    again.operator("part", "won")
    assert "[2/2] fused" in (text := capsys.readouterr().err)
    assert "[3/4] part" in text


def test_everything_else_is_passed_on() -> None:
    inner = RecordingProgress()
    progress = continued(inner)
    progress.step("s")
    progress.detail("d")
    progress.trial("o", 1, 2, None)
    progress.warn("w")
    assert continued(progress) is progress
    assert [event[0] for event in inner.events] == ["step", "detail", "trial", "warn"]


def test_no_count_is_beyond_what_was_planned(capsys: pytest.CaptureFixture[str]) -> None:
    """A second graph plans for itself, and tells what the first one did not have."""
    progress = continued(LineProgress())
    _tune_part(progress, 1)
    progress.plan(1)
    progress.operator("of the other graph", "won")
    assert "[2/2] of the other graph" in capsys.readouterr().err
