#!/usr/bin/env bash
# Expected: the tactics that FlashInfer ships for B200 and GB200 are used on these GPUs.
# Happens: its look-up makes a key of four fields (operator, runner, shapes, extras) and compares the
# text. All 92 keys it ships have three, so none is ever found, and the default tactic runs.
# Seen with: flashinfer-python 0.7.2 (its own key class, run without torch), Python 3.11; 2026-11-29.
# Matters: a bank that outlived a change of its reader looks whole, and costs its users the gain.
# Handled in: aoebank/formats/flashinfer/format.py (AB313).
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
PIP_NO_DEPS=1 venv/bin/python -m pip install --quiet --no-compile flashinfer-python==0.7.2
venv/bin/python -W ignore - <<'PY'
import ast
import runpy
import sys
from dataclasses import dataclass
from importlib.metadata import distribution, version
from typing import Any

wheel = distribution("flashinfer-python")
tree = ast.parse(wheel.locate_file("flashinfer/autotuner/autotuner.py").read_text())
tree.body = [node for node in tree.body if getattr(node, "name", "") == "ProfilingCacheKey"]
scope = {"Any": Any, "dataclass": dataclass}
exec(compile(tree, "autotuner.py", "exec"), scope)
shapes = ((1, 3584), (256, 512, 448), (0,), (256, 7168, 16), (0,))
asked = scope["ProfilingCacheKey"]("trtllm::fused_moe::gemm1", "MoERunner", 0, shapes, ())
fields = len(ast.literal_eval(asked.file_key))
print("flashinfer-python", version("flashinfer-python"))
shipped = {}
for gpu in ("B200", "GB200"):
    name = f"flashinfer/tuning_configs/v0_1_trtllm_fused_moe_NVIDIA_{gpu}.py"
    shipped.update(runpy.run_path(str(wheel.locate_file(name)))["best_configs"])
lengths = sorted({len(ast.literal_eval(key)) for key in shipped})
print(f"the look-up asks with {fields} fields; the keys of {len(shipped)} tactics have {lengths}")
print(f"asked for: {asked.file_key}\nfound: {asked.file_key in shipped}")
holds = fields == 4 and lengths == [3] and asked.file_key not in shipped
sys.exit(0 if holds else "behaviour changed: shipped keys have the fields of the look-up")
PY
