#!/usr/bin/env bash
# Expected: a configuration whose measurement is NaN is never the best one.
# Happens: Kernel Tuner takes the minimum in order. A NaN that is measured first stays the
# minimum, since nothing is less than it; measured later it is passed over. Its own observers
# return NaN where a counter cannot be read. The same measurements give two winners.
# Seen with: kernel_tuner 1.5.0, C backend, gcc, Python 3.11; 2026-11-28. Needs gcc.
# Matters: the winner goes into a bank. Its time compares as neither faster nor slower than a
# later one, so a merge that keeps the faster record may never replace it.
# Handled in: aoe/tuner/search/protocol.py (`Trial`), aoebank/model/record.py (finite times only),
# aoebank/formats/kernel_tuner/format.py and t4/format.py (AB415).
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/python -m pip install --quiet --no-compile numpy==2.4.6 kernel-tuner==1.5.0
venv/bin/python -W ignore - <<'PY'
import sys
from importlib.metadata import version

import numpy as np
from kernel_tuner import tune_kernel

SOURCE = """
#include <math.h>
extern "C" float scale(float *a, int n) { return block == 1 ? NAN : (float)block; }
"""


def best(blocks):
    _, environment = tune_kernel(
        "scale",
        SOURCE,
        8,
        [np.zeros(8, np.float32), np.int32(8)],
        {"block": blocks},
        lang="C",
        compiler="gcc",
        iterations=1,
        quiet=True,
    )
    chosen = environment["best_config"]
    return chosen["block"], float(chosen["time"])


print("kernel_tuner", version("kernel_tuner"))
first, later = best([1, 2, 4]), best([4, 2, 1])
print("block 1 measures NaN, blocks 2 and 4 measure 2 and 4")
print("order 1, 2, 4: best is block {}, time {}".format(*first))
print("order 4, 2, 1: best is block {}, time {}".format(*later))
holds = first[0] == 1 and np.isnan(first[1]) and later == (2, 2.0)
sys.exit(
    0 if holds else f"behaviour changed: got {first} and {later}, expected (1, nan) and (2, 2.0)"
)
PY
