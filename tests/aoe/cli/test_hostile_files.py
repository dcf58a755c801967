"""Files that somebody else made to do harm: each is refused with an error of ours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from support.engine.models import make_model
from support.engine.offline import make_manifest, make_use

from aoe.cli import app as app_module
from aoe.om.file import FALLBACK, MODEL, WEIGHTS, write_offline_model

_ESCAPES = "\x1b]0;owned\x07\x1b[2J<script>alert(1)</script>"


def _aoe(*arguments: object) -> int:
    return app_module.run_app(app_module.app, [str(argument) for argument in arguments])


def _om(folder: Path, proto: onnx.ModelProto, name: str = "net") -> Path:
    parts = folder / "parts"
    parts.mkdir()
    for part in (MODEL, FALLBACK):
        (parts / part).write_bytes(proto.SerializeToString())
    (parts / WEIGHTS).write_bytes(b"")
    use = replace(make_use(), name=name, op_names=(name,))
    write_offline_model(folder / "net.om", parts, make_manifest(name=name, kernels=(use,)))
    return folder / "net.om"


def _sqrt(name: str) -> onnx.ModelProto:
    return make_model([helper.make_node("Sqrt", ["x"], ["y"], name=name)], {"x": [2]}, {"y": [2]})


@pytest.mark.parametrize(
    "command",
    [
        "inspect FILE",
        "profile --compare FILE FILE",
        "doctor --config FILE",
        "--model=net.onnx --tune_ops_file FILE",
        "--model=net.onnx --modify_mixlist FILE --precision_mode allow_mix_precision_bf16",
        "--model=net.onnx --shapes_from FILE",
    ],
)
def test_json_that_is_nested_without_an_end_is_refused(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "deep.json"
    file.write_text('{"shapes": ' + "[" * 100_000)
    words = [str(file) if word == "FILE" else word for word in command.split()]
    assert _aoe(*words) in (2, 3)
    assert "deep.json" in capsys.readouterr().err


def test_names_in_a_model_write_no_control_codes_and_no_script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    om, page = _om(tmp_path, _sqrt(_ESCAPES), _ESCAPES), tmp_path / "page.html"
    assert _aoe("inspect", om, "--html", page) == 0
    told = capsys.readouterr()
    assert "\x1b" not in told.out + told.err and "\x07" not in told.out + told.err
    assert "<script>alert" not in page.read_text()


@pytest.mark.parametrize("location", ["/etc/passwd", "../secret", "parts/../../secret", ""])
@pytest.mark.parametrize("command", ["profile", "run"])
def test_weights_in_another_file_are_not_read(
    tmp_path: Path, location: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "secret").write_bytes(bytes(64))
    proto = _sqrt("n")
    proto.graph.node[0].op_type = "Add"
    proto.graph.node[0].input.append("w")
    tensor = TensorProto(name="w", dims=[2], data_type=1, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", "0"), ("length", "8")):
        tensor.external_data.add(key=key, value=value)
    proto.graph.initializer.append(tensor)
    assert _aoe(command, _om(tmp_path, proto)) == 3
    assert "internal error" not in capsys.readouterr().err
