"""Without the engine's dependencies `aoe` says what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

from aoe.cli.errors import ENGINE_MODULES

WITHOUT = """
import sys
sys.modules[{module!r}] = None
from aoe.cli.app import app
from aoe.cli.errors import run_app
sys.exit(run_app(app, ["--model=nowhere.onnx"]))
"""


@pytest.mark.parametrize("module", ["onnx", "onnxruntime"])
def test_missing_engine_names_the_extra(module: str) -> None:
    assert module in ENGINE_MODULES
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(module=module)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert module in done.stderr
    assert "pip install 'aoebank[engine]'" in done.stderr
