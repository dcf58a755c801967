"""A range within a time limit ends with a verdict: a clock that only the phases move on tells."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.engine.fakes import RecordingProgress, ScriptedClock, ScriptedRunner
from support.engine.open_rows import parsed
from support.engine.scripted_runs import ScriptedRuns, evenly_profiled

from aoe.errors import RunTimeoutError
from aoe.execute.tasks import WHOLE_MODELS
from aoe.om.file import MODEL, read_manifest, unpack
from aoe.ort.inputs import ModelInputs
from aoe.ort.profile import ModelProfile

_RANGE = "x:1~4,1~128,32"
_WIDTHS = (32, 48, 64, 80, 96, 112)
"""Each layer is an operator of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    """What a model takes on a machine of two cores: seconds of a session, and of a call by rows."""

    load_s: float
    run_s: Mapping[int, float]
    start_s: float

    def call_s(self, inputs: ModelInputs) -> float:
        """Seconds of a call, by its rows; between those of `run_s` in their proportion."""
        batch, length, _ = dict(inputs.shapes)["x"]
        return float(np.interp(batch * length, list(self.run_s), list(self.run_s.values())))


_GPT2 = _Model(load_s=1.2, run_s={1: 0.03, 22: 0.08, 512: 1.3}, start_s=15.0)
_MINILM = _Model(load_s=0.15, run_s={1: 0.0012, 22: 0.003, 512: 0.037}, start_s=3.0)


@dataclass(slots=True, kw_only=True)
class _TimedRunner(ScriptedRunner):
    clock: ScriptedClock
    costs: _Model
    is_fresh: bool = True

    def restart(self, following: int = 0) -> None:
        ScriptedRunner.restart(self, following)
        self.is_fresh = True

    def call(self, task: str, *, timeout_s: float, **arguments: Any) -> Any:
        needed_s = self._cost_s(task, arguments) + 1.0 * self.is_fresh
        self.is_fresh = False
        self.clock.advance(task, min(needed_s, timeout_s))
        if needed_s > timeout_s:
            raise RunTimeoutError(task, "no answer from the worker", got=f"over {timeout_s} s")
        return ScriptedRunner.call(self, task, timeout_s=timeout_s, **arguments)

    def _cost_s(self, task: str, arguments: dict[str, Any]) -> float:
        if task == "measure_candidates":
            return 0.2 + arguments["policy"].enough_s * len(arguments["schedules"])
        if task == "compile_kernels":
            return min(arguments["all_s"], 0.3 * len(arguments["kernels"]))
        if task != "compare_models":
            return 1.0 if task == "machine_rates" else 0.02
        terms = arguments.get("terms", WHOLE_MODELS)
        at = [(arguments["inputs"], arguments["policy"])]
        at += [(point.inputs, point.policy) for point in terms.points]
        sessions = 2 * (len(terms.orders) if at[0][1].pairs_max >= 12 else 1)
        runs_s = (
            (sessions * (3 + policy.warmup) + 2 * policy.pairs_max) * self.costs.call_s(inputs)
            for inputs, policy in at
        )
        return sessions * self.costs.load_s + sum(runs_s)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    body, weights, x = "", [], "x"
    for number, (rows, columns) in enumerate(zip(_WIDTHS, (*_WIDTHS[1:], 32), strict=True)):
        made = "y" if number == len(_WIDTHS) - 1 else f"h{number}"
        body += f"m{number} = MatMul({x}, w{number}) {made} = Relu(m{number})\n"
        weights.append(f"float[{rows},{columns}] w{number}")
        x = made
    file = tmp_path_factory.mktemp("model") / "layers.onnx"
    onnx.save(parsed("float[N,S,32] x", body, weights=", ".join(weights)), file)
    return file


