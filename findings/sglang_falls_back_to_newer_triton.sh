#!/usr/bin/env bash
# Expected: without a file for the installed Triton, SGLang's look-up of fused-MoE configurations
# takes one of an older version, which this Triton can be expected to run as well.
# Happens: it takes the newest folder there is, whatever is installed. An installation of Triton
# 3.1.0 is given the configuration tuned with 3.5.1, though one of 3.2.0 lies beside it.
# Seen with: sglang 0.5.23 (functions of its wheel, run with stand-ins for torch and triton), Python
# 3.11; 2026-11-29.
# Matters: strategies of a newer compiler may be slower or not compile; 234 of the names that
# SGLang ships have no file in triton_3_1_0 and one in a newer folder.
# Handled in: aoebank/validation/targets.py (AB522).
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
PIP_NO_DEPS=1 venv/bin/python -m pip install --quiet --no-compile sglang==0.5.23
venv/bin/python -W ignore - <<'PY'
import ast
import functools
import json
import logging
import os
import sys
from importlib.metadata import distribution, version
from types import SimpleNamespace
from typing import Any, Dict, List, Optional

NAMES = {"get_config_file_name", "get_moe_configs"}
files = distribution("sglang").files
(path,) = (file.locate() for file in files if file.name == "fused_moe_triton_config.py")
tree = ast.parse(path.read_text())
tree.body = [
    node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in NAMES
]
off = SimpleNamespace(deterministic=SimpleNamespace(enable_deterministic_inference=False))
scope = {
    "Any": Any,
    "Dict": Dict,
    "List": List,
    "Optional": Optional,
    "__file__": str(path),
    "functools": functools,
    "get_device_name": lambda: "NVIDIA H200",
    "get_exec": lambda: off,
    "json": json,
    "logger": logging.getLogger("sglang"),
    "os": os,
    "triton": SimpleNamespace(__version__="3.1.0"),
}
exec(compile(tree, str(path), "exec"), scope)

name = scope["get_config_file_name"](8, 512, None)
for release in ("3_2_0", "3_5_1"):
    place = os.path.join("configs", f"triton_{release}")
    os.makedirs(place)
    with open(os.path.join(place, name), "w") as file:
        json.dump({"1": {"made with": release}}, file)
os.environ["SGLANG_MOE_CONFIG_DIR"] = os.getcwd()
logging.disable(logging.CRITICAL)
found = scope["get_moe_configs"](8, 512, None)[1]["made with"]
print("sglang", version("sglang"))
print(f"installed: triton 3.1.0; files of 3.2.0 and 3.5.1; taken: {found.replace('_', '.')}")
sys.exit(0 if found == "3_5_1" else f"behaviour changed: got {found}, expected 3_5_1")
PY
