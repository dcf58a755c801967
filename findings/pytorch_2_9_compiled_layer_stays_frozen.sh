#!/usr/bin/env bash
# Expected: torch.compile guards on requires_grad of parameters: after `requires_grad_(True)` on a
# layer that was frozen at the first call, the compiled module is compiled anew and trains it.
# Happens: with AOTAutograd behind it (backend "aot_eager"; "eager" is right) the layer stays frozen:
# its gradients are None at every further step, without an error or a warning.
# Seen with: torch 2.9.1 (CPU); 2.13.0 trains it. Python 3.11; 2026-11-30.
# Matters: whoever thaws layers in the middle of a fine-tuning trains fewer than they think.
# Handled in: nowhere; docs/pytorch.md says so of 2.9.
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
export PIP_EXTRA_INDEX_URL="https://download.pytorch.org/whl/cpu"  # without it, CUDA comes along
venv/bin/python -m pip install --quiet --no-compile numpy==2.4.6 torch==2.9.1
OMP_NUM_THREADS=1 venv/bin/python -W ignore - <<'PY'
import sys

import torch
from torch import nn


def trained(backend):
    """Return, for two steps with the layer frozen and two without, whether it has a gradient."""
    torch.compiler.reset()
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU())
    compiled = torch.compile(model, backend=backend)
    found = []
    for is_trained in (False, False, True, True):
        model.zero_grad()
        model[1].requires_grad_(is_trained)
        compiled(torch.randn(4, 8)).sum().backward()
        found.append(model[1].weight.grad is not None)
    return found


print("torch", torch.__version__)
traced, differentiated = trained("eager"), trained("aot_eager")
print(f"eager {traced}, aot_eager {differentiated}")
seen = {
    "without AOTAutograd the layer is trained once it is thawed": traced == [False] * 2 + [True] * 2,
    "with it the layer has no gradient": differentiated == [False] * 4,
}
changed = [what for what, holds in seen.items() if not holds]
sys.exit("behaviour changed, no longer true: " + "; ".join(changed) if changed else 0)
PY
