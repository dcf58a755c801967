#!/usr/bin/env bash
# Expected: a function that reads an input through a copy and then writes to the input trains the
# same compiled as in eager; PyTorch's compiler takes functions that write to their inputs.
# Happens: with backend "aot_eager", whose partitioner is the minimum cut that Inductor has, too, the
# call works and the backward pass raises a RuntimeError: a variable needed for it "has been modified
# by an inplace operation". The cut saves the input, which is written to between the passes, and not
# its copy in the graph. With "aot_eager_default_partitioner" gradients are eager's.
# Seen with: torch 2.13.0 (CPU), and 2.9.1; 2.15.0 trains. Python 3.11; 2026-11-30.
# Matters: the error comes a step later than the compiled function, and names no line of it.
# Handled in: aoe/torch/modules/training/partitions.py (the copy is saved).
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
export PIP_EXTRA_INDEX_URL="https://download.pytorch.org/whl/cpu"  # without it, CUDA comes along
venv/bin/python -m pip install --quiet --no-compile numpy==2.4.6 torch==2.13.0
OMP_NUM_THREADS=1 venv/bin/python -W ignore - <<'PY'
import sys

import torch
import torch.nn.functional as F


def function(x, weight):
    return F.silu(x.clone(), inplace=True) + x.mul_(2) * weight


def gradients(backend):
    """Return the gradients by a backend, eager's without one, or what the backward pass raises."""
    torch.compiler.reset()
    torch.manual_seed(0)
    leaf, weight = (torch.randn(4, 8, requires_grad=True) for _ in range(2))
    call = torch.compile(function, backend=backend) if backend else function
    loss = call(leaf * 1.0, weight).sum()
    try:
        loss.backward()
    except RuntimeError as error:
        return str(error)
    return leaf.grad, weight.grad


def are_equal(found, expected):
    return not isinstance(found, str) and all(map(torch.allclose, found, expected))


print("torch", torch.__version__)
eager = gradients(None)
cut, default = gradients("aot_eager"), gradients("aot_eager_default_partitioner")
print("minimum cut:", cut if isinstance(cut, str) else "gradients")
seen = {
    "eager trains": not isinstance(eager, str),
    "the minimum cut raises": isinstance(cut, str) and "modified by an inplace operation" in cut,
    "the default partitioner has eager's gradients": are_equal(default, eager),
}
changed = [what for what, holds in seen.items() if not holds]
sys.exit("behaviour changed, no longer true: " + "; ".join(changed) if changed else 0)
PY
