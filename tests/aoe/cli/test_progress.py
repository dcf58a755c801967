"""What a run shows on standard error: nothing but warnings, lines, or a bar."""

from __future__ import annotations

import re

import pytest

from aoe.cli.options import tells_all
from aoe.cli.progress import BarProgress, LineProgress, shown_progress
from aoe.errors import OptionError
from aoe.tuner.progress import Progress, continued


def _told(progress: Progress) -> None:
    progress.step("measuring")
    progress.plan(2)
    progress.trial("conv1", 4, 8, 1.25)
    progress.operator("conv1", "1.25x, add: better than the default")
    progress.warn("kernel left out")


def test_quiet_run_prints_warnings_only(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_progress(shown=False) as progress:
        _told(progress)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("] ")[1] for line in lines] == ["warning: kernel left out"]


def test_log_has_a_line_for_every_step_and_none_for_a_trial(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with shown_progress(shown=True) as progress:
        _told(progress)
    assert [line.split("s] ")[1] for line in capsys.readouterr().err.splitlines()] == [
        "measuring",
        "2 operators to look up or tune",
        "[1/2] conv1: 1.25x, add: better than the default",
        "warning: kernel left out",
    ]


def test_details_are_lines_for_those_who_ask(capsys: pytest.CaptureFixture[str]) -> None:
    for details in (False, True):
        with shown_progress(shown=True, details=details) as progress:
            progress.detail("silu@1: refused Mul_3: it is no product of a value and its sigmoid")
        assert ("silu@1: refused Mul_3" in capsys.readouterr().err) is details


def test_details_are_lines_without_a_bar_too(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_progress(shown=False, details=True) as progress:
        _told(progress)
        progress.detail("silu@1: refused Mul_3")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("] ")[1] for line in lines] == [
        "warning: kernel left out",
        "silu@1: refused Mul_3",
    ]


@pytest.mark.parametrize("level", [None, "debug", "info", "warning", "error", "null"])
def test_levels_of_the_log_are_those_of_cann(level: str | None) -> None:
    assert tells_all(level) is (level in ("debug", "info"))


def test_unknown_level_of_the_log_is_refused() -> None:
    with pytest.raises(OptionError, match=r"--log: no level .*expected debug or info or"):
        tells_all("verbose")


def test_no_color_means_no_bar_and_no_escape(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with shown_progress(shown=True, on_terminal=True) as progress:
        _told(progress)
    text = capsys.readouterr().err
    assert "[1/2] conv1: 1.25x, add: better than the default" in text
    assert "\x1b" not in text


def test_terminal_gets_a_bar_with_what_is_done_above_it(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_progress(shown=True, on_terminal=True) as progress:
        _told(progress)
    found = capsys.readouterr()
    text = re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", found.err)
    assert "[1/2] conv1: 1.25x, add: better than the default" in text
    assert "warning: kernel left out" in text
    assert not found.out


@pytest.mark.parametrize(
    ("limit_s", "left"), [(None, "5:00 left"), (200.0, "1:40 left"), (60.0, "0:00 left")]
)
def test_end_is_expected_within_the_time_limit(limit_s: float | None, left: str) -> None:
    now = [1000.0]
    bar = BarProgress(limit_s, clock=lambda: now[0])
    bar.plan(3)  # and the judging
    now[0] += 100
    bar.operator("conv1", "1.25x, add")
    assert left in bar.end_text()


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


def test_no_count_is_beyond_what_was_planned(capsys: pytest.CaptureFixture[str]) -> None:
    """A second graph plans for itself, and tells what the first one did not have."""
    progress = continued(LineProgress())
    _tune_part(progress, 1)
    progress.plan(1)
    progress.operator("of the other graph", "won")
    assert "[2/2] of the other graph" in capsys.readouterr().err
