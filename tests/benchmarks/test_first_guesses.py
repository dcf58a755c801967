"""Whole networks with the first guess of every kernel."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest
from first_guesses import main
from support.contracts.kernels import kernel_target
from support.engine.models import chain_model, matmul_net


def test_every_network_has_a_line_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / f"{name}.onnx" for name in ("one", "other")]
    for file in files:
        onnx.save(chain_model(["Tanh", "Softplus"]), file)
    main([*map(str, files), "--seconds", "0", "--without", "matmul"])
    lines = capsys.readouterr().out.splitlines()
    for file, line in zip(files, lines, strict=True):
        pattern = r"(\w+): [\d.]+x, [\d.]+ ms, 3 turns, error (\S+); 1 elementwise"
        found = re.fullmatch(pattern, line)
        assert found, line
        assert found[1] == file.stem
        assert float(found[2]) < 1e-4


@pytest.mark.skipif(not kernel_target().bf16_dot, reason="this CPU multiplies no bfloat16")
def test_products_are_of_the_precision_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "product.onnx"
    onnx.save(matmul_net(width=32), file)
    main([str(file), "--seconds", "0", "--precision_mode", "allow_fp32_to_bf16"])
    assert "2 matmul in bfloat16" in capsys.readouterr().out
