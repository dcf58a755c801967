"""`--workers` for real: processes of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import aoe_exit_code
from support.engine.models import save_model, slow_chain_net

import aoe


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the command line that tunes one operator with two trials."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNE_BANK_PATH", "bank")
    Path("bank").mkdir()
    save_model(slow_chain_net(channels=16, extent=32), Path("mish.onnx"))
    shape = "--input_shape=x:1,16,32,32"
    return ["--model=mish.onnx", shape, "--trials=2", "--output=out", "--aicore_num=1"]


def test_worker_of_this_machine_tunes(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert aoe_exit_code([*words, "--workers=1"]) == 0
    out, err = capfd.readouterr()
    assert " worker local1 (" in err
    assert " measures, on " in err
    assert "[1/1] softplus0: " in err
    assert out.endswith("Aoe process finished\n")
    assert aoe.load("out/mish_tune.om")
