"""`aoe plan --job_type=2 --script train.py`: what would be tuned, for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import aoe_exit_code

pytest.importorskip("torch")
pytest.importorskip("onnxscript")

_SCRIPT = """
import sys
import torch

torch.set_num_threads(1)
torch.manual_seed(0)
parts = [torch.nn.Linear(24, 160), torch.nn.GELU(), torch.nn.Linear(160, 24)]
net = torch.nn.Sequential(*parts, torch.nn.Linear(24, 160), torch.nn.GELU())
optimizer = torch.optim.AdamW(net.parameters())
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    net(torch.randn(96, 24)).square().mean().backward()
    optimizer.step()
    print("step", step)
"""


def _run(folder: Path, *words: object, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *map(str, words)],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "TUNE_BANK_PATH": str(folder / "bank"),
            "XDG_CACHE_HOME": str(folder),
            "AOE_ACCEPT_BUSY": "True",
            **env,
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_plan_of_a_script_tells_what_would_be_tuned(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_SCRIPT)
    (tmp_path / "bank").mkdir()
    plan = ("aoe", "plan", "--job_type=2", "--json", "--script", "train.py", "50")
    done = _run(tmp_path, *plan)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["schema"] == "aoe.plan/1" and document["model"] == "train.py"
    assert document["counts"]["reused"] == 0
    parts = document["operators"]
    assert {part["kind"] for part in parts} == {"new"}
    assert {part["op_type"] for part in parts} == {"training_loop"}
    assert all(part["share"] > 0 for part in parts) and document["most_s"] > 0
    assert max(len(part["op_names"]) for part in parts) == 2  # equal regions are tuned once
    assert any(part["op_names"][0].endswith(": gelu_backward") for part in parts)
    assert "FallbackWarning" not in done.stderr
    assert done.stderr.count("step ") < 10  # the script ends as soon as its regions are known
    assert not list((tmp_path / "bank").rglob("*.json"))

    tuned = _run(tmp_path, "aoe", "--job_type=2", "--output=result", "--script", "train.py", "5")
    assert tuned.returncode == 0, tuned.stderr
    (tmp_path / "empty").mkdir()
    env = {"TUNE_BANK_PATH": str(tmp_path / "empty"), "XDG_CACHE_HOME": str(tmp_path / "empty")}
    words = (*plan[:3], "--base_result=result", *plan[4:])
    again = _run(tmp_path, *words, **env)
    assert again.returncode == 0, again.stderr
    assert f"{len(parts)} reused, 0 retuned, 0 new, 0 dropped" in again.stdout
    assert "nothing is to be searched" in again.stdout

    words = ("--base_result=result", "--output=result2", "--script", "train.py", "5")
    reused = _run(tmp_path, "aoe", "--job_type=2", *words, **env)
    assert reused.returncode == 0, reused.stderr
    assert f"{len(parts)} reused, 0 retuned, 0 new, 0 dropped" in reused.stdout


def test_script_without_training_is_told(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('nothing')")
    (tmp_path / "bank").mkdir()
    done = _run(tmp_path, "aoe", "plan", "--job_type=2", "--script", "train.py")
    assert done.returncode == 3
    assert "ended after 0 optimizer steps without a training graph" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("advise", "train.py"), "aoe plan --job_type=2 --script train.py"),
        (("verify", "--job_type=2", "--script", "train.py"), "aoe verify DIR"),
        (("plan", "--job_type=2", "--script", "no.py"), "no such file"),
        (("plan", "--job_type=4", "--base_result=x", "--script", "train.py"), "--base_result"),
        (("plan", "--job_type=2", "--world=2", "--script", "train.py"), "--world"),
    ],
)
def test_what_is_not_to_be_had_names_the_way_out(
    words: tuple[str, ...],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert aoe_exit_code(words) == 2
    assert told in capsys.readouterr().err
