"""A training that is only loaded waits for nothing that reads or tunes models."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

_LOADED = """
import sys
import torch

torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(24, 160), torch.nn.GELU(), torch.nn.Linear(160, 24))
options = {"bank": "bank", "cache_dir": "kernels", "lookup_only": True}
compiled = torch.compile(net, backend="aoe", options=options)
for _ in range(2):
    compiled(torch.randn(96, 24)).square().mean().backward()
print("aoe.bank.operators" in sys.modules)  # the bank was asked
print(sorted({"halide", "onnx", "onnxruntime", "aoe.tuner.tune_context"} & {*sys.modules}))
"""


def test_nothing_that_reads_or_tunes_models_is_imported(tmp_path: Path) -> None:
    (tmp_path / "bank").mkdir()
    (tmp_path / "loaded.py").write_text(_LOADED)
    done = subprocess.run(
        [sys.executable, "loaded.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "True\n[]\n", done.stderr
