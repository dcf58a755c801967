"""What the benchmark of a second model tells of its runs; nothing is tuned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import second_model
from comparison.experiment import run_experiment
from comparison.steps import Steps, tuned_figures


def _figures(folder: Path) -> dict[str, Any]:
    """Return the figures of a run that has left its results in a folder."""
    (folder / "op_tuning").mkdir(parents=True)
    for name, trials in (("Conv", [[{}, {}], []]), ("Gemm", [[{}]])):
        operators = [{"trials": tried} for tried in trials]
        (folder / "op_tuning" / f"{name}.json").write_text(json.dumps(operators))
    summary = {
        "speedup": 1.25,
        "operators": [{"outcome": outcome} for outcome in ("reserved", "add", "reserved")],
        "phase_seconds": {"search": 7.5, "judge": 4.25},
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    return tuned_figures(folder)


def test_trials_and_hits_are_counted_and_seconds_stand_beside_the_other_runs(
    tmp_path: Path,
) -> None:
    found = _figures(tmp_path / "run")
    assert (found["trials"], found["hits"], found["operators"]) == (3, 2, 3)
    steps = Steps(tmp_path / "steps.json", {})
    for seconds, title in ((20.0, "first"), (40.0, "second, alone"), (10.0, "second, behind")):
        steps.once(f"a:b {title}", lambda s=seconds: {"seconds": s, **found})
    line = second_model.table(steps.document).splitlines()[-1]
    assert line == (
        "| a:b second, behind | 10.0 | 50%, 25% | 3 | 2 of 3 | 1.250x | search 7.5, judge 4.2 |"
    )


@pytest.mark.parametrize("pair", ["resnet18", "resnet18:resnet51", "a:b:c"])
def test_pairs_are_networks_of_the_suite(pair: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=f"got {pair}"):
        run_experiment(
            second_model.EXPERIMENT, [pair, "--work", str(tmp_path), f"--results={tmp_path}/r.json"]
        )
