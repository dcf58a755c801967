#!/usr/bin/env bash
# Expected: a cache file of Kernel Tuner answers for the kernel it was made with; a changed source
# is tuned again.
# Happens: the cache holds device, name of the kernel, problem size and parameters, but neither
# the source nor the compiler options. Another source of the same name gets the old times, and a
# source that does not compile is "tuned" with them without a message.
# Seen with: kernel_tuner 1.5.0, C backend, gcc, Python 3.11; 2026-11-28. Needs gcc.
# Matters: caches that are merged or committed as banks answer for kernels that no longer exist.
# Handled in: aoebank/formats/kernel_tuner/format.py (AB319): a cache that says neither is told, and
# caches that say another source or compiler in their head are not merged.
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/python -m pip install --quiet --no-compile numpy==2.4.6 kernel-tuner==1.5.0
venv/bin/python -W ignore - <<'PY'
import json
import sys
from importlib.metadata import version

import numpy as np
from kernel_tuner import tune_kernel


def tuned(body, cache, options=()):
    source = 'extern "C" float scale(float *a, int n) { %s }' % body
    results, _ = tune_kernel(
        "scale",
        source,
        8,
        [np.zeros(8, np.float32), np.int32(8)],
        {"block": [1, 2]},
        lang="C",
        compiler="gcc",
        compiler_options=list(options),
        iterations=1,
        cache=cache,
        quiet=True,
    )
    return [float(result["time"]) for result in results]


found = {
    "slower with a larger block": tuned("return block;", "cache.json"),
    "faster with a larger block": tuned("return 100.0f / block;", "cache.json", ["-O1"]),
    "no C at all": tuned("this does not compile", "cache.json"),
    "faster with a larger block, new cache": tuned("return 100.0f / block;", "new.json", ["-O1"]),
}
with open("cache.json") as file:
    head = sorted(set(json.load(file)) - {"cache"})
print("kernel_tuner", version("kernel_tuner"))
for source, times in found.items():
    print(f"{source}: times of blocks 1, 2: {times}")
print("head of the cache:", head)

expected = [[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [100.0, 50.0]]
got = list(found.values())
sys.exit(f"behaviour changed: times {got}, expected {expected}" if got != expected else 0)
PY
