"""What a run has printed beside what fresh processes read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import outside
import pytest
from comparison.steps import Steps
from support.contracts.small_models import SmallModel

SUMMARY: dict[str, Any] = {
    "baseline_ms": 35.0,
    "tuned_ms": 12.4,
    "speedup": 2.83,
    "speedup_low": 2.6,
    "speedup_high": 3.06,
    "unchanged": False,
    "tuned_ops": 3,
}


@pytest.mark.parametrize(
    ("changed", "rounds", "expected"),
    [
        ({}, [(24.5, 11.1), (24.6, 11.1)], False),
        ({}, [(35.0, 12.0), (24.0, 11.0), (34.0, 12.2)], True),
        ({"unchanged": True}, [(24.5, 24.6), (24.6, 24.5)], True),
        ({"unchanged": True}, [(24.5, 20.0), (24.6, 21.0)], False),
    ],
)
def test_a_figure_holds_where_the_median_outside_lies_in_its_interval(
    changed: dict[str, Any], rounds: list[tuple[float, float]], expected: bool
) -> None:
    assert outside.holds(outside.row_of({**SUMMARY, **changed}, rounds)) is expected


def test_table_has_the_time_of_onnx_runtime_in_the_run_and_outside(tmp_path: Path) -> None:
    steps = Steps(tmp_path / "steps.json", {"limit": 60.0, "rounds": 1})
    steps.once("tasnet", lambda: outside.row_of(SUMMARY, [(24.5, 11.1)]))
    told = "| tasnet | 2.83 (2.60 to 3.06) | 2.21 (2.21 to 2.21) | 35.00 | 24.50 | **no** |"
    assert told in outside.table(steps.document)


def test_calls_are_timed_in_a_process_of_their_own(tmp_path: Path) -> None:
    model = SmallModel()
    onnx.save(model.model(model.op("Exp", model.input(4))), tmp_path / "net.onnx")
    command = [sys.executable, outside.__file__, "--one", str(tmp_path / "net.onnx")]
    assert float(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout) > 0
