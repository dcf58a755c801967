"""Models too large for one message: their weights stay in files, whatever is done with them.

Large is here what has more than a thousand bytes of weights, so that a small model goes the way of
one of several GiB. `benchmarks/large_model.py` does it with a real one, and says what memory that
took.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx.external_data_helper import uses_external_data
from support.commands import aoe_exit_code
from support.contracts.small_models import SmallModel
from support.engine.environments import run_environment
from support.engine.fakes import RecordingProgress
from support.engine.online import Script, converted_here

import aoe
from aoe import TuneResult
from aoe.device.cpu.device import Cpu
from aoe.entry.onnx_file import load_onnx
from aoe.execute.runner import Runner
from aoe.graph.weights import SMALL_BYTES, WeightStore, array_of, is_outside
from aoe.om.file import FALLBACK, MODEL, WEIGHTS, unpack
from aoe.ort import offline_optimization, profile
from aoe.ort.sessions import session_options, session_source
from aoe.runs.run import tune_with
from aoe.tuner.mode import JobType, TuneSettings

_LIMIT = 1000
_NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
_WIDTH = 64


def _stack() -> onnx.ModelProto:
    """Return two blocks of a transformer's kind: products, a chain and a normalisation."""
    model = SmallModel()
    value = model.input(8, _WIDTH)
    for _ in range(2):
        wide = model.op("MatMul", value, model.weight(_WIDTH, 2 * _WIDTH))
        gate = model.op("Mul", model.op("Sigmoid", wide), wide)
        bent = model.op("Exp", model.op("Neg", model.op("Abs", gate)))
        back = model.op("MatMul", bent, model.weight(2 * _WIDTH, _WIDTH))
        scale, bias = (model.constant(np.ones(_WIDTH, np.float32)) for _ in range(2))
        value = model.op("LayerNormalization", model.op("Add", back, value), scale, bias, axis=-1)
    return model.model(value)


def save_apart(model: onnx.ModelProto, folder: Path) -> Path:
    """Save a model with its weights in files of their own, one for each."""
    folder.mkdir(parents=True)
    file = folder / "net.onnx"
    onnx.save(
        model,
        str(file),
        save_as_external_data=True,
        all_tensors_to_one_file=False,
        size_threshold=0,
    )
    return file


@pytest.fixture(autouse=True, scope="module")
def limit() -> Iterator[None]:
    """Make everything large."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aoe.graph.weights.INLINE_BYTES", _LIMIT)
        yield


@dataclass(frozen=True)
class Tuned:
    """A run, and every model that was put together for a session or a file in it."""

    root: Path
    model: Path
    result: TuneResult
    protos: list[onnx.ModelProto]
    progress: RecordingProgress

    @property
    def om(self) -> Path:
        found = self.result.om_file
        assert found is not None
        return found


def _tune(model: Path, root: Path, *jobs: JobType, **settings: Any) -> Tuned:
    seen: list[onnx.ModelProto] = []
    progress = RecordingProgress()
    with pytest.MonkeyPatch.context() as patch:
        externalize, source = WeightStore.externalize, session_source

        def watched(store: WeightStore, proto: onnx.ModelProto) -> onnx.ModelProto:
            seen.append(proto)
            return externalize(store, proto)

        def watched_source(proto: onnx.ModelProto, options: ort.SessionOptions) -> bytes:
            seen.append(proto)
            return source(proto, options)

        patch.setattr(WeightStore, "externalize", watched)
        patch.setattr(offline_optimization, "session_source", watched_source)
        patch.setattr(profile, "session_source", watched_source)
        facts: dict[str, Any] = {
            "model": model,
            "output": root / "out",
            "job_types": jobs,
            "core_num": 2,
            "accept_busy": True,
            "trials": 1,
        }
        result = tune_with(
            TuneSettings(**(facts | settings)),
            env=run_environment(root / "bank"),
            cwd=root,
            progress=progress,
            now=_NOW,
        )
    return Tuned(root, model, result, seen, progress)


def _folder(root: Path) -> Path:
    (root / "bank").mkdir(parents=True)
    return root


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a large model."""
    return save_apart(_stack(), tmp_path_factory.mktemp("model") / "net")


