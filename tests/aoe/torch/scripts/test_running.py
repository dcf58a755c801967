"""A script that knows nothing of it is tuned for real: `AOE_MODE`, `--job_type=2,4`, `set_aoe`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from support.ddp.scripts import run_under_aoe

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
for step in range(40):
    optimizer.zero_grad()
    loss = net(torch.randn(96, 24)).square().mean()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.3f}")
sys.exit(5)
"""


def _run(
    folder: Path, *words: str, given: str = "", **env: str
) -> subprocess.CompletedProcess[str]:
    """Run the script behind words of Python, with a word of its own."""
    return subprocess.run(
        [sys.executable, *words, "train.py", *given.split()],
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
    kept = "aoe: memory: what a step frees is kept for the next one\n"
    assert (kept in done.stderr) == ("CS_GNU_LIBC_VERSION" in os.confstr_names)
    assert "aoe: training of Net: kernels are faster for" in done.stderr
    assert "aoe: left to PyTorch: convolutions, matrix products and attention" in done.stderr
    assert re.search(r"aoe: whole steps: \d+\.\d\dx \(", done.stderr)
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
    (optimizer,) = document["optimizers"]
    is_slower = document["steps"]["outcome"] == "slower"
    assert optimizer["fused"] == (not is_slower) == (not optimizer["reason"])
    assert optimizer["class"] == "AdamW" and optimizer["compared"] == 4
    assert document["steps"]["pairs"] >= 6


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
import sys
from itertools import pairwise
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.set_num_threads(1)
torch.manual_seed(0)
steps, bucket_mib, widths = int(sys.argv[1]), float(sys.argv[2]), map(int, sys.argv[3:])
layers = [(torch.nn.Linear(*ends), torch.nn.GELU()) for ends in pairwise(widths)]
net = torch.nn.Sequential(*[one for pair in layers for one in pair])
model = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=bucket_mib)
optimizer = torch.optim.AdamW(model.parameters())
torch.manual_seed(rank)
for step in range(steps):
    optimizer.zero_grad()
    loss = model(torch.randn(96, 24)).square().mean()
    loss.backward()
    optimizer.step()
parameters = b"".join(one.detach().numpy().tobytes() for one in net.parameters())
with open(f"rank_{rank}", "w") as file:
    file.write(f"{loss.item():.6e} {hashlib.sha256(parameters).hexdigest()}")
