#!/usr/bin/env bash
# Expected: in aiter's list of tuned MoE layers the time of a row is the sum of its two stages, and
# the fastest row is one that was measured.
# Happens: one row slipped by a column behind the second stage. Its time is 0.0, and the measured
# sum, 419 us, stands under the flag of one-stage kernels, where any number but 0 counts as set. The
# table's own tuner sorts by time and keeps the first, so the row would win against any other.
# Seen with: amd-aiter 0.1.7.post2.dev18 (its list, without PyTorch), pandas 3.1.1, Python 3.11;
# 2026-11-29.
# Matters: a merge by time keeps such a row for ever, and a reader takes it for a one-stage kernel.
# Handled in: aoebank/formats/aiter/format.py (AB220, AB402): a value that cannot belong under its
# column is an error, and a time of 0 is none.
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/python -m pip install --quiet --no-compile pandas==3.1.1
PIP_NO_DEPS=1 venv/bin/python -m pip install --quiet --no-compile amd-aiter==0.1.7.post2.dev18
venv/bin/python -W ignore - <<'PY'
import sys
from importlib.metadata import distribution, version

import pandas

place = distribution("amd-aiter").locate_file("aiter/configs/tuned_fmoe.csv")
table = pandas.read_csv(place)
print("amd-aiter", version("amd-aiter"), "pandas", pandas.__version__)
fastest = table.loc[table["us"].idxmin()]
stages = fastest["us1"] + fastest["us2"]
print(f"{len(table)} rows; the fastest is line {fastest.name + 2}, {fastest['us']} us")
print(f"its stages take {stages:.1f} us, its flag run_1stage is {fastest['run_1stage']}")
others = table.drop(fastest.name)
flags = sorted(set(others["run_1stage"]))
print(f"flags of the other rows: {flags}, least time {others['us'].min()} us")
holds = fastest["us"] == 0 and int(stages) == fastest["run_1stage"] and flags == [0, 1]
sys.exit(0 if holds else "behaviour changed: the fastest row is none that slipped")
PY
