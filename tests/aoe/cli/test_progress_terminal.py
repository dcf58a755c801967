"""The bar on a real terminal: what is seen of it, and that nothing is left of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.terminals import HIDE_CURSOR, Shown, run_on_terminal
from support.tiers import few_every_day

LONG = "/backbone/stage4/block2/attention/MatMul_with_a_long_name"
_RUN = f"""
import sys, time
from pathlib import Path
import aoe.runs.run
from aoe.cli import app

def tune_with(settings, *, progress, **rest):
    progress.step("optimising the graph with ONNX Runtime")
    progress.plan(3)
    for number in range(3):
        for done in range(1, 5):
            time.sleep(0.15)
            progress.trial("{LONG}", done, 4, 1.0 + done / 4)
        progress.operator("conv" + str(number), "2.00x, add: better than the default")
    progress.step("judging the whole model")
    progress.warn("a kernel has gone")
    print("ALL TUNED", file=sys.stderr, flush=True)
    time.sleep(120 if sys.argv[-1] == "--wait" else 0)
    raise SystemExit(0)

aoe.runs.run.tune_with = tune_with
sys.argv = ["aoe", "--model=m.onnx"]
"""
DONE = _RUN + "app.main()"
WAITING = _RUN.replace('sys.argv[-1] == "--wait"', "True") + "app.main()"


def _run(tmp_path: Path, width: int, code: str = DONE, **options: object) -> Shown:
    return run_on_terminal(code, cwd=tmp_path, width=width, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module", params=[80, 40])
def shown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """Return a whole run on a terminal of so many columns."""
    return _run(tmp_path_factory.mktemp("terminal"), request.param)


def test_bar_has_trials_best_and_expected_end_and_fits(shown: Shown) -> None:
    width = shown.width
    bars = [line for line in shown.drawn if "━" in line]
    assert all(len(line) <= width for line in shown.drawn)
    assert any("2/3" in line and "1.50x" in line for line in bars)
    assert any("trial 2/4" in line for line in bars) == (width == 80)
    assert any(" left" in line for line in bars)
    assert shown.exit_code == 0


def test_nothing_of_the_bar_is_left_at_the_end(shown: Shown) -> None:
    assert not [line for line in shown.screen if "━" in line or " left" in line]
    assert "[1/3] conv0: 2.00x" in "\n".join(shown.screen)
    assert shown.is_cursor_shown and shown.settings_kept


@pytest.mark.parametrize("width", [80, pytest.param(40, marks=pytest.mark.slow)])
def test_ctrl_c_leaves_the_terminal_clean(tmp_path: Path, width: int) -> None:
    shown = _run(tmp_path, width, WAITING, interrupt_at="ALL TUNED")
    assert shown.exit_code == 130
    assert HIDE_CURSOR in shown.text and shown.is_cursor_shown and shown.settings_kept
    assert not [line for line in shown.screen if "━" in line]
    assert "interrupted: what was found so far" in " ".join(shown.screen)


@pytest.mark.parametrize("env", few_every_day([{"NO_COLOR": "1"}, {"TERM": "dumb"}]))
def test_no_escapes_where_none_are_wanted(tmp_path: Path, env: dict[str, str]) -> None:
    shown = _run(tmp_path, 80, env=env)
    assert "\x1b" not in shown.text and "━" not in shown.text
    assert "3 operators to look up or tune" in shown.text
    assert "[3/3] conv2: 2.00x, add: better than the default" in shown.text
