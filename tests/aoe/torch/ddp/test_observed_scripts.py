"""Scripts that are run until enough is known of their gradients, and then ended."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.ddp.other_scripts import SCRIPTS
from support.ddp.scripts import run_under_aoe

torch = pytest.importorskip("torch")

from support.ddp.recorded import record_grouping  # noqa: E402
from support.ddp.scripts import TIMEOUT_S  # noqa: E402

_SCRIPT = """
import sys, torch
import torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(0)
ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
step = 0
while step != int(sys.argv[1]):
    ddp(torch.randn(4, 64)).square().sum().backward()
    step += 1
open(f"over_{dist.get_rank()}", "w").close()
"""


def _observed(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a command on the script, which ends only if it is ended; return its document."""
    told = subprocess.run(
        [sys.executable, "-m", "aoe", *words, "--json", "--script", "train.py", "-1"],
        cwd=folder,
        env={
            **{name: said for name, said in os.environ.items() if name != "OMP_NUM_THREADS"},
            **(env or {}),
            "GLOO_SOCKET_IFNAME": "lo",
            "TUNE_BANK_PATH": str(folder / "bank"),
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert told.returncode in (0, 1), told.stderr
    document: dict[str, Any] = json.loads(told.stdout)
    return document


@pytest.mark.slow
def test_endless_script_is_planned_tuned_and_verified(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_SCRIPT)
    (tmp_path / "bank").mkdir()
    planned = _observed(tmp_path, "plan", "--job_type=4")
    (part,) = planned["gradients"]
    assert part["kind"] == "new" and planned["group"] == "2 processes, gloo"
    unknown = _observed(tmp_path, "verify", "bank")
    assert unknown["passed_over"][0]["key"] == part["key"] and unknown["holds"]
    assert "the bank has no record of Linear" in unknown["passed_over"][0]["reason"]
    assert not [*tmp_path.glob("over_*")]
    ended = run_under_aoe(tmp_path, _SCRIPT, str(6000), options="--tuning_time_limit=20")
    assert ended.code == 0, ended.said
    known = _observed(tmp_path, "plan", "--job_type=4")["gradients"][0]
    assert known["key"] == part["key"] and "no record" not in known["reason"]


@pytest.mark.slow
def test_record_is_planned_and_verified_in_every_process_of_the_group(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_SCRIPT)
    (tmp_path / "bank").mkdir()
    key = str(record_grouping(tmp_path / "bank", "Linear", (64 * 64 * 4, 256)))
    (reused,) = _observed(tmp_path, "plan", "-j4")["gradients"]
    (again,) = _observed(tmp_path, "plan", "-j4", env={"REPEAT_TUNE": "True"})["gradients"]
    assert (reused["key"], reused["kind"], again["kind"]) == (key, "reused", "retuned")
    ended = run_under_aoe(tmp_path, _SCRIPT, "-1", words="verify bank")
    first, second = ended.said
    assert "24 pairs of training steps" in first and "1 record measured" in first, first
    assert ended.codes[0] in (0, 1) and ended.codes[1] == 0 and "error" not in second
    assert not [*tmp_path.glob("over_*")]


pytest.importorskip("torch")


_STEPS = 250
_ENDED = re.compile(r"ended after (\d+) steps, before tuning was finished")


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_script_computes_the_same_bits_under_tuning(name: str, tmp_path: Path) -> None:
    tuned = run_under_aoe(tmp_path, SCRIPTS[name], str(_STEPS))
    assert tuned.code == 0, tuned.said
    assert "Traceback" not in tuned.said[0], tuned.said[0]
    if "not tuned" in tuned.said[0]:  # it is short: tuning goes on to its end, or nearly so
        ended = _ENDED.search(tuned.said[0])
        assert ended is not None and int(ended[1]) > _STEPS // 4 - 4, tuned.said[0]
    found = [(tmp_path / f"digest_{rank}").read_text() for rank in "01"]
    plain = run_under_aoe(tmp_path, SCRIPTS[name], str(_STEPS), tuned=False)
    assert plain.code == 0, plain.said
    assert found == [(tmp_path / f"digest_{rank}").read_text() for rank in "01"]
