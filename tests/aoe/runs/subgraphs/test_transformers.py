"""A whole run in which ONNX Runtime's offline optimiser makes the rewrite that wins."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from support.engine.subgraph_runs import Run
from support.engine.transformers import encoder

import aoe
from aoe.execute.messages import ModelPart
from aoe.graph.rewrites.offline import OFFLINE
from aoe.measurement import Outcome
from aoe.ort.transformers_optimizer import OFFLINE_RULE, TransformersOptimizer
from aoebank import validate


def _count(file: Path, op_type: str) -> int:
    nodes = onnx.load(file, load_external_data=False).graph.node
    return sum(node.op_type == op_type for node in nodes)


def _more(baseline: ModelPart, tuned: ModelPart, op_type: str) -> int:
    return _count(tuned.model, op_type) - _count(baseline.model, op_type)


def _by_operators(baseline: ModelPart, tuned: ModelPart) -> float:
    more = (_more(baseline, tuned, name) for name in ("Attention", "BiasGelu"))
    return math.prod(rate**count for rate, count in zip((1.4, 0.8), more, strict=True))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path, rules={OFFLINE: OFFLINE_RULE})
    onnx.save(encoder(), tmp_path / "net.onnx")
    run.script = _by_operators
    return run


def test_form_of_the_optimizer_is_measured_recorded_and_becomes_part_of_the_model(run: Run) -> None:
    result = run.tune()
    used = [tuned for tuned in result.subgraphs if tuned.subgraph.graph_id in result.used_ids]
    assert {str(tuned.strategy) for tuned in used} == {f"{OFFLINE}@1"}
    assert result.speedup == pytest.approx(1.4, rel=0.02)
    assert list(validate(run.place / "bank").findings) == []
    details = run.progress.texts("detail")
    assert f"{OFFLINE}: asked about each subgraph with attention or GELU" in details
    assert any(text.startswith(f"{OFFLINE}@1: matched MatMul_") for text in details)
    feed = {"x0": np.random.default_rng(3).standard_normal((1, 6, 8)).astype(np.float32)}
    expected = ReferenceEvaluator(encoder()).run(None, feed)
    model = aoe.load(result.om_file)
    assert model.fallback_reason == ""
    np.testing.assert_allclose(model.run(None, feed)[0], expected[0], rtol=1e-3, atol=1e-4)


def test_second_run_takes_it_from_the_bank(run: Run) -> None:
    first = run.tune()
    second = run.tune()
    assert second.used_ids == first.used_ids
    assert all(not tuned.trials for tuned in second.subgraphs)


def test_form_that_computes_something_else_is_not_used(run: Run) -> None:
    run.script = lambda baseline, tuned: (
        Outcome.CORRECTNESS if _more(baseline, tuned, "Attention") else 0.9
    )
    result = run.tune()
    assert result.used_ids == frozenset()
    outcomes = {trial.measurement.outcome for one in result.subgraphs for trial in one.trials}
    assert Outcome.CORRECTNESS in outcomes


def test_where_it_is_not_installed_the_run_says_so_and_goes_on(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "onnxruntime.transformers cannot be loaded: No module named 'onnxruntime.transformers'"
    monkeypatch.setattr(TransformersOptimizer, "why_unavailable", lambda self: why)
    result = run.tune()
    assert result.used_ids == frozenset()
    assert f"{OFFLINE}: not asked, {why}" in run.progress.texts("detail")