def _summary(
    model: Path,
    folder: Path,
    costs: _Model,
    limit_s: float,
    speedup: float,
    told: RecordingProgress,
    clock: ScriptedClock,
) -> dict[str, Any]:
    """Tune in scripted time; return the summary."""

    def profile(*given: Any, points: Sequence[ModelInputs] = (), **how: Any) -> ModelProfile:
        middle_us, *points_us = (1e6 * costs.call_s(one) for one in (how["inputs"], *points))
        start_s = costs.load_s if "profile" in clock.spent_s else costs.start_s
        clock.advance("profile", start_s + (13 * middle_us + sum(points_us)) / 1e6)
        found = evenly_profiled(*given)
        scale = middle_us / found.model_us
        return replace(
            found,
            node_us={name: scale * us for name, us in found.node_us.items()},
            model_us=middle_us,
            load_s=costs.load_s,
            points_us=tuple(points_us),
        )

    def runner(device: Any, target: Any, *_: Any) -> _TimedRunner:
        return _TimedRunner(
            device=device,
            target=target,
            clock=clock,
            costs=costs,
            jitter=0.0005,
            drift=0.0,
            model=lambda baseline, tuned: speedup if baseline != tuned else 1.0,
        )

    runs = ScriptedRuns(parts={"open_runner": runner, "profile_model": profile, "clock": clock})
    bank = folder / "bank"
    bank.mkdir()
    runs.tune(
        model,
        input_shape=_RANGE,
        bank=bank,
        job_type="opat",
        output=folder / "out",
        tuning_time_limit=limit_s,
        progress=told,
    )
    summary: dict[str, Any] = json.loads((folder / "out" / "summary.json").read_text())
    return summary


@pytest.mark.parametrize("is_ended", [False, True])
def test_proven_model_is_there_from_the_first_third_of_the_limit(
    model: Path, tmp_path: Path, is_ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the run is ended before its last comparison, as by Ctrl-C."""
    monkeypatch.setattr("time.monotonic", count(step=10.0).__next__)
    told, clock, limit_s = RecordingProgress(), ScriptedClock(), 60.0
    moments: list[tuple[float, str]] = []
    tell = told.step

    def step(text: str) -> None:
        moments.append((clock.now_s, text))
        tell(text)
        if is_ended and text.startswith("judging"):
            raise KeyboardInterrupt

    told.step = step
    with pytest.raises(KeyboardInterrupt) if is_ended else nullcontext():
        _summary(model, tmp_path, _MINILM, limit_s, 1.3, told, clock)
    written = [at_s for at_s, text in moments if text.startswith("writing")]
    assert written and written[0] <= limit_s / 3 + 4.0, moments
    assert any(text.startswith("proven so far: 1.3") for _, text in moments)
    (om_file,) = (tmp_path / "out").glob("*.om")
    unpack(om_file, tmp_path / "unpacked")
    nodes = onnx.load(str(tmp_path / "unpacked" / MODEL), load_external_data=False).graph.node
    assert any(node.domain == "aoe" for node in nodes)
    assert read_manifest(om_file).shape_range == _RANGE


@pytest.mark.parametrize(
    ("costs", "limit_s", "speedup"),
    [
        (_GPT2, 150, 1.2),
        (_GPT2, 150, 0.9),
        (_GPT2, 80, 1.3),
        (_MINILM, 30, 1.2),
        (_MINILM, 30, 0.9),
        (_MINILM, 20, 1.2),
    ],
)
def test_what_is_found_in_a_short_time_is_judged_at_all_points(
    model: Path,
    tmp_path: Path,
    costs: _Model,
    limit_s: float,
    speedup: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.monotonic", count(step=10.0).__next__)  # a run reads its own clock
    told, clock = RecordingProgress(), ScriptedClock()
    summary = _summary(model, tmp_path, costs, limit_s, speedup, told, clock)
    assert not [text for text in told.texts("warn") if "not decided" in text]
    assert len(summary["points"]) in ((3, 5) if speedup > 1 else (0,))
    assert (summary["speedup_low"] > 1) is (speedup > 1)
    assert clock.now_s < 1.05 * limit_s
