"""Valid models that one of ONNX Runtime's rewriters breaks are opened without that one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from support.engine.cpu import open_session
from support.engine.environments import run_environment
from support.engine.fakes import RecordingProgress
from support.engine.models import make_model, save_model

import aoe
from aoe.errors import RunError
from aoe.ort.offline_optimization import optimize_offline
from aoe.ort.optimizers import ALL_OPTIMIZATIONS, Optimizations, mark, marked, optimizations_of
from aoe.ort.sessions import session_options
from aoe.runs.model_mode import ModelTuning
from aoe.runs.run import tune_with
from aoe.tuner.mode import JobType, TuneSettings

CLIP = Optimizations(left_out=("FuseReluClip",))
VALUES = np.array([[-1.0, 2.0, 7.0, 3.0]])
_DOUBLES = dict.fromkeys(("x", "y"), TensorProto.DOUBLE)


def clipped() -> onnx.ModelProto:
    """Return a model FuseReluClip breaks (onnxruntime issue 11836)."""
    nodes = [
        helper.make_node("Neg", ["x"], ["n"], name="neg"),
        helper.make_node("Relu", ["n"], ["r"], name="relu"),
        helper.make_node("Clip", ["r", "low", "high"], ["c"], name="clip"),
        helper.make_node("Exp", ["c"], ["y"], name="exp"),
    ]
    weights = {"low": np.array(0.0), "high": np.array(6.0)}
    return make_model(nodes, {"x": [1, 4]}, {"y": [1, 4]}, weights=weights, types=_DOUBLES)


def kept_apart(op_type: str, **attributes: int) -> onnx.ModelProto:
    """Return a model two rules break together (onnxruntime issues 32414 and 32416)."""
    nodes = [
        helper.make_node(op_type, ["x"], ["same"], name="same", **attributes),
        helper.make_node("Div", ["one", "z"], ["inverse"], name="div"),
        helper.make_node("Mul", ["inverse", "same"], ["y"], name="mul"),
    ]
    weights = {"one": np.ones(1, np.float32)}
    return make_model(nodes, {"x": [1, 4], "z": [1, 4]}, {"y": [1, 4]}, weights=weights)


def _open(proto: onnx.ModelProto) -> ort.InferenceSession:
    onnx.checker.check_model(proto, full_check=True)
    options = session_options(threads=1, optimize=True)
    return open_session(proto.SerializeToString(), options)


def test_model_is_opened_without_what_breaks_it() -> None:
    session = _open(clipped())
    assert optimizations_of(session) == CLIP
    expected = np.exp(np.clip(-VALUES, 0, 6))
    assert np.allclose(session.run(None, {"x": VALUES})[0], expected)


@pytest.mark.parametrize(
    ("model", "rule"),
    [
        (kept_apart("Cast", to=TensorProto.FLOAT), "CastElimination"),
        (kept_apart("Dropout"), "EliminateDropout"),
        (kept_apart("Identity"), "EliminateIdentity"),
    ],
    ids=["Cast", "Dropout", "Identity"],
)
def test_one_of_two_rules_that_break_a_model_together_is_left_out(
    model: onnx.ModelProto, rule: str
) -> None:
    session = _open(model)
    assert optimizations_of(session).left_out in ((rule,), ("DivMulFusion",))
    feed = {"x": np.full((1, 4), 6, np.float32), "z": np.full((1, 4), 2, np.float32)}
    assert session.run(None, feed)[0].tolist() == [[3.0] * 4]


def test_other_models_have_all_optimizations() -> None:
    nodes = [helper.make_node("Exp", ["x"], ["y"])]
    plain = make_model(nodes, {"x": [1, 4]}, {"y": [1, 4]})
    assert optimizations_of(_open(plain)) == ALL_OPTIMIZATIONS


def test_options_are_as_before() -> None:
    options = session_options(threads=1, optimize=True)
    open_session(clipped().SerializeToString(), options)
    assert options.graph_optimization_level == ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.Fail, match="relu_clip_fusion"):
        ort.InferenceSession(clipped().SerializeToString(), options)


def test_model_that_is_wrong_is_refused_in_the_first_words() -> None:
    proto = clipped()
    proto.graph.node[0].input[0] = "nowhere"
    with pytest.raises(RunError, match=r"cannot load it.*nowhere"):
        open_session(proto.SerializeToString(), session_options(threads=1, optimize=True))


def test_optimized_graph_tells_what_was_left_out_and_where(tmp_path: Path) -> None:
    file = tmp_path / "optimized.onnx"
    found = marked(optimize_offline(clipped(), file, open_session, threads=1))
    assert found.left_out == CLIP.left_out
    assert found.broken_at == "Relu relu and Clip clip"
    assert "at Relu relu and Clip clip: it is computed with all optimisations but FuseReluClip" in (
        found.warning()
    )


@pytest.mark.parametrize(
    "found",
    [
        ALL_OPTIMIZATIONS,
        Optimizations(left_out=("A", "B"), broken_at="Clip c"),
        Optimizations(level=ort.GraphOptimizationLevel.ORT_ENABLE_BASIC),
        Optimizations(level=ort.GraphOptimizationLevel.ORT_DISABLE_ALL),
    ],
)
def test_mark_is_read_as_it_was_written(found: Optimizations) -> None:
    proto = clipped()
    for _ in range(2):
        mark(proto, found)
    assert marked(proto) == found
    assert len(proto.metadata_props) == (0 if found.are_all else 2)


def test_mark_of_another_version_does_no_harm() -> None:
    proto = clipped()
    mark(proto, Optimizations(left_out=("ConstantFolding",)))
    assert optimizations_of(_open(proto)) == CLIP
    mark(proto, CLIP)
    assert optimizations_of(_open(proto)) == CLIP


@pytest.mark.parametrize("job", [JobType.OPAT, JobType.SGAT])
def test_tuning_says_what_its_baseline_does_without(job: JobType, tmp_path: Path) -> None:
    save_model(clipped(), tmp_path / "net.onnx")
    (tmp_path / "bank").mkdir()
    progress = RecordingProgress()
    result = tune_with(
        TuneSettings(
            model=tmp_path / "net.onnx",
            output=tmp_path / "out",
            job_types=(job,),
            lookup_only=True,
        ),
        env=run_environment(tmp_path / "bank"),
        cwd=tmp_path,
        progress=progress,
        now=datetime(2026, 1, 2, tzinfo=UTC),
    )
    (told,) = progress.texts("warn")
    assert "breaks the model at Relu relu and Clip clip" in told
    (tuned,) = result.modes
    assert isinstance(tuned, ModelTuning)
    assert tuned.optimizations == "all optimisations but FuseReluClip"
    assert result.om_file is not None
    (output,) = aoe.load(result.om_file).run(None, {"x": VALUES})
    assert np.allclose(output, np.exp(np.clip(-VALUES, 0, 6)))
