"""What cannot be tuned is refused before a run says that it begins."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.aoe_contract import call
from support.engine.models import chain_model, save_model

LINES = (
    "aoe --model=gone.onnx",
    "aoe --model=net.onnx --weight=net.caffemodel",
    "aoe --model=net.onnx --framework=1",
    "aoe --model=net.onnx --output=result.txt",
    "aoe --model=net.onnx --input_shape=z:1,2",
    "aoe --model=net.onnx --search=nothing",
    "aoe --model=net.onnx --job_type=1 --output=result.txt",
    "aoe --model=net.onnx --soc_version=Ascend910B1",
    "TUNE_BANK_PATH=/nowhere aoe --model=net.onnx",
    "CC=/nowhere/cc aoe --model=net.onnx",
)
NAMED = {
    "aoe --om=net.onnx": "--om: no tuned model (got net.onnx",
    "aoe --model=net.onnx --ip=1.2.3.4": "--workers=tcp://HOST:PORT",
    "aoe compile --model=net.onnx --output=net --mdl_bank_path=/nowhere": "--mdl_bank_path: no",
}
"""Command lines, and a part of the message that names what was given, or the way out."""


@pytest.mark.parametrize("line", LINES)
def test_nothing_is_said_before_the_error(line: str, tmp_path: Path) -> None:
    save_model(chain_model(["Exp", "Sin"]), tmp_path / "net.onnx")
    done = call(line, tmp_path)
    assert done.code in (2, 3), done.text
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert not [*tmp_path.rglob("aoe_result_*")]


@pytest.mark.parametrize("line", NAMED)
def test_message_names_what_was_given(line: str, tmp_path: Path) -> None:
    save_model(chain_model(["Exp", "Sin"]), tmp_path / "net.onnx")
    done = call(line, tmp_path)
    assert done.code == 2 and NAMED[line] in done.err


def test_refusal_of_the_model_itself_names_its_file(tmp_path: Path) -> None:
    model = chain_model(["Exp"])
    model.opset_import[0].version = 99
    save_model(model, tmp_path / "late.onnx")
    (tmp_path / "bank").mkdir()
    done = call("TUNE_BANK_PATH=bank AOE_ACCEPT_BUSY=True aoe --model=late.onnx", tmp_path)
    assert done.code == 3
    assert "error: --model=late.onnx: ONNX Runtime does not read this opset yet" in done.err
