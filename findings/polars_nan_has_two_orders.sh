#!/usr/bin/env bash
# Expected: in polars a NaN counts in the same way everywhere, or `time == time` filters it out as
# in NumPy, pandas and IEEE 754.
# Happens: two orders in one library. Comparisons, `top_k`, `sort` and `median` take NaN for the
# largest number, equal to itself: `time == time` keeps it, `time > 1e6` finds it. `max`, `min`
# and `arg_max` pass over it, so the largest element is not the one that `top_k(1)` gives.
# Seen with: polars 2.1.0, Python 3.11; 2026-11-28.
# Matters: the usual test for a NaN keeps failed measurements in a table of times, and the median
# of samples moves.
# Handled in: not needed; samples are Python floats (aoe/measurement/samples.py).
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/python -m pip install --quiet --no-compile polars==2.1.0
venv/bin/python -W ignore - <<'PY'
import sys

import polars as pl

frame = pl.DataFrame({"name": ["a", "b", "c"], "time": [float("nan"), 1.0, 2.0]})
time = pl.col("time")
found = {
    "time == time": frame.filter(time == time)["name"].to_list(),
    "time > 1e6": frame.filter(time > 1e6)["name"].to_list(),
    "top_k(1)": frame.top_k(1, by="time")["name"].to_list(),
    "sort": frame.sort("time")["name"].to_list(),
    "median": frame["time"].median(),
    "max": frame["time"].max(),
    "arg_max": frame["time"].arg_max(),
}
print("polars", pl.__version__, "times a: NaN, b: 1, c: 2")
for what, value in found.items():
    print(f"{what}: {value}")

expected = {
    "time == time": ["a", "b", "c"],
    "time > 1e6": ["a"],
    "top_k(1)": ["a"],
    "sort": ["b", "c", "a"],
    "median": 2.0,
    "max": 2.0,
    "arg_max": 2,
}
sys.exit(f"behaviour changed: got {found}, expected {expected}" if found != expected else 0)
PY
