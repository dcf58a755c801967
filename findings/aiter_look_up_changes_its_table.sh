#!/usr/bin/env bash
# Expected: a look-up of a tuned configuration gives what the file says for a shape, whichever
# shapes were looked up before.
# Happens: aiter's look-up for products of fp8 by fp4 adapts the configuration to K in place: it
# writes into the table it keeps of the file, and all shapes of a class share the row. The first K
# that does not divide evenly takes the parts K is split into from 4 down to 1, and every later K
# gets 1, though it has 4 when it is asked for first. What was handed out before changes as well,
# since the same object comes out of the cache of look-ups.
# Seen with: amd-aiter 0.1.7.post2.dev18 (functions of its wheel, run with a stand-in for triton),
# Python 3.11; 2026-11-29.
# Matters: speed and the order of sums of a product depend on which products ran before it in the
# process; a benchmark of one shape measures another configuration than a model uses.
# Handled in: not needed; a record is a value that nothing writes into (aoebank/model/record.py).
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
PIP_NO_DEPS=1 venv/bin/python -m pip install --quiet --no-compile amd-aiter==0.1.7.post2.dev18
venv/bin/python -W ignore - <<'PY'
import ast
import functools
import json
import os
import sys
from importlib.metadata import distribution, version
from types import SimpleNamespace

NAMES = {"_get_config", "_get_splitk"}
package = distribution("amd-aiter")
path = package.locate_file("aiter/ops/triton/_triton_kernels/gemm_a8wfp4.py")
configs = package.locate_file("aiter/ops/triton/configs")


def look_up():
    """Return the functions as a process finds them that has looked nothing up."""
    tree = ast.parse(open(path).read())
    tree.body = [
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in NAMES
    ]
    scope = {
        "AITER_TRITON_CONFIGS_PATH": str(configs),
        "arch_info": SimpleNamespace(get_device=lambda: "MI350X"),
        "functools": functools,
        "json": json,
        "os": os,
        "triton": SimpleNamespace(cdiv=lambda a, b: -(-a // b)),
    }
    exec(compile(tree, str(path), "exec"), scope)
    return scope["_get_config"]


def parts(get, k):
    return get(16, 4096, k)["NUM_KSPLIT"]


print("amd-aiter", version("amd-aiter"))
fresh = {k: parts(look_up(), k) for k in (8192, 2304)}
get = look_up()
before = parts(get, 8192)
other = parts(get, 2304)
again = parts(get, 8192)  # out of the cache of look-ups
get = look_up()
parts(get, 2304)
behind = parts(get, 8192)
print(f"parts of K, each asked for first: {fresh}")
print(f"K = 8192, then 2304, then 8192 again: {before}, {other}, {again}")
print(f"K = 8192 behind 2304: {behind}")
found = (fresh[8192], fresh[2304], before, again, behind)
sys.exit(0 if found == (4, 1, 4, 1, 1) else f"behaviour changed: got {found}")
PY
