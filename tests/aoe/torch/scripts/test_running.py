"""`AOE_MODE=2 python -m aoe.torch train.py`: a script that knows nothing of it, for real."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxscript")

_SCRIPT = """
import sys
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(24, 160), nn.Linear(160, 24)

    def forward(self, x):
        return self.last(nn.functional.gelu(self.first(x)))

torch.set_num_threads(1)
torch.manual_seed(0)
net = Net()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(6):
    optimizer.zero_grad()
    loss = net(torch.randn(96, 24)).square().mean()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
sys.exit(5)
"""


def _run(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words, "train.py"],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "TUNE_BANK_PATH": str(folder / "bank"),
            "AOE_ACCEPT_BUSY": "True",
            **env,
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """Return the folder of a script that was run plain and tuned, and both runs."""
    folder = tmp_path_factory.mktemp("script")
    (folder / "train.py").write_text(_SCRIPT)
    (folder / "bank").mkdir()
    return folder, _run(folder), _run(folder, "-m", "aoe.torch", AOE_MODE="2")


def test_training_is_tuned_and_trains_the_same(tuned: tuple[Path, Any, Any]) -> None:
    _, plain, done = tuned
    assert plain.returncode == done.returncode == 5, done.stderr
    assert plain.stdout == done.stdout
    assert "aoe: optimizer AdamW: fused=True" in done.stderr
    assert "aoe: training of Net: kernels are faster for" in done.stderr
    assert "aoe: left to PyTorch: convolutions, matrix products and attention" in done.stderr
    assert done.stderr.endswith("Aoe process finished\n")


def test_results_are_those_of_a_run(tuned: tuple[Path, Any, Any]) -> None:
    folder, _, _ = tuned
    (file,) = folder.glob("aoe_result_opat_*_pid*.json")
    (report,) = json.loads(file.read_text()).values()
    assert report[0]["basic"]["tuning_name"].startswith("train_")
    assert report[1]["OPAT"]["repo_summary"]["total_num"] == 2
    (details,) = folder.glob("aoe_workspace/train_*/tunespace/result/training.json")
    document = json.loads(details.read_text())
    assert document["schema"] == "aoe.training/1"
    assert document["bank"] == str(folder / "bank")
    (graph,) = document["graphs"]
    assert [one["direction"] for one in graph["regions"]] == ["forward", "backward"]
    assert graph["regions"][0]["operators"] == ["aten.gelu"]
    assert all(one["op_types"] == ["loop"] for one in graph["regions"])
    assert document["optimizers"][0] == {
        "class": "AdamW",
        "groups": 1,
        "fused": 1,
        "compared": 4,
        "reason": "",
    }


def test_side_car_names_the_training(tuned: tuple[Path, Any, Any]) -> None:
    folder, _, _ = tuned
    lines = [
        json.loads(line)
        for file in folder.glob("bank/**/*.provenance.jsonl")
        for line in file.read_text().splitlines()
    ]
    models = [line["model"] for line in lines if "model" in line]
    assert {one["name"] for one in models} <= {"Net"}  # none where ONNX Runtime is as fast
    assert {one["graph"] for one in models} <= {"training"}


_GROUP = """
import hashlib
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.set_num_threads(1)
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(24, 160), torch.nn.GELU(), torch.nn.Linear(160, 24))
model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters())
torch.manual_seed(rank)
for step in range(6):
    optimizer.zero_grad()
    loss = model(torch.randn(96, 24)).square().mean()
    loss.backward()
    optimizer.step()
parameters = b"".join(one.detach().numpy().tobytes() for one in net.parameters())
print(f"rank {rank}: {loss.item():.4f}", hashlib.sha256(parameters).hexdigest(), flush=True)
dist.destroy_process_group()
"""


@pytest.mark.slow  # three processes that import PyTorch
def test_ranks_of_a_group_train_the_same_and_the_first_one_speaks(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_GROUP)
    (tmp_path / "bank").mkdir()
    words = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    done = _run(tmp_path, *words, "-m", "aoe.torch", AOE_MODE="2", OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    rows = sorted(line.split() for line in done.stdout.splitlines() if line.startswith("rank"))
    assert [row[:2] for row in rows] == [["rank", "0:"], ["rank", "1:"]]
    assert rows[0][2] != rows[1][2] and rows[0][3] == rows[1][3]  # other data, equal parameters
    assert done.stderr.count("aoe: training of Sequential: kernels are faster for") == 1
    assert done.stderr.count("Aoe process finished") == 1
    assert len(list(tmp_path.glob("aoe_result_opat_*_pid*.json"))) == 1


_LATE = """
import sys
import aoe.torch
import torch

if sys.argv[-1] == "load":
    aoe.torch.set_option({"ACL_OP_COMPILER_CACHE_DIR": "result"})
torch.set_num_threads(1)
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(24, 160), torch.nn.GELU(), torch.nn.Linear(160, 24))
optimizer = torch.optim.AdamW(net.parameters())
for step in range(4):
    optimizer.zero_grad()
    loss = net(torch.randn(96, 24)).square().mean()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
if sys.argv[-1] != "load":
    state = torch.get_rng_state()
    limits = {"trials": 1, "tuning_time_limit": 9}
    aoe.torch.set_aoe("dump", tune=True, output="result", bank="bank", **limits)
    print(torch.equal(state, torch.get_rng_state()) and net[0].weight.grad is not None)
"""


def test_tutorials_order_tunes_and_the_next_run_loads(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_LATE)
    done = _run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "set_aoe: no step followed the call; collected from the first step: Seq" in done.stderr
    assert "aoe: training of Sequential: kernels are faster for" in done.stderr
    assert "nothing was collected" not in done.stderr and "Aoe process finished" in done.stdout
    losses = done.stdout.splitlines()[:5]
    assert losses[4] == "True"
    document = json.loads((tmp_path / "result" / "training.json").read_text())
    assert document["bank"] == str(tmp_path / "bank") and document["graphs"][0]["regions"]
    shutil.rmtree(tmp_path / "bank")  # what the script loads is in its results
    (tmp_path / "bank").mkdir()
    again = _run(
        tmp_path, "-c", "import sys; sys.argv[1:] = ['load']; exec(open('train.py').read())"
    )
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines() == losses[:4]
    assert "modules that are called with gradients wanted are loaded" in again.stderr
    assert "aoe: optimizer AdamW: fused=True" in again.stderr
