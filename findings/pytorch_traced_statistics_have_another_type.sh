#!/usr/bin/env bash
# Expected: a graph of AOTAutograd says of each value which type it has when the graph runs.
# Happens: under autocast on the CPU, the saved mean and standard deviation of LayerNorm, GroupNorm
# and BatchNorm are bfloat16 in the graph and float32 in the call. Operators that read them in the
# backward pass take both, so nothing fails.
# Seen with: torch 2.13.0 (CPU), Python 3.11; 2026-11-29.
# Matters: a compiler that lays out memory by the types of the graph reads two numbers as one.
# Handled in: aoe/torch/modules/training/regions.py (types and strides come from the tensors).
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
export PIP_EXTRA_INDEX_URL="https://download.pytorch.org/whl/cpu"  # without it, CUDA comes along
venv/bin/python -m pip install --quiet --no-compile numpy==2.4.6 torch==2.13.0
venv/bin/python -W ignore - <<'PY'
import sys

import torch
from torch._functorch.aot_autograd import aot_module_simplified

pairs = []


def compile_forward(graph_module, example_inputs):
    (results,) = graph_module.graph.output_node().args
    promised = [node.meta["val"].dtype for node in results if isinstance(node, torch.fx.Node)]

    def call(*arguments):
        made = graph_module(*arguments)
        real = [value.dtype for value in made if isinstance(value, torch.Tensor)]
        pairs.extend(zip(promised, real, strict=True))
        return made

    return call


def backend(graph_module, example_inputs):
    return aot_module_simplified(
        graph_module, example_inputs, fw_compiler=compile_forward, bw_compiler=compile_forward
    )


def apart(module, rows):
    """Return the promised and real types of results that are not what the graph says."""
    pairs.clear()
    torch.compiler.reset()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.compile(module, backend=backend)(rows)
    return [(promised, real) for promised, real in pairs if promised is not real]


images, convolution = torch.randn(2, 3, 8, 8), torch.nn.Conv2d(3, 4, 3)
cases = {
    "LayerNorm": (
        torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)),
        torch.randn(4, 8),
    ),
    "GroupNorm": (torch.nn.Sequential(convolution, torch.nn.GroupNorm(2, 4)), images),
    "BatchNorm": (torch.nn.Sequential(convolution, torch.nn.BatchNorm2d(4)), images),
}
print("torch", torch.__version__)
seen = {}
for name, (module, rows) in cases.items():
    found = apart(module, rows)
    print(f"{name}: promised and real:", found)
    expected = [(torch.bfloat16, torch.float32)] * 2
    seen[f"two statistics of {name} are promised as bfloat16 and are float32"] = found == expected
changed = [what for what, holds in seen.items() if not holds]
sys.exit("behaviour changed, no longer true: " + "; ".join(changed) if changed else 0)
PY
