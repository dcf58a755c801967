"""Commands with a model by the defaults of the newest onnx, which ONNX Runtime does not compute."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from support.commands import aoe_exit_code
from support.engine.models import chain_model, make_model, save_model


@pytest.fixture(autouse=True)
def bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bank").mkdir()
    monkeypatch.setenv("TUNE_BANK_PATH", str(tmp_path / "bank"))
    monkeypatch.setenv("AOE_ACCEPT_BUSY", "1")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "net.onnx"],
        ["profile", "net.onnx", "--runs=2"],
        ["advise", "net.onnx", "--runs=2", "--most=0"],
        pytest.param(["verify", "--model=net.onnx"], marks=pytest.mark.slow),  # judges it whole
    ],
    ids=["plan", "profile", "advise", "verify"],
)
def test_commands_take_a_model_of_the_newest_opset(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = chain_model(["Relu", "Swish"], (2, 64), opset=onnx.defs.onnx_opset_version())
    model.ir_version = onnx.IR_VERSION
    save_model(model, tmp_path / "net.onnx")
    code = aoe_exit_code(words)
    said = capsys.readouterr()
    assert code == 0, said.err
    assert "Swish" in said.out or words[0] in ("plan", "verify", "advise")
    assert "it is tuned as one of opset 24" in said.err or words[0] in (
        "profile",
        "verify",
        "advise",
    )


@pytest.mark.parametrize("words", [["plan", "net.onnx"], ["--model=net.onnx", "--output=out"]])
def test_commands_name_an_operator_of_no_older_opset(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = onnx.helper.make_node("SwiGLU", ["x", "z"], ["y"], name="gate")
    model = make_model([node], dict.fromkeys("xz", (2, 8)), ["y"], opset=28, ir_version=13)
    save_model(model, tmp_path / "net.onnx")
    assert aoe_exit_code(words) == 3
    assert "SwiGLU of version 28, the operator of node 'gate': opset 27" in capsys.readouterr().err
