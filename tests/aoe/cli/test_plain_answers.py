"""Answers that once said the wrong thing: each is asked for as a user does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import aoe_exit_code

import aoebank


@pytest.mark.parametrize(
    ("arguments", "code", "says", "says_not"),
    [
        (("--progress_bar=maybe", "--model=m.onnx"), 2, "on or off", "True or False"),
        (("--om=net.om", "--model=m.onnx"), 2, "--om: given together with --model", "--json"),
        (("--om=net.om", "--model_path=m"), 2, "--om: given together with --model_path", "--json"),
        (("--om=net.om",), 3, "net.om: no such file", "--model"),
        (("--om=net.om", "--framework=5"), 3, "net.om: no such file", "--framework"),
        (("--om=net.om", "--job_type=4"), 2, "no option of gradient tuning", "--script"),
        (("--model=net.om",), 2, "--om=net.om tunes the model in it again", "ONNX"),
        (("benchmark", "m.onnx"), 2, "--vs", "1.00x"),
        (("--framework=0", "--model=m.prototxt", "--weight=w"), 3, "no such file", "only Caffe"),
        (("--framework=5", "--model=m.onnx", "--weight=w"), 2, "only Caffe models", "--framework"),
    ],
)
def test_wrong_options_get_the_right_reason(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: tuple[str, ...],
    code: int,
    says: str,
    says_not: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnx").write_bytes(b"")
    assert aoe_exit_code(arguments) == code
    shown = capsys.readouterr().err
    assert says in shown and says_not not in shown
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_json_counts_before_a_command_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert aoe_exit_code(["--json", "run", "gone.om"]) == 3
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "AOE070"


def test_result_files_are_nothing_to_complain_about(tmp_path: Path) -> None:
    for name in ("summary.json", "op_tuning/LRN_float32.json", "aoe_result_opat_1_pid2.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("[]\n")
    (tmp_path / "net_tune.om").write_bytes(b"PK")
    assert not aoebank.validate(tmp_path).findings
