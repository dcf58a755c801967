"""What the benchmark of a second model tells of its runs; nothing is tuned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
import second_model
from comparison.experiment import run_experiment
from comparison.steps import Steps, tuned_figures
from onnx import helper
from support.contracts.networks import shipped_network
from support.engine.models import make_model


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
    times = {"first": 20.0, "again": 1.0, "second, alone": 40.0, "second, behind": 10.0}
    for title, seconds in times.items():
        steps.once(f"a:b {title}", lambda s=seconds: {"seconds": s, "cpu_s": s + 5, **found})
    lines = second_model.table(steps.document).splitlines()
    assert "| a:b | 20, 25 | 5%, 24% | -, - | 50%, 60% |" in lines
    assert lines[-1] == (
        "| a:b second, behind | 10.0 | 50%, 25% | 3 | 2 of 3 | 1.250x | search 7.5, judge 4.2 |"
    )


@pytest.mark.parametrize("pair", ["resnet18", "resnet18:resnet51", "a:b:c"])
def test_pairs_are_networks_of_the_suite(pair: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=f"got {pair}"):
        run_experiment(
            second_model.EXPERIMENT, [pair, "--work", str(tmp_path), f"--results={tmp_path}/r.json"]
        )


def test_changed_model_has_one_other_layer_and_computes() -> None:
    model = shipped_network("squeezenet")
    before = [list(tensor.dims) for tensor in model.graph.initializer]
    changed = second_model.with_other_layer(model)
    assert changed is not None
    onnx.checker.check_model(changed)
    after = [list(tensor.dims) for tensor in changed.graph.initializer]
    others = [(one, other) for one, other in zip(before, after, strict=True) if one != other]
    assert [(one[2:], other[2:]) for one, other in others] == [([3, 3], [5, 5])]
    assert onnx.shape_inference.infer_shapes(changed, strict_mode=True).graph.output
    assert (
        second_model.with_other_layer(
            make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": (1,)}, ["y"])
        )
        is None
    )
