"""The TensorFlow entry: what it asks the converting process for, and what comes of the answer.

Where there is a Python with tensorflow and tf2onnx, real models are tried.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import support.tensorflow.make_models as make_models
from onnx import helper
from support.engine.models import chain_model, make_model, save_model
from support.temp_folder import temp_folder
from support.tensorflow.real import NEEDED, tensorflow_python

import aoe
from aoe.entry.protocol import ImportedModel, ModelSource
from aoe.entry.registry import find_entry
from aoe.entry.shape_range import open_input_shapes, parse_shape_range
from aoe.errors import ModelImportError, ModelNotFoundError


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path) -> Iterator[Path]:
    """Return the folder of scratch files, which is empty again in the end."""
    with temp_folder(tmp_path / "scratch") as folder:
        yield folder
    assert [*folder.iterdir()] == []


def _python(folder: Path, body: str) -> dict[str, str]:
    """Return an environment whose TensorFlow is a script, which knows `folder` and `request`."""
    script = folder / "python"
    script.write_text(
        f"#!{sys.executable}\nimport json, pathlib, shutil, sys\n"
        "request = json.loads(pathlib.Path(sys.argv[2]).read_text())\n"
        f"folder = pathlib.Path(request['folder'])\n{body}\n"
    )
    script.chmod(0o755)
    return {"AOE_TENSORFLOW_PYTHON": str(script), "PATH": os.environ["PATH"]}


def _load(path: Path, env: dict[str, str], **shapes: tuple[int, ...]) -> ImportedModel:
    source = ModelSource(path=path, shapes=shapes, env=env)
    return find_entry(3, source).load(source)


@pytest.fixture
def pb(tmp_path: Path) -> Path:
    """Return a file that is taken for a frozen graph."""
    file = tmp_path / "net.pb"
    file.write_bytes(b"graph")
    return file


def _answers(value: dict[str, str]) -> str:
    return f"(folder / 'answer.json').write_text({json.dumps(value)!r})"


def _converts(tmp_path: Path, model: onnx.ModelProto) -> dict[str, str]:
    made = save_model(model, tmp_path / "made.onnx")
    copy = f"shutil.copy({str(made)!r}, folder / 'model.onnx')"
    return _python(tmp_path, f"{copy}\n{_answers({})}")


def test_converted_model_is_taken_under_the_name_of_its_file(tmp_path: Path, pb: Path) -> None:
    model = _load(pb, _converts(tmp_path, chain_model(["Exp"], ("n", 4))), x=(2, 4))
    assert (model.name, model.path) == ("net", pb)
    assert [d.dim_value for d in model.proto.graph.input[0].type.tensor_type.shape.dim] == [2, 4]


def test_extents_the_model_leaves_open_may_be_those_of_a_range(tmp_path: Path, pb: Path) -> None:
    source = ModelSource(path=pb, env=_converts(tmp_path, chain_model(["Exp"], ("n", 4))))
    model = find_entry(3, source).load_with_open_extents(source, "x:1~8,4")
    found = open_input_shapes(model.proto, parse_shape_range("x:1~8,4"))
    assert found.inputs == {"x": ("n", 4)}


def test_names_of_inputs_are_known_without_their_number(tmp_path: Path, pb: Path) -> None:
    nodes = [helper.make_node("Exp", ["x:0"], ["y"])]
    env = _converts(tmp_path, make_model(nodes, {"x:0": ("n", 4)}, ["y"]))
    assert _load(pb, env, x=(2, 4)).sha256 == _load(pb, env, **{"x:0": (2, 4)}).sha256


def test_names_of_constants_do_not_change_the_digest(tmp_path: Path, pb: Path) -> None:
    def model(names: tuple[str, str]) -> onnx.ModelProto:
        nodes = [
            helper.make_node("Mul", ["x", names[0]], ["m"]),
            helper.make_node("Add", ["m", names[1]], ["y"]),
        ]
        values = {names[0]: np.float32([2]), names[1]: np.float32([3])}
        weights = {name: values[name] for name in sorted(values)}
        return make_model(nodes, {"x": (1, 4)}, ["y"], weights=weights)

    first = _load(pb, _converts(tmp_path, model(("const__17", "const__9"))))
    second = _load(pb, _converts(tmp_path, model(("a", "b"))))
    assert first.sha256 == second.sha256
    assert [t.name for t in first.proto.graph.initializer] == ["constant__0", "constant__1"]


def test_converting_process_is_told_what_to_convert(tmp_path: Path, pb: Path) -> None:
    made = save_model(chain_model(["Exp"], (1, 4)), tmp_path / "made.onnx")
    kept = tmp_path / "request.json"
    body = (
        f"shutil.copy(sys.argv[2], {str(kept)!r})\n"
        f"shutil.copy({str(made)!r}, folder / 'model.onnx')\n{_answers({})}"
    )
    env = _python(tmp_path, body)
    source = ModelSource(path=pb, shapes={"x": (1, 4)}, output_nodes=("prob",), env=env)
    find_entry(3, source).load(source)
    request = json.loads(kept.read_text())
    assert request["path"] == str(pb)
    assert (request["shapes"], request["outputs"]) == ({"x": [1, 4]}, ["prob"])
    upper = pb.rename(tmp_path / "NET.H5")
    find_entry(3, source).load(replace(source, path=upper, output_nodes=()))
    assert json.loads(kept.read_text())["path"].endswith(".h5")


@pytest.mark.parametrize("name", ["saved", "net.keras", "net.h5"])
def test_model_without_a_list_of_outputs_is_cut_at_those_it_is_given(
    name: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    if not file.suffix:
        file.mkdir()
        file /= "saved_model.pb"
    file.write_bytes(b"")
    nodes = [
        helper.make_node("Exp", ["x"], ["dense/Exp:0"], "dense/Exp"),
        helper.make_node("Tanh", ["dense/Exp:0"], ["y"], "Tanh"),
    ]
    env = _converts(tmp_path, make_model(nodes, {"x": ("n", 4)}, ["y"]))
    source = ModelSource(path=tmp_path / name, shapes={"x": (2, 4)}, env=env)
    cut = replace(source, output_nodes=("dense/Exp:0",))
    for load in (find_entry(3, cut).load, find_entry(3, cut).load_open):
        graph = load(cut).proto.graph
        assert [value.name for value in graph.output] == ["dense/Exp:0"]
        assert [node.op_type for node in graph.node] == ["Exp"]
    with pytest.raises(ModelImportError, match="the model has no such node or result"):
        find_entry(3, source).load(replace(source, output_nodes=("none:0",)))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("sys.exit(7)", r"ended with code 7: no word"),
        ("print('out of memory', file=sys.stderr); sys.exit(1)", "with code 1: out of memory"),
        ("(folder / 'answer.json').write_text('[')", "ended with code 0"),
        (_answers({"problem": "cannot be converted: x"}), "net.pb: cannot be converted: x"),
        (_answers({}), "made no valid model: no such file"),
        (
            "(folder / 'model.onnx').write_bytes(b'')\n" + _answers({}),
            "made no valid model: not an ONNX model",
        ),
    ],
)
def test_failed_conversion_is_one_message(tmp_path: Path, pb: Path, body: str, words: str) -> None:
    with pytest.raises(ModelImportError, match=words):
        _load(pb, _python(tmp_path, body))


def test_operator_without_a_counterpart_is_named(tmp_path: Path, pb: Path) -> None:
    nodes = [helper.make_node("Lgamma", ["x"], ["y"], "gamma")]
    env = _converts(tmp_path, make_model(nodes, {"x": (1,)}, ["y"]))
    with pytest.raises(ModelImportError, match=r"node gamma: an operator .*got Lgamma"):
        _load(pb, env)


def test_python_without_tensorflow_says_what_to_install(pb: Path, tmp_path: Path) -> None:
    env = _python(tmp_path, _answers({"missing": "tensorflow", "problem": "cannot be imported"}))
    with pytest.raises(ModelImportError, match="tensorflow cannot be imported") as caught:
        _load(pb, env)
    assert "pip install 'aoebank[tensorflow]'" in str(caught.value.hint)
    assert "AOE_TENSORFLOW_PYTHON" in str(caught.value.hint)


@pytest.mark.parametrize("missing", ["tensorflow", "tf2onnx"])
def test_converter_names_the_package_that_is_missing(
    missing: str, pb: Path, tmp_path: Path
) -> None:
    """The converting process itself, in a Python that has one of the two at most."""
    for name in ("tensorflow", "tf2onnx"):
        (tmp_path / f"{name}.py").write_text(
            f"raise ModuleNotFoundError('no {name}', name='{name}')\n" if name == missing else ""
        )
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    with pytest.raises(ModelImportError) as caught:
        _load(pb, {"AOE_TENSORFLOW_PYTHON": str(script), "PATH": os.environ["PATH"]})
    assert f"{missing} cannot be imported: no {missing}" in str(caught.value)
    assert "pip install 'aoebank[tensorflow]'" in str(caught.value.hint)


def test_python_that_is_none_is_named(pb: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelImportError, match="AOE_TENSORFLOW_PYTHON: cannot be run"):
        _load(pb, {"AOE_TENSORFLOW_PYTHON": str(tmp_path / "gone")})


def test_files_of_another_kind_are_refused_before_anything_runs(tmp_path: Path) -> None:
    env = {"AOE_TENSORFLOW_PYTHON": "/nowhere"}
    with pytest.raises(ModelNotFoundError, match=r"gone\.pb: no such file"):
        _load(tmp_path / "gone.pb", env)
    other = save_model(chain_model(["Exp"]), tmp_path / "net.onnx")
    for path in (other, tmp_path):
        with pytest.raises(ModelImportError, match=r"not a TensorFlow model \(expected a frozen"):
            _load(path, env)


# ---- with TensorFlow ----

_KINDS = ("frozen.pb", "saved", "net.keras", "net.h5")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of models, or skip."""
    python = tensorflow_python()
    if not python:
        pytest.skip(NEEDED)
    folder = tmp_path_factory.mktemp("models")
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    env.pop("PYTHONPATH", None)
    subprocess.run([python, make_models.__file__, str(folder)], check=True, env=env)
    return folder


