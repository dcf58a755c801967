"""`set_aoe(..., tune=True)`: a script collects, and `aoe` tunes when that is done."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from support.scripted_command import ScriptedCommand  # noqa: E402

import aoe.torch  # noqa: E402
from aoe.errors import OptionError, OutputError  # noqa: E402
from aoe.online.command import FolderTuning, run_aoe  # noqa: E402
from aoe.settings import environment  # noqa: E402
from aoe.torch.collecting.collect import Collector  # noqa: E402
from aoe.torch.collecting.dump import DumpWriter  # noqa: E402

_LIMIT_S = 300
_SCRIPT = """
import sys, torch, aoe.torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Mish()).eval()
torch.set_grad_enabled(False)
net(torch.randn(64, 64))  # a step nobody watches
aoe.torch.set_aoe("dump", tune=True, output="result", bank="bank", trials=1)
net(torch.randn(64, 64))
{end}
"""


@pytest.fixture
def command(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> ScriptedCommand:
    """Return what stands in for `aoe`."""
    return ScriptedCommand(tmp_path_factory.mktemp("aoe") / "command", monkeypatch)


def _net() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Mish())


def _step(net: Any) -> None:
    """Train nothing: a step of inference, and that of an optimizer beside it."""
    optimizer = torch.optim.SGD([torch.zeros(2, requires_grad=True)], lr=0.1)
    with torch.no_grad():
        net(torch.ones(4, 8))
    optimizer.step()


def test_dump_is_tuned_when_its_steps_are_over(command: ScriptedCommand, tmp_path: Path) -> None:
    net = _net()
    _step(net)  # tutorials call set_aoe when the script has warmed up
    aoe.torch.set_aoe(tmp_path / "dump", steps=2, tune=True)
    _step(net)
    assert not command.runs
    _step(net)
    _step(net)
    (run,) = command.runs
    assert "dump.json" in run.files and any(name.endswith(".onnx") for name in run.files)
    assert run.arguments == [f"--model_path={tmp_path / 'dump'}", "--job_type=2"]


def test_options_reach_the_command(command: ScriptedCommand, tmp_path: Path) -> None:
    given = {"output": tmp_path / "out", "tuning_time_limit": 30, "trials": 4}
    with aoe.torch.set_aoe(tmp_path / "dump", tune=True, bank=tmp_path / "bank", **given):
        _step(_net())
    (run,) = command.runs
    assert run.arguments[2:] == [
        f"--output={tmp_path / 'out'}",
        "--tuning_time_limit=30",
        "--trials=4",
    ]
    assert run.env["TUNE_BANK_PATH"] == str(tmp_path / "bank")


def test_nothing_is_tuned_unless_it_is_asked_for(command: ScriptedCommand, tmp_path: Path) -> None:
    with aoe.torch.set_aoe(tmp_path):
        _step(_net())
    assert not command.runs


@pytest.mark.slow
def test_what_was_collected_before_is_tuned_by_a_later_call(
    command: ScriptedCommand, tmp_path: Path
) -> None:
    with aoe.torch.set_aoe(tmp_path):
        _step(_net())
    with pytest.warns(UserWarning, match="no step followed"):
        aoe.torch.set_aoe(tmp_path, tune=True).close()
    assert len(command.runs) == 1


@pytest.mark.parametrize("tune", [True, False])
def test_call_no_step_follows_is_said_and_tunes_nothing(
    command: ScriptedCommand, tmp_path: Path, tune: bool
) -> None:
    _step(_net())
    with pytest.warns(UserWarning, match="no step followed the call, so nothing was collected"):
        aoe.torch.set_aoe(tmp_path, tune=tune).close()
    assert not command.runs


@pytest.mark.slow
def test_call_a_step_follows_is_not_warned_of(command: ScriptedCommand, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with aoe.torch.set_aoe(tmp_path, tune=True):
            _step(_net())
    assert len(command.runs) == 1


@pytest.mark.slow
def test_block_that_fails_is_not_tuned(command: ScriptedCommand, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), aoe.torch.set_aoe(tmp_path, tune=True):
        _step_that_fails()
    assert not command.runs


def _step_that_fails() -> None:
    _net()(torch.ones(4, 8))
    raise ZeroDivisionError


def test_other_processes_of_a_job_neither_tune_nor_warn(
    command: ScriptedCommand, tmp_path: Path
) -> None:
    writer, tuning = DumpWriter(tmp_path), FolderTuning()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Collector(writer, steps=1, tuning=tuning, is_first_rank=lambda: False) as collector:
            collector.start()
            _step(_net())
    assert not command.runs


def test_tuning_that_fails_is_a_warning_with_what_to_do(
    tmp_path: Path, command: ScriptedCommand
) -> None:
    command.ends_with(3)
    with (
        pytest.warns(UserWarning, match=r"ended with code 3; the dump is there: aoe --model_path"),
        aoe.torch.set_aoe(tmp_path, tune=True),
    ):
        _step(_net())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tune": True, "trials": 0}, r"trials: not a limit \(got 0, expected 1 or more"),
        ({"tune": True, "tuning_time_limit": -1}, "tuning_time_limit: not a limit"),
        ({"tune": True, "tuning_time_limit": float("inf")}, "tuning_time_limit: not a limit"),
        ({"tune": True, "tuning_time_limit": "soon"}, "tuning_time_limit: not a limit"),
        ({"output": "out"}, "options for tuning, and nothing is to be tuned"),
    ],
)
def test_odd_options_are_refused_before_anything_is_watched(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    call = torch.nn.Module.__call__
    with pytest.raises(OptionError, match=message):
        aoe.torch.set_aoe(tmp_path / "dump", **options)
    assert torch.nn.Module.__call__ is call and not (tmp_path / "dump").exists()


def test_bank_that_cannot_be_is_found_out_before_the_steps(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be created"):
        aoe.torch.set_aoe(tmp_path / "dump", tune=True, bank=tmp_path / "file" / "bank")


def _run(folder: Path, end: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(_SCRIPT.format(end=end))
    return subprocess.run(
        [sys.executable, "script.py"],
        cwd=folder,
        env={**environment(), "PYTHONPATH": ":".join(sys.path), "AOE_ACCEPT_BUSY": "True"},
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
    )


def test_command_is_run_with_what_this_process_can_import(tmp_path: Path) -> None:
    assert run_aoe(["--version"], {"PATH": "/usr/bin"}, None) == 0
    assert run_aoe([f"--model_path={tmp_path}", "--trials=x"], {"PATH": "/usr/bin"}, tmp_path) == 2


def test_script_that_is_over_tunes_on_its_way_out(tmp_path: Path) -> None:
    done = _run(tmp_path, "")
    assert done.returncode == 0, done.stderr
    assert "Aoe process finished" in done.stdout
    assert (tmp_path / "result" / "dump_tune.om").is_file()
    assert not (tmp_path / "result" / "training.json").exists()  # no gradients were wanted
    assert list((tmp_path / "bank").rglob("*.jsonl"))


@pytest.mark.slow
def test_script_that_fails_tunes_nothing_and_fails_as_ever(tmp_path: Path) -> None:
    done = _run(tmp_path, "raise SystemError('mine')")
    assert done.returncode == 1 and "SystemError: mine" in done.stderr
    assert (tmp_path / "dump" / "dump.json").is_file() and not (tmp_path / "result").exists()
