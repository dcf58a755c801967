"""ONNX Runtime writes no identifier and no database when this engine loads it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.engine.models import chain_model, save_model

from aoe.settings import turn_off_telemetry

_RUN = """
from pathlib import Path
import os, sys
from aoe.ort.sessions import create_session, session_options
options = session_options(threads=1, optimize=True)
create_session(Path(sys.argv[1]), options, "CPUExecutionProvider")
print(os.environ["ORT_DISABLE_TELEMETRY"])
"""
_LOADED_FIRST = """
import sys, types
sys.modules["onnxruntime"] = types.SimpleNamespace(disable_telemetry_events=lambda: print("off"))
import aoe.ort
"""


def _python(code: str, *arguments: str, **variables: str) -> str:
    unset = {"CI", "ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS"}
    env = {name: text for name, text in os.environ.items() if name not in unset}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**env, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_nothing_is_written_when_a_session_is_made(tmp_path: Path) -> None:
    model = save_model(chain_model(["Exp"], (1,)), tmp_path / "net.onnx")
    home = tmp_path / "home"
    home.mkdir()
    places = dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME"), str(home))
    assert _python(_RUN, str(model), **places) == "1"
    assert list(home.iterdir()) == []


def test_program_that_loaded_it_first_gets_the_rest_switched_off() -> None:
    assert _python(_LOADED_FIRST) == "off"


def test_who_wants_it_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _python(_LOADED_FIRST, ORT_DISABLE_TELEMETRY="0") == ""
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "0")
    assert not turn_off_telemetry()
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "0"