def _real_env() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.mark.parametrize("kind", _KINDS)
def test_model_computes_what_tensorflow_does(models: Path, kind: str) -> None:
    name = "x" if kind == "frozen.pb" else "images"
    model = _load(models / kind, _real_env(), **{name: (2, 16, 16, 3)})
    assert model.name == Path(kind).stem
    session = ort.InferenceSession(
        model.proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (given,) = session.get_inputs()
    (found,) = session.run(None, {given.name: np.load(models / "x.npy")})
    np.testing.assert_allclose(found, np.load(models / "y.npy"), rtol=1e-4, atol=1e-5)
    transposes = [node for node in model.proto.graph.node if node.op_type == "Transpose"]
    assert len(transposes) <= 2  # into the convolutions and out of them


def test_model_has_the_same_digest_in_every_run(models: Path) -> None:
    digests = {_load(models / "saved", _real_env(), images=(2, 16, 16, 3)).sha256 for _ in "ab"}
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("unfrozen.pb", "a graph with variables, so it is not frozen"),
        ("foreign.pb", "Lgamma"),
        ("short.pb", "not a frozen graph|cannot be converted"),
        ("short.keras", "cannot be converted"),
        ("text.pb", "not a frozen graph"),
    ],
)
def test_real_models_that_cannot_be_converted(models: Path, name: str, words: str) -> None:
    (models / "short.pb").write_bytes((models / "frozen.pb").read_bytes()[:-100])
    (models / "short.keras").write_bytes((models / "net.keras").read_bytes()[:-100])
    (models / "text.pb").write_text("hello, this is no graph")
    with pytest.raises(ModelImportError, match=words) as caught:
        _load(models / name, _real_env(), x=(2, 16, 16, 3))
    assert "\n" not in caught.value.headline


def test_open_shape_asks_for_the_option(models: Path) -> None:
    with pytest.raises(ModelImportError, match="its shape is not static") as caught:
        _load(models / "saved", _real_env())
    assert "--input_shape=" in str(caught.value.hint)


def test_keras_model_is_tuned(models: Path, tmp_path: Path, scratch: Path) -> None:
    tuned = aoe.tune(
        models / "net.keras",
        framework=3,
        input_shape={"images": (2, 16, 16, 3)},
        bank=tmp_path / "bank",
        output=tmp_path / "out",
        trials=1,
    )
    assert tuned.om_file is not None
    assert tuned.om_file.name.startswith("net")