@pytest.fixture(scope="module")
def tuned(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """Return what tuning its operators gives."""
    return _tune(model, _folder(tmp_path_factory.mktemp("opat")), JobType.OPAT)


@pytest.fixture(scope="module", params=["looked up", pytest.param("tuned", marks=pytest.mark.slow)])
def written(
    request: pytest.FixtureRequest, model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Tuned:
    """Return a run that writes an `.om`: one that looks into an empty bank, or one that tunes."""
    if request.param == "tuned":
        found: Tuned = request.getfixturevalue("tuned")
        return found
    folder = _folder(tmp_path_factory.mktemp("looked_up"))
    return _tune(model, folder, JobType.OPAT, lookup_only=True)


def _feed() -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(5)
    return {"x0": rng.standard_normal((8, _WIDTH)).astype(np.float32)}


def _expected(model: Path, feed: dict[str, Any] | None = None) -> np.ndarray[Any, Any]:
    options = session_options(threads=1, optimize=False)
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    result: np.ndarray[Any, Any] = session.run(None, feed or _feed())[0]
    return result


# ---- importing ----


def test_large_weights_stay_in_their_files_and_small_ones_do_not(model: Path) -> None:
    light = onnx.load(str(model), load_external_data=False)
    assert all(uses_external_data(tensor) for tensor in light.graph.initializer)
    whole = {tensor.name: tensor for tensor in onnx.load(str(model)).graph.initializer}
    found = load_onnx(model, {}).proto.graph.initializer
    assert {uses_external_data(tensor) for tensor in found} == {True, False}
    for tensor in found:
        data = whole[tensor.name].raw_data
        assert uses_external_data(tensor) is (len(data) > SMALL_BYTES)
        assert array_of(tensor).tobytes() == data


def test_digest_says_what_the_weights_are_and_not_where(model: Path, tmp_path: Path) -> None:
    moved = save_apart(onnx.load(str(model)), tmp_path / "elsewhere")
    assert load_onnx(moved, {}).sha256 == load_onnx(model, {}).sha256
    weights = max(moved.parent.iterdir(), key=lambda path: path.stat().st_size)
    with weights.open("r+b") as file:
        file.seek(100)
        file.write(b"\x7f")
    assert load_onnx(moved, {}).sha256 != load_onnx(model, {}).sha256


# ---- tuning ----


def test_tuning_operators_reads_no_weights_into_a_model(written: Tuned) -> None:
    assert len(written.protos) >= 3  # optimised, profiled, written
    for proto in written.protos:
        assert is_outside(proto)
        assert all(len(tensor.raw_data) <= SMALL_BYTES for tensor in proto.graph.initializer)


def test_tuned_model_computes_what_the_untuned_one_does(written: Tuned) -> None:
    result = aoe.load(written.om).run(None, _feed())[0]
    np.testing.assert_allclose(result, _expected(written.model), rtol=1e-4, atol=1e-5)


def test_weights_are_once_in_the_tuned_model(written: Tuned, tmp_path: Path) -> None:
    unpack(written.om, tmp_path)
    apart = sum(path.stat().st_size for path in written.model.parent.iterdir())
    assert (tmp_path / WEIGHTS).stat().st_size < 1.1 * apart
    for name in (FALLBACK, MODEL):
        assert (tmp_path / name).stat().st_size < 32 * SMALL_BYTES
        light = onnx.load(str(tmp_path / name), load_external_data=False)
        assert {
            entry.value
            for tensor in light.graph.initializer
            for entry in tensor.external_data
            if entry.key == "location"
        } <= {WEIGHTS}


@pytest.mark.slow
def test_tuning_subgraphs_reads_no_weights_into_a_model(model: Path, tmp_path: Path) -> None:
    tuned = _tune(model, _folder(tmp_path), JobType.SGAT, JobType.OPAT)
    assert all(
        len(tensor.raw_data) <= SMALL_BYTES
        for proto in tuned.protos
        for tensor in proto.graph.initializer
    )
    result = aoe.load(tuned.om).run(None, _feed())[0]
    np.testing.assert_allclose(result, _expected(model), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_tuned_model_is_tuned_again(tuned: Tuned, tmp_path: Path) -> None:
    again = _tune(tuned.om, _folder(tmp_path), JobType.OPAT, framework=None, lookup_only=True)
    assert all(map(is_outside, again.protos))
    result = aoe.load(again.om).run(None, _feed())[0]
    np.testing.assert_allclose(result, _expected(tuned.model), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_several_shapes_share_weights_that_stay_outside(tmp_path: Path) -> None:
    open_model = _stack()
    for value in (*open_model.graph.input, *open_model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    del open_model.graph.value_info[:]
    model = save_apart(open_model, tmp_path / "net")
    tuned = _tune(
        model, _folder(tmp_path / "run"), JobType.OPAT, shape_cases=("x0:8,64", "x0:3,64")
    )
    assert all(map(is_outside, tuned.protos))
    apart = sum(path.stat().st_size for path in model.parent.iterdir())
    assert tuned.om.stat().st_size < 2 * apart
    loaded = aoe.load(tuned.om)
    for rows in (8, 3, 5):
        feed = {"x0": _feed()["x0"][:rows]}
        with pytest.warns(aoe.FallbackWarning) if rows == 5 else nullcontext():
            result = loaded.run(None, feed)[0]
        np.testing.assert_allclose(result, _expected(model, feed), rtol=1e-4, atol=1e-5)
    operators = tuned.progress.texts("operator")
    assert int(tuned.progress.texts("plan")[-1]) == len(operators), "counted through both shapes"


# ---- every command ----


_EVERYDAY = (["run", "{om}"], ["inspect", "{om}"])
_WITH_RUNS_OF_THEIR_OWN = (
    ["benchmark", "{om}", "--pairs=6"],
    ["benchmark", "{model}", "--vs={om}", "--pairs=6"],
    ["compile", "--model={model}", "--output=again"],
    ["profile", "{om}", "--runs=1"],
    ["profile", "{model}", "--runs=1"],
    ["advise", "{model}", "--runs=1", "--most=1"],
    ["advise", "{om}", "--runs=1", "--most=1"],
)


@pytest.mark.parametrize(
    "words",
    [
        *_EVERYDAY,
        *(pytest.param(words, marks=pytest.mark.slow) for words in _WITH_RUNS_OF_THEIR_OWN),
    ],
    ids=" ".join,
)
def test_command_takes_a_large_model(
    written: Tuned, words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AOE_ACCEPT_BUSY", "true")
    assert aoe_exit_code([word.format(om=written.om, model=written.model) for word in words]) == 0


# ---- online inference ----


@pytest.mark.slow
def test_session_takes_what_the_bank_has_for_a_large_model(
    tuned: Tuned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its converting process, as a thread: the limit here is none of another process."""
    monkeypatch.setenv("TUNE_BANK_PATH", str(tuned.root / "bank"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tuned.root / "kept"))
    script = Script(lambda asked: converted_here(asked, tuned.root / "converted"))
    with script.session_class()(tuned.model) as session:
        assert session.wait_for_tuning(60)
        found = session.run(None, _feed())[0]
        (form,) = session.forms
    assert form.problem == ""
    np.testing.assert_allclose(found, _expected(tuned.model), rtol=1e-4, atol=1e-5)


# ---- comparing ----


@pytest.mark.slow
def test_advice_has_one_session_of_the_model_at_a_time(
    model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """None of its own while the worker has one, as is shown for the worker below."""
    opened: list[weakref.ref[ort.InferenceSession]] = []
    asked: list[str] = []
    open_session, call = Cpu.open_session, Runner.call

    def open_alone(
        device: Cpu, source: bytes | Path, options: ort.SessionOptions
    ) -> ort.InferenceSession:
        assert not any(one() for one in opened), "another one is still there"
        session = open_session(device, source, options)
        if [value.name for value in session.get_inputs()] == ["x0"]:
            opened.append(weakref.ref(session))
        return session

    def call_alone(runner: Runner, task: str, **arguments: Any) -> Any:
        assert not any(one() for one in opened), "it is still there while the worker loads it"
        asked.append(task)
        return call(runner, task, **arguments)

    monkeypatch.setattr(Cpu, "open_session", open_alone)
    monkeypatch.setattr(Runner, "call", call_alone)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AOE_ACCEPT_BUSY", "true")
    words = ["advise", str(model), "--runs=1", "--most=1", "--action=activation-relu"]
    assert aoe_exit_code(words) == 0
    assert opened and asked == ["compare_models"]
