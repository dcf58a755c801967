"""Every kind of model and every way it can be broken: one clear message, nothing left behind."""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from support.caffe.model_files import TestLayer, TestNet, caffemodel
from support.commands import aoe_exit_code
from support.engine.models import chain_model, make_model, matmul_net, save_model
from support.temp_folder import temp_folder

from aoe.entry.torch_dump import SCHEMA

_CAFFE = ("--framework=0", "--model=net.prototxt", "--weight=net.caffemodel")
_TENSORFLOW = ("--framework=3", "--model=net.pb")
_NET = """
input: "data" input_shape { dim: 1 dim: 3 dim: 8 dim: 8 }
layer { name: "act" type: "ReLU" bottom: "data" top: "act" }
layer { name: "conv" type: "Convolution" bottom: "act" top: "conv"
        convolution_param { num_output: 2 kernel_size: 3 } }
"""


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A model nobody can tune."""

    name: str  # Of the entry and of the fault
    make: Callable[[Path], object]  # Writes its files into a folder
    words: tuple[str, ...]  # What the command is given
    says: str  # Is part of the message
    code: int = 3  # The command ends with
    # True where ONNX Runtime finds out: the result file says that tuning failed.
    is_begun: bool = False


def _nothing(folder: Path) -> None:
    """Leave the folder empty."""


def _text(name: str, text: str = "hello, this is no model") -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


def _directory(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).mkdir()


# ---- ONNX files ----


def _cut_onnx(folder: Path) -> None:
    whole = matmul_net().SerializeToString()
    (folder / "net.onnx").write_bytes(whole[: len(whole) // 2])


def _onnx(*op_types: str) -> Callable[[Path], object]:
    return lambda folder: save_model(chain_model(op_types), folder / "net.onnx")


def _without_weights(folder: Path) -> None:
    save_model(matmul_net(), folder / "net.onnx", external_data=True)
    (folder / "net.weights").unlink()


def _onnx_faults(*words: str) -> Iterator[Broken]:
    given = (*words, "--model=net.onnx")
    yield Broken(name="onnx-missing", make=_nothing, words=given, says="no such file")
    directory = _directory("net.onnx")
    yield Broken(name="onnx-unreadable", make=directory, words=given, says="is a directory")
    yield Broken(name="onnx-truncated", make=_cut_onnx, words=given, says="not an ONNX model")
    text = _text("net.onnx")
    yield Broken(name="onnx-wrong-kind", make=text, words=given, says="not an ONNX model")
    unknown = _onnx("Relu", "Nonsense")
    yield Broken(name="onnx-operator", make=unknown, words=given, says="Nonsense", is_begun=True)
    yield Broken(name="onnx-weights", make=_without_weights, words=given, says="net.weights")
    shaped = (*given, "--input_shape=x:1,2")
    yield Broken(name="onnx-shapes", make=_onnx("Exp"), words=shaped, says="--input_shape")
    named = (*given, "--input_shape=z:1,2")
    yield Broken(name="onnx-input", make=_onnx("Exp"), words=named, says="no such input")


# ---- Caffe ----


def _caffe(text: str = _NET, weights: bytes | None = None) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        (folder / "net.prototxt").write_text(text)
        if weights is not None:
            (folder / "net.caffemodel").write_bytes(weights)

    return make


def _caffe_faults() -> Iterator[Broken]:
    def fault(name: str, make: Callable[[Path], object], says: str, *more: str) -> Broken:
        return Broken(name=f"caffe-{name}", make=make, words=(*_CAFFE, *more), says=says)

    def stored(extent: int) -> bytes:
        weights = np.zeros((2, 3, extent, extent), np.float32)
        layer = TestLayer(type="Convolution", name="conv", blobs=(weights, weights[:, 0, 0, 0]))
        return caffemodel(TestNet(inputs={}, layers=(layer,)))

    yield fault("missing", _nothing, "net.prototxt: no such file")
    yield fault("no-second-file", _caffe(), "net.caffemodel: no such file")
    yield fault("truncated", _caffe(weights=stored(3)[:-9]), "or a truncated one")
    yield fault("wrong-kind", _caffe("hello, world", stored(3)), "line 1: not a prototxt")
    yield fault("layer", _caffe(_NET.replace("ReLU", "Nonsense"), stored(3)), "act (Nonsense)")
    yield fault("weights", _caffe(weights=stored(5)), "layer conv")
    yield fault("shapes", _caffe(weights=stored(3)), "another rank", "--input_shape=data:1,2")
    yield Broken(
        name="caffe-weights-not-given",
        make=_caffe(),
        words=_CAFFE[:2],
        says="--weight=FILE.caffemodel",
        code=2,
    )


# ---- TensorFlow, its converting process scripted ----


def _answers(answer: dict[str, str], model: bytes | None = None) -> Callable[[Path], object]:
    """Return what writes a graph, and a Python that answers so whatever it is to convert."""

    def make(folder: Path) -> None:
        (folder / "net.pb").write_bytes(b"graph")
        made = "" if model is None else f"(folder / 'model.onnx').write_bytes({model!r})\n"
        script = folder / "python"
        script.write_text(
            f"#!{sys.executable}\nimport json, pathlib, sys\n"
            "folder = pathlib.Path(json.loads(pathlib.Path(sys.argv[2]).read_text())['folder'])\n"
            f"{made}(folder / 'answer.json').write_text({json.dumps(answer)!r})\n"
        )
        script.chmod(0o755)

    return make


def _tensorflow_faults() -> Iterator[Broken]:
    def fault(name: str, make: Callable[[Path], object], says: str, *more: str) -> Broken:
        words = (*_TENSORFLOW, *more)
        return Broken(name=f"tensorflow-{name}", make=make, words=words, says=says)

    lgamma = make_model([helper.make_node("Lgamma", ["x"], ["y"], "gamma")], {"x": (1,)}, ["y"])
    problem = {"problem": "not a frozen graph (GraphDef), or a truncated one"}
    absent = {"missing": "tensorflow", "problem": "cannot be imported"}
    exp = chain_model(["Exp"]).SerializeToString()
    yield fault("missing", _nothing, "net.pb: no such file")
    yield fault("unreadable", _directory("net.pb"), "not a TensorFlow model")
    yield fault("truncated", _answers(problem), "or a truncated one")
    yield fault("operator", _answers({}, lgamma.SerializeToString()), "node gamma")
    yield fault("not-installed", _answers(absent), "pip install 'aoebank[tensorflow]'")
    yield fault("shapes", _answers({}, exp), "--input_shape", "--input_shape=x:1,2")
    yield fault("input", _answers({}, exp), "no such input", "--input_shape=z:1,2")


# ---- dumps, tuned models, folders ----


def _dump(graph: Callable[[Path], object]) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        inside = folder / "dump"
        inside.mkdir()
        graph(inside)
        graphs = [{"file": "net.onnx", "module": "Net", "call": "", "count": 1, "sha256": ""}]
        document = {"schema": SCHEMA, "graphs": graphs, "operators": []}
        (inside / "dump.json").write_text(json.dumps(document))

    return make


def _dump_of_text(folder: Path) -> None:
    (folder / "dump").mkdir()
    (folder / "dump" / "dump.json").write_text("hello")


def _dump_faults() -> Iterator[Broken]:
    def fault(name: str, make: Callable[[Path], object], says: str, *more: str) -> Broken:
        words = ("--model_path=dump", *more)
        return Broken(name=f"dump-{name}", make=make, words=words, says=says)

    yield fault("unreadable", _dump_of_text, "cannot be read")
    yield fault("graph-missing", _dump(_nothing), "net.onnx: no such file")
    yield fault("truncated", _dump(_cut_onnx), "net.onnx")
    yield replace(fault("operator", _dump(_onnx("Nonsense")), "Nonsense"), is_begun=True)
    yield fault("weights", _dump(_without_weights), "net.onnx")
    shape = "--input_shape=x:1,2"
    yield fault("shapes", _dump(_onnx("Exp")), "the shapes it was collected with", shape)


def _foreign_zip(folder: Path) -> None:
    with zipfile.ZipFile(folder / "net.om", "w") as archive:
        archive.writestr("other.txt", "hello")


def _cut_zip(folder: Path) -> None:
    _foreign_zip(folder)
    (folder / "net.om").write_bytes((folder / "net.om").read_bytes()[:-30])


def _empty_manifest(folder: Path) -> None:
    with zipfile.ZipFile(folder / "net.om", "w") as archive:
        archive.writestr("manifest.json", "{}")


def _om_faults() -> Iterator[Broken]:
    def fault(name: str, make: Callable[[Path], object], says: str) -> Broken:
        return Broken(name=f"om-{name}", make=make, words=("--om=net.om",), says=says)

    yield fault("missing", _nothing, "net.om: no such file")
    yield fault("unreadable", _directory("net.om"), "not a tuned model")
    yield fault("truncated", _cut_zip, "not a tuned model")
    yield fault("wrong-kind", _foreign_zip, "not a tuned model")
    yield fault("version", _empty_manifest, "unknown version")


def _folder_faults() -> Iterator[Broken]:
    words = ("--model_path=models",)
    yield Broken(name="folder-missing", make=_nothing, words=words, says="no such directory")
    text = _text("models")
    yield Broken(name="folder-wrong-kind", make=text, words=words, says="not a directory")
    empty = _directory("models")
    yield Broken(name="folder-empty", make=empty, words=words, says="no model in it")


_BROKEN = [
    *_onnx_faults("--framework=5"),
    *_caffe_faults(),
    *_tensorflow_faults(),
    *_dump_faults(),
    *_om_faults(),
    *_folder_faults(),
]


@pytest.mark.usefixtures("quick_compiler")
@pytest.mark.parametrize("broken", _BROKEN, ids=[one.name for one in _BROKEN])
def test_broken_model_is_one_message_and_leaves_nothing_behind(
    broken: Broken,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("bank", "tmp"):
        (tmp_path / name).mkdir()
    broken.make(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNE_BANK_PATH", str(tmp_path / "bank"))
    monkeypatch.setenv("AOE_TENSORFLOW_PYTHON", str(tmp_path / "python"))
    before = {*tmp_path.rglob("*")}
    with temp_folder(tmp_path / "tmp"):
        code = aoe_exit_code([*broken.words, "--job_type=2", "--output=result", "--quiet"])
    said = capsys.readouterr()
    assert code == broken.code, said.err
    assert said.out == "" and broken.says in said.err
    assert said.err.startswith("error: ") and len(said.err.splitlines()) <= 2
    left = sorted({*tmp_path.rglob("*")} - before)
    if broken.is_begun:
        assert "hint: export the model with an opset that has it, or name the library" in said.err
        (result,) = (one for one in left if one.name.startswith("aoe_result_"))
        assert '"tuning failed"' in result.read_text()
        others = [one.name for one in left if one.is_file() and one != result]
        assert all(name.startswith("aoe_progress_") for name in others)
    else:
        assert left == []
    assert [*(tmp_path / "tmp").iterdir()] == []
