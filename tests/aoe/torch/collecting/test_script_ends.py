"""However a script ends, `set_aoe` leaves a dump that can be tuned; the exit code is its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from aoe.entry.torch_dump import load_torch_dump  # noqa: E402

_LIMIT_S = 300
_BEGINNING = """
import os, sys, signal, torch, aoe.torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Mish())
x = torch.randn(64, 256)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
aoe.torch.set_aoe(sys.argv[1], steps=2)
"""
_TRAIN = "optimizer.zero_grad(); net(x).sum().backward(); optimizer.step()\n"
_OWN_STEP = """
net(x).sum().backward()
with torch.no_grad():
    for parameter in net.parameters():
        parameter -= 0.01 * parameter.grad
"""
_LBFGS = """
optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)
calls = []
def closure():
    optimizer.zero_grad()
    calls.append(1)
    loss = net(x).square().mean()
    loss.backward()
    return loss
optimizer.step(closure)
assert len(calls) > 1
optimizer.step(closure=closure)
assert torch.nn.Module.__call__.__name__ != "watched"
"""
_SCALED = """
scaler = torch.amp.GradScaler("cpu")
for _ in range(2):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = net(x).float().sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
_FORK = """
if not (child := os.fork()):
    torch.no_grad().__enter__()
    net(x[:5])
    sys.exit(0)
os.waitpid(child, 0)
with torch.no_grad():
    net(x)
"""
_CTRL_C = (-signal.SIGINT, 1)
"""Once PyTorch's exporter was used, a script of its own that is interrupted ends with 1."""
WAYS: dict[str, tuple[str, int | tuple[int, ...]]] = {
    "after its steps": (_TRAIN * 3, 0),
    "without an optimizer": (_OWN_STEP, 0),
    "after one call of inference": ("with torch.no_grad():\n    net(x)\n", 0),
    "LBFGS calls its closure several times": (_LBFGS, 0),
    "mixed precision": (_SCALED, 0),
    "inference mode": ("with torch.inference_mode():\n    net(x)\n", 0),
    "an exception": (f"{_TRAIN}raise ValueError('mine')\n", 1),
    "an exception in a step": ("net(x)\nnet(torch.zeros(3))\n", 1),
    "sys.exit": (f"{_TRAIN}sys.exit(7)\n", 7),
    "Ctrl-C": (f"{_TRAIN}signal.raise_signal(signal.SIGINT)\n", _CTRL_C),
    "SIGTERM": (f"{_TRAIN}signal.raise_signal(signal.SIGTERM)\n", -signal.SIGTERM),
    "os._exit": (f"{_TRAIN}os._exit(5)\n", 5),
    "a child process that ends first": (_FORK, 0),
}


@pytest.mark.slow  # each way is a process that imports PyTorch and exports a module
@pytest.mark.parametrize("way", WAYS)
def test_the_dump_is_usable_and_the_exit_code_is_the_scripts(way: str, tmp_path: Path) -> None:
    body, code = WAYS[way]
    script, dump = tmp_path / "script.py", tmp_path / "dump"
    script.write_text(_BEGINNING + body)
    ended = subprocess.run(
        [sys.executable, str(script), str(dump)],
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
    )
    assert ended.returncode in (code if isinstance(code, tuple) else (code,)), ended.stderr
    if code == 0:
        assert not ended.stderr
    graphs = json.loads((dump / "dump.json").read_text())["graphs"]
    calls = [(graph["module"], graph["call"]) for graph in graphs]
    assert ("Sequential", "float32[64, 256]") in calls
    assert ("Sequential", "float32[5, 256]") not in calls
    assert load_torch_dump(dump, {}).proto.graph.node
