"""`aoe run`: results of every kind are told and saved."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.engine.models import chain_model, make_model, results_net
from support.engine.offline import make_manifest

from aoe.cli import app as app_module
from aoe.om.file import FALLBACK, MODEL, WEIGHTS, write_offline_model


def test_results_that_are_no_tensors_are_told_and_saved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    om = _untuned(tmp_path / "net.om", results_net())
    np.save(tmp_path / "in.npy", np.arange(32, dtype=np.float32).reshape(4, 8))
    arguments = ["run", str(om), "--input", str(tmp_path / "in.npy"), "--json"]
    assert app_module.run_app(app_module.app, [*arguments, "--output", str(tmp_path / "out")]) == 0

    told = {one["name"]: one for one in json.loads(capsys.readouterr().out)["outputs"]}
    shapes = {name: one["shape"] for name, one in told.items()}
    assert shapes == {
        "tensor": [4, 8],
        "text": [1, 8],
        "sequence[0]": [4, 8],
        "sequence[1]": [1, 8],
        "optional": [1, 8],
    }
    for name in told:
        saved = np.load(tmp_path / "out" / f"{name}.npy", allow_pickle=False)
        assert list(saved.shape) == shapes[name]
    assert np.load(tmp_path / "out" / "text.npy")[0, 0] == "24"


@pytest.fixture
def om(tmp_path: Path) -> Path:
    """Return an untuned `.om` of a square root, its name no UTF-8, beside an input of -1."""
    np.save(tmp_path / "x.npy", np.full(2, -1, np.float32))
    return _untuned(tmp_path / os.fsdecode(b"n\xfft.om"), chain_model(["Sqrt"], (2,)))


def _untuned(file: Path, proto: onnx.ModelProto) -> Path:
    """Write a model without a kernel as a tuned one; return its file."""
    parts = file.parent / "parts"
    parts.mkdir()
    for name in (MODEL, FALLBACK):
        (parts / name).write_bytes(proto.SerializeToString())
    (parts / WEIGHTS).write_bytes(b"")
    write_offline_model(file, parts, make_manifest())
    return file


def _run(om: Path, *arguments: str) -> int:
    given = f"--input={om.parent / 'x.npy'}"
    return app_module.run_app(app_module.app, ["run", str(om), given, *arguments])


def test_result_that_is_no_number_has_a_document(
    om: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(om, "--json") == 0
    (output,) = json.loads(capsys.readouterr().out)["outputs"]
    assert output["values"] == [None, None]


def test_integers_are_told_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    large = 2**53 + 1  # no float64 has it
    values = helper.make_tensor("c", onnx.TensorProto.INT64, (2,), [large, -1])
    nodes = [
        helper.make_node("Constant", [], ["whole"], value=values),
        helper.make_node("IsNaN", ["x"], ["switch"]),
    ]
    types = {"whole": onnx.TensorProto.INT64, "switch": onnx.TensorProto.BOOL}
    proto = make_model(nodes, {"x": (2,)}, [*types], types=types)
    om = _untuned(tmp_path / "net.om", proto)
    np.save(tmp_path / "x.npy", np.ones(2, np.float32))
    assert _run(om) == 0
    told = capsys.readouterr().out
    assert f"  whole int64 [2]: [{large}, -1]\n" in told
    assert "  switch bool [2]: [False, False]\n" in told
    assert _run(om, "--json") == 0
    whole, switch = json.loads(capsys.readouterr().out)["outputs"]
    assert (whole["values"], switch["values"]) == ([large, -1], [False, False])


def test_cores_that_are_not_there_are_told(om: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(om, "--threads=100000") == 0
    assert "warning: " in (err := capsys.readouterr().err)
    assert "threads instead of 100000" in err


def test_file_name_that_is_no_text_is_told(om: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(om) == 0
    assert "n\\udcfft.om: tuned model, 0 kernels" in capsys.readouterr().out


def test_results_whose_files_have_one_name_are_both_saved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [helper.make_node("Abs", ["x"], ["a/b"]), helper.make_node("Neg", ["x"], ["a_b"])]
    om = _untuned(tmp_path / "net.om", make_model(nodes, {"x": (2,)}, ["a/b", "a_b"]))
    np.save(tmp_path / "x.npy", np.ones(2, np.float32))
    assert _run(om, "--output", str(tmp_path / "out")) == 0
    saved = {file.name: float(np.load(file)[0]) for file in (tmp_path / "out").iterdir()}
    assert saved == {"a_b.npy": 1, "a_b_.npy": -1}
    assert "a_b is in a_b_.npy" in capsys.readouterr().err
