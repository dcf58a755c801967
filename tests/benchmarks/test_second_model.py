"""What the benchmark of a second model reads from a run; nothing is tuned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import second_model
from second_model import read_run


def test_trials_and_hits_are_counted(tmp_path: Path) -> None:
    (tmp_path / "op_tuning").mkdir()
    for name, trials in (("Conv", [[{}, {}], []]), ("Gemm", [[{}]])):
        operators = [{"trials": tried} for tried in trials]
        (tmp_path / "op_tuning" / f"{name}.json").write_text(json.dumps(operators))
    outcomes = ["reserved", "add", "reserved"]
    summary = {
        "speedup": 1.25,
        "operators": [{"outcome": outcome} for outcome in outcomes],
        "phase_seconds": {"search": 7.5, "judge": 4.25},
    }
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    run = read_run(tmp_path, 12.5)
    assert (run.trials, run.hits) == (3, 2)
    assert "12.5 s" in str(run) and "2 of 3" in str(run) and "1.250x" in str(run)
    assert str(run).endswith("search 7.5, judge 4.2")


@pytest.mark.parametrize("pair", ["resnet18", "resnet18:resnet51", "a:b:c"])
def test_pairs_are_networks_of_the_suite(pair: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        second_model.main(["--pairs", pair])
    assert f"got {pair}" in capsys.readouterr().err
