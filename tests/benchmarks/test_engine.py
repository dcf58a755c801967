"""The engine's row: the command as users give it, an empty bank, inputs of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks.network import sample_inputs
from networks.registry import NETWORKS
from runtimes import engine
from runtimes.registry import with_precision
from runtimes.runtime import RuntimeTask

SUMMARY = {
    "seconds": 12.0,
    "baseline_ms": 2.0,
    "tuned_ms": 1.0,
    "speedup": 2.0,
    "speedup_low": 1.9,
    "speedup_high": 2.1,
    "operators": [{"in_model": True}, {"in_model": False}],
}


class Command:
    """Stands in for `subprocess.run`."""

    def __init__(self, code: int, document: dict[str, Any]) -> None:
        self.done = subprocess.CompletedProcess([], code, json.dumps(document), "noise")
        self.words: list[str] = []
        self.bank = Path()

    def __call__(self, words: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
        self.words, self.bank = words, Path(more["env"]["TUNE_BANK_PATH"])
        return self.done


def _task(folder: Path, **options: str) -> RuntimeTask:
    return RuntimeTask(
        network="bert6",
        model=Path("model.onnx"),
        inputs={},
        folder=folder,
        threads=2,
        budget_s=300.0,
        options=options,
    )


def _command(code: int = 0, document: dict[str, Any] | None = None) -> Command:
    return Command(code, {"summary": SUMMARY} if document is None else document)


def test_budget_threads_and_precision_are_passed_on(tmp_path: Path) -> None:
    command = _command()
    mode = "allow_fp32_to_bf16"
    _, peer = with_precision(mode)
    facts = engine.build(_task(tmp_path, **peer.options), command)
    for word in (
        "--tuning_time_limit=300.0",
        "--aicore_num=2",
        "--precision_mode=allow_fp32_to_bf16",
        f"--calibration={tmp_path / 'sets'}",
    ):
        assert word in command.words
    assert facts["kernels"] == 1 and facts["printed"]["speedup"] == 2.0


def test_bank_is_empty_and_inputs_are_others_than_measured(tmp_path: Path) -> None:
    (tmp_path / "bank").mkdir()
    (tmp_path / "bank" / "old").write_text("x")
    command = _command()
    engine.build(_task(tmp_path), command)
    assert not list(command.bank.iterdir())
    sets = sorted((tmp_path / "sets").iterdir())
    assert f"--inputs={tmp_path / 'sets'}" in command.words and len(sets) == 4
    measured = sample_inputs(NETWORKS["bert6"], seed=0)["tokens"]
    for file in sets:
        with np.load(file) as inputs:
            assert set(inputs.files) == {"tokens", "mask"}
            assert not np.array_equal(inputs["tokens"], measured)


def test_refusal_of_the_command_is_the_reason(tmp_path: Path) -> None:
    refusing = _command(3, {"error": {"message": "model.onnx: no such operator"}})
    with pytest.raises(RuntimeError, match=r"code 3: model\.onnx: no such operator"):
        engine.build(_task(tmp_path), refusing)
    with pytest.raises(RuntimeError, match="code 4: noise"):
        engine.build(_task(tmp_path), _command(4, {}))