dist.destroy_process_group()
"""


def _check_ranks(folder: Path) -> None:
    """Check that the ranks had other data, and have equal parameters."""
    losses, parameters = zip(
        *((folder / f"rank_{n}").read_text().split() for n in "01"), strict=True
    )
    assert losses[0] != losses[1] and parameters[0] == parameters[1]


def _one_run(folder: Path, steps: int, options: str = "") -> str:
    """Tune operators and gradients of a group of two; return what the first rank says."""
    given = (str(steps), "25", "24", "160", "24")
    words = "--job_type=2,4 --output=out"
    ended = run_under_aoe(folder, _GROUP, *given, words=words, options=options)
    assert ended.code == 0, ended.said
    _check_ranks(folder)
    for line in ("training of Sequential: kernels are", "Aoe process finished"):
        assert [text.count(line) for text in ended.said] == [1, 0], ended.said
    document = json.loads((folder / "out" / "training.json").read_text())
    assert document["bank"] == str(folder / "bank") and document["graphs"][0]["regions"]
    return ended.said[0]


def test_operators_and_gradients_of_a_group_are_tuned_in_one_run(tmp_path: Path) -> None:
    # a limit that leaves no time for a race: what comes before and behind it is as ever
    told = _one_run(tmp_path, 68, "--tuning_time_limit=0.001")
    places = [
        told.rfind(words)
        for words in (
            "operators of train.py in its first 38 steps",
            "recording 8 back",
            "training of Sequential: kernels are faster for",
            "optimizer AdamW: ",
            "whole steps: ",
            "aoe_result_opat_",
            "aoe_result_gdat_",
            "Aoe process finished",
        )
    ]
    assert -1 not in places and places == sorted(places), told
    for mode in ("opat", "gdat"):
        assert len(list((tmp_path / "out").glob(f"aoe_result_{mode}_*_pid*.json"))) == 1


@pytest.mark.slow
def test_script_too_short_for_a_grouping_has_its_operators_tuned(tmp_path: Path) -> None:
    told = _one_run(tmp_path, 40)
    assert "gradients are not tuned: script: ended after 39 steps, before tuning" in told
    assert told.count("whole steps: ") == 1
    assert len(list((tmp_path / "out").glob("aoe_result_opat_*_pid*.json"))) == 1


def test_script_without_ddp_has_its_operators_tuned_and_is_told_why_no_more(
    tuned: tuple[Path, Any, Any],
) -> None:
    folder, plain, _ = tuned
    words = ("--job_type=4,2", "--output=both", "--json", "--script")
    done = _run(folder, "-m", "aoe", *words)
    assert done.returncode == 5, done.stderr
    document = json.loads(done.stdout)
    assert document["schema"] == "aoe.training/1" and document["script_exit_code"] == 5
    assert document["graphs"][0]["regions"] and document["optimizers"][0]["class"] == "AdamW"
    assert "0 training steps of DistributedDataParallel" in document["gradients_left"]
    assert Path(document["results"], "training.json").is_file()
    assert Path(document["result_file"]).parent == folder / "both"
    losses = [line for line in done.stderr.splitlines() if line in plain.stdout.splitlines()]
    assert losses == plain.stdout.splitlines()  # what a script prints is no document


@pytest.mark.slow
def test_operators_alone_are_tuned_by_the_command(tuned: tuple[Path, Any, Any]) -> None:
    folder, plain, _ = tuned
    done = _run(folder, "-m", "aoe", "--job_type=2", "--output=alone", "--script")
    assert done.returncode == 5, done.stderr
    assert done.stdout.startswith(plain.stdout) and "not tuned" not in done.stdout
    assert "training of Net: kernels are faster for" in done.stdout
    assert done.stdout.endswith("process finished\nAoe process finished\n")


@pytest.mark.slow  # three processes that import PyTorch
@pytest.mark.parametrize(
    ("widths", "count", "words"),
    [
        ("25 24 160 24", 1, "aoe: training of Sequential: kernels are faster for"),
        (
            "1 24 640 640 24",
            2,
            "aoe: training of Sequential: kernels are faster for",
        ),  # cut at its buckets
        ("0.1 24 160 24", 1, "aoe: Sequential: as it is, its buckets are smaller than 1.0 MiB"),
    ],
)
def test_ranks_of_a_group_train_the_same_and_the_first_one_speaks(
    tmp_path: Path, widths: str, count: int, words: str
) -> None:
    (tmp_path / "train.py").write_text(_GROUP)
    (tmp_path / "bank").mkdir()
    launched = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    env = {"AOE_MODE": "2", "OMP_NUM_THREADS": "1"}
    done = _run(tmp_path, *launched, "-m", "aoe.torch", given=f"6 {widths}", **env)
    assert done.returncode == 0, done.stderr
    _check_ranks(tmp_path)
    assert done.stderr.count(words) == count
    assert done.stderr.count("Aoe process finished") == 1
    files = list(tmp_path.glob("aoe_result_opat_*_pid*.json"))
    assert len(files) == ("training of" in words)  # nobody's reports make no file


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
limits = {"trials": 1, "tuning_time_limit": 9}
if sys.argv[-1] == "before":
    aoe.torch.set_aoe("dump", tune=True, output="result", bank="bank", **limits)
for step in range(42 if sys.argv[-1] == "before" else 4):
    optimizer.zero_grad()
    loss = net(torch.randn(96, 24)).square().mean()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
if sys.argv[-1] not in ("before", "load"):
    state = torch.get_rng_state()
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
    again = _run(tmp_path, given="load")
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines() == losses[:4]
    assert "modules that are called with gradients wanted are loaded" in again.stderr
    assert "aoe: optimizer AdamW: fused=True" in again.stderr


def test_training_is_tuned_where_the_call_comes_before_its_steps(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_LATE)
    done = _run(tmp_path, given="before")
    assert done.returncode == 0, done.stderr
    assert "collected from the first step" not in done.stderr
    assert done.stderr.count("aoe: training of Sequential: kernels are faster for") == 1
    document = json.loads((tmp_path / "result" / "training.json").read_text())
    assert document["graphs"][0]["regions"] and document["bank"] == str(tmp_path / "bank")
    # and the inference form, as it always was
    assert (tmp_path / "result" / "dump_tune.om").is_file()
    assert len([line for line in done.stdout.splitlines() if line[:2] in ("0.", "1.")]) == 42
    if any(graph["is_used"] for graph in document["graphs"]) or document["steps"]:
        # the script went on as its training was tuned, and its steps were compared
        assert document["steps"]["pairs"] and "aoe: whole steps: " in done.stderr


def test_option_that_cannot_be_meant_is_one_error_before_the_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_SCRIPT)
    (tmp_path / "bank").mkdir()
    done = _run(tmp_path, "-m", "aoe.torch", AOE_MODE="2", REPEAT_TUNE="perhaps")
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.count("error: REPEAT_TUNE") == 1 and "Traceback" not in done.stderr
