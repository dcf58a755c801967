"""The converting process: what it answers, and that nothing is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.engine.models import chain_model
from support.engine.quantized import LARGE, int8_model

from aoe.device.registry import default_device
from aoe.online.conversions import LOG, RESULT, Conversion, ConvertingProcess
from aoe.settings import environment, with_bank

PARENT = """
import os, sys, time
from pathlib import Path
from aoe.online.conversions import Conversion, ConvertingProcess
from aoe.settings import environment
asked = Conversion(model=sys.argv[1], shapes={}, core_num=1, lookup_only=False)
process = ConvertingProcess(asked, Path(sys.argv[2]), environment())
print(process.pid, flush=True)
time.sleep(3600)
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a small model that leaves its rows open."""
    file = tmp_path / "net.onnx"
    file.write_bytes(chain_model(["Exp", "Sin"], ("n", 8, 16, 16)).SerializeToString())
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return an empty folder for a conversion."""
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def _asked(model: Path, **changes: object) -> Conversion:
    facts = {"shapes": {"x": (2, 8, 16, 16)}, "core_num": 1, "lookup_only": True, **changes}
    return Conversion(model=str(model), **facts)  # type: ignore[arg-type]


def _env(tmp_path: Path) -> dict[str, str]:
    return {**with_bank(environment(), tmp_path / "bank"), "AOE_BUILT_IN_BANK": "off"}


def _comes_true(is_so: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if is_so():
            return True
        time.sleep(0.01)
    return False


def test_form_of_a_quantised_model_is_an_answer_without_a_kernel(
    tmp_path: Path, folder: Path
) -> None:
    """Nothing is measured in a look-up: on x86 int8 activations are written as uint8."""
    (tmp_path / "bank").mkdir(mode=0o750)
    asked = _asked(int8_model(tmp_path), shapes={"x": LARGE})
    found = ConvertingProcess(asked, folder, _env(tmp_path)).wait()
    is_x86 = default_device().describe().soc_version.startswith("x86-64")
    assert (found.problem, found.kernels, bool(found.written_as)) == ("", 0, is_x86)
    assert (found.om_file is not None) == is_x86


def _is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def test_request_survives_its_file(model: Path) -> None:
    asked = _asked(model, tuning_time_limit_s=3.5, trials=2, accept_busy=True)
    assert Conversion.parse(asked.to_text()) == asked


def test_nothing_is_found_in_an_empty_bank(model: Path, folder: Path, tmp_path: Path) -> None:
    found = ConvertingProcess(_asked(model), folder, _env(tmp_path)).wait()
    assert (found.om_file, found.kernels, found.problem) == (None, 0, "")
    assert (folder / RESULT).is_file()
    assert "Fatal" not in (folder / LOG).read_text()


@pytest.mark.slow  # a process of its own
def test_problem_of_a_conversion_is_its_answer(model: Path, folder: Path, tmp_path: Path) -> None:
    asked = _asked(model, shapes={"y": (1,)})
    found = ConvertingProcess(asked, folder, _env(tmp_path)).wait()
    assert "y" in found.problem and found.om_file is None


def test_process_that_breaks_is_told_with_its_last_words(folder: Path, tmp_path: Path) -> None:
    process = ConvertingProcess(_asked(tmp_path / "none.onnx"), folder, _env(tmp_path))
    os.kill(process.pid, signal.SIGKILL)
    assert "ended with code -9" in process.wait().problem


def test_stopped_process_is_gone(model: Path, folder: Path, tmp_path: Path) -> None:
    process = ConvertingProcess(_asked(model, lookup_only=False), folder, _env(tmp_path))
    process.stop()
    assert process.wait().problem
    assert _is_gone(process.pid)


def test_process_has_the_lowest_priority(model: Path, folder: Path, tmp_path: Path) -> None:
    process = ConvertingProcess(_asked(model), folder, _env(tmp_path))
    pid = process.pid
    assert _comes_true(lambda: os.getpriority(os.PRIO_PROCESS, pid) == 19), (
        folder / LOG
    ).read_text()
    process.stop()


def test_process_ends_with_a_parent_that_was_killed(
    model: Path, folder: Path, tmp_path: Path
) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(model), str(folder)],
        env={**_env(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert not _is_gone(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert _comes_true(lambda: _is_gone(pid))
