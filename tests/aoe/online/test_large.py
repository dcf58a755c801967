"""Models of several GiB: one session at a time has memory for their weights.

Large is here what has more than eight bytes of weights in a file of their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from support.engine.online import Script, adding, rows, tuned_file

import aoe
from aoe.online.large import structure_of, weight_files

PLAIN, FOUND, TUNED = 1.0, 2.0, 3.0
_EVERYTHING = ort.GraphOptimizationLevel.ORT_ENABLE_ALL


@pytest.fixture(autouse=True)
def _own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep converted models apart from those of other tests, and make everything large."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("AOE_BUILT_IN_BANK", "off")
    monkeypatch.setattr("aoe.graph.weights.INLINE_BYTES", 8)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the models sessions are opened of from now on.

    Those of our own class are left out, and so are models of a byte, which ask options.
    """
    found: list[Any] = []

    class Watched(ort.InferenceSession):  # type: ignore[misc]
        def __init__(self, model: Any, *given: Any, **named: Any) -> None:
            content = model if isinstance(model, bytes) else Path(model).read_bytes()
            if b"aoe.byte" not in content:
                found.append(model)
            super().__init__(model, *given, **named)

    monkeypatch.setattr(ort, "InferenceSession", Watched)
    return found


def _saved(folder: Path, batch: int | str = 1) -> str:
    folder.mkdir()
    file = folder / "net.onnx"
    onnx.save_model(
        adding(PLAIN, batch),
        str(file),
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
    )
    return str(file)


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Return the file of a large model."""
    return _saved(tmp_path / "net")


@pytest.fixture
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for tuned models."""
    return tmp_path_factory.mktemp("tuned")


def _value(session: Any, count: int = 1) -> float:
    (result,) = session.run(None, rows(count))
    return float(result[0, 0])


def test_model_itself_is_not_loaded_where_the_bank_has_a_better_one(
    model: str, bank: Path, files: Path, opened: list[Any]
) -> None:
    found = tuned_file(files, FOUND)
    script = Script(lambda asked: found)
    session = script.session_class()(model, bank=bank)
    assert _value(session) == FOUND
    assert script.asked[0].model == model
    assert model not in opened


def test_model_itself_is_loaded_when_nothing_was_found(
    model: str, bank: Path, opened: list[Any]
) -> None:
    while_looking: list[list[Any]] = []

    def answer(asked: Any) -> None:
        while_looking.append(opened[:])

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = Script(answer).session_class()(model, options, bank=bank)
    assert while_looking == [[]]
    assert _value(session) == PLAIN and opened == [model], "opened once, and by its name"
    (computing,) = session.substitutes.all()
    assert computing.get_session_options().graph_optimization_level == _EVERYTHING


def test_model_itself_is_loaded_where_looking_up_fails(
    model: str, bank: Path, opened: list[Any]
) -> None:
    with pytest.warns(aoe.FallbackWarning, match="no compiler"):
        session = Script(lambda asked: "no compiler").session_class()(model, bank=bank)
    assert _value(session) == PLAIN and opened == [model]


def test_model_itself_is_loaded_once_the_tuned_one_has_failed(
    model: str, bank: Path, files: Path, opened: list[Any]
) -> None:
    class Broken:
        def run(self, *given: Any) -> Any:
            raise RuntimeError("kernel")

    found = tuned_file(files, FOUND)
    session = Script(lambda asked: found).session_class()(model, bank=bank)
    session.substitutes.put(session.static_form, Broken())
    with pytest.warns(aoe.FallbackWarning, match="the tuned one failed: kernel"):
        assert _value(session) == PLAIN
    assert model in opened and len(session.substitutes.all()) == 1
    assert _value(session) == PLAIN


def test_better_model_takes_the_place_of_the_model_itself(
    model: str, bank: Path, files: Path
) -> None:
    tuned = tuned_file(files, TUNED)
    script = Script(lambda asked: None if asked.lookup_only else tuned, held=True)
    session = script.session_class()(model, bank=bank, tune=True)
    assert _value(session) == PLAIN
    script.go.set()
    assert session.wait_for_tuning(60)
    assert _value(session) == TUNED
    assert len(session.substitutes.all()) == 1


def test_open_shapes_are_served_by_the_model_itself(tmp_path: Path, bank: Path) -> None:
    session = Script(lambda asked: None).session_class()(_saved(tmp_path / "open", "n"), bank=bank)
    assert _value(session, 3) == PLAIN
    assert session.get_session_options().graph_optimization_level == _EVERYTHING
    assert not session.substitutes.all()


def test_options_are_what_the_caller_made_them(model: str, bank: Path, files: Path) -> None:
    found = tuned_file(files, FOUND)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    session = Script(lambda asked: found).session_class()(model, options, bank=bank)
    for seen in (options, session.get_session_options()):
        assert (seen.intra_op_num_threads, seen.graph_optimization_level) == (2, _EVERYTHING)


def test_profile_is_of_the_model_itself(model: str, bank: Path, tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = Script(lambda asked: None).session_class()(model, options, bank=bank)
    assert _value(session) == PLAIN and not session.substitutes.all()
    assert Path(session.end_profiling()).is_file()


@pytest.mark.parametrize(
    "feed",
    [{"x": np.zeros((2, 4), np.float32)}, {"z": np.zeros((1, 4), np.float32)}, {}],
    ids=["shape", "name", "nothing"],
)
def test_wrong_calls_fail_as_they_do_in_onnx_runtime(
    model: str, bank: Path, files: Path, feed: dict[str, Any]
) -> None:
    found = tuned_file(files, FOUND)
    session = Script(lambda asked: found).session_class()(model, bank=bank)
    with pytest.raises(Exception) as theirs:
        ort.InferenceSession(model).run(None, feed)
    with pytest.raises(type(theirs.value)) as ours:
        session.run(None, feed)
    assert str(ours.value) == str(theirs.value)


def test_model_that_cannot_be_loaded_leaves_the_options_as_they_were(
    model: str, bank: Path
) -> None:
    proto = onnx.load(model, load_external_data=False)
    proto.graph.node[0].op_type = "Sum2"
    onnx.save(proto, model)
    options = ort.SessionOptions()
    with pytest.raises(Exception, match="Sum2"):
        aoe.InferenceSession(model, options, bank=bank)
    assert options.graph_optimization_level == _EVERYTHING


def test_weights_are_looked_for_in_files_that_are_there(model: str, tmp_path: Path) -> None:
    files = weight_files(structure_of(model), Path(model))
    assert files.is_large
    assert files.files == (Path(model).parent / "w.bin",)
    missing = tmp_path / "none.onnx"
    assert not weight_files(structure_of(str(missing)), missing).files
