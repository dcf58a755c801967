#!/usr/bin/env bash
# Expected: deepdiff says of two NaN always that they differ, or always that they are equal.
# Happens: who has parsed them decides. Two documents read by json are equal, since the parser
# hands out one object for every NaN; one sent through pickle, or the same two documents read by
# msgpack, differ. `ignore_nan_inequality=True` makes all equal, whatever they came through.
# Seen with: deepdiff 9.1.0, msgpack 1.2.4, Python 3.11; 2026-11-28.
# Matters: a diff of a bank shows a change of a record that nobody made after a round through
# another process, and none in the same data read again.
# Handled in: aoebank/diffing/fields.py (compares fields itself; deepdiff aligns lists alone).
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/python -m pip install --quiet --no-compile deepdiff==9.1.0 msgpack==1.2.4
venv/bin/python -W ignore - <<'PY'
import copy
import json
import pickle
import sys
from importlib.metadata import version

import msgpack
from deepdiff import DeepDiff

text = '{"time": NaN}'
record = json.loads(text)
packed = msgpack.packb(record)
pairs = {
    "json, read twice": (record, json.loads(text)),
    "deep copy": (record, copy.deepcopy(record)),
    "through pickle": (record, pickle.loads(pickle.dumps(record))),
    "msgpack, read twice": (msgpack.unpackb(packed), msgpack.unpackb(packed)),
}
print("deepdiff", version("deepdiff"))
found = {}
for name, (one, other) in pairs.items():
    found[name] = not DeepDiff(one, other)
    told = not DeepDiff(one, other, ignore_nan_inequality=True)
    print(f"{name}: equal {found[name]}; with ignore_nan_inequality {told}")
    if not told:
        sys.exit(f"behaviour changed: {name} differs with ignore_nan_inequality")

expected = dict(zip(pairs, (True, True, False, False)))
sys.exit(f"behaviour changed: got {found}, expected {expected}" if found != expected else 0)
PY
