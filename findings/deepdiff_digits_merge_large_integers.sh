#!/usr/bin/env bash
# Expected: `significant_digits` of deepdiff is about digits behind the point of floats; two
# different integers stay different.
# Happens: integers are written out as floats first. From 2^53 on neighbours become one number,
# and the difference is not reported, not even with 20 digits. Without the option it is.
# Seen with: deepdiff 9.1.0, Python 3.11; 2026-11-28.
# Matters: with a tolerance for times, a diff of records passes over changed 64-bit seeds, hashes
# and byte counts beside them.
# Handled in: aoebank/diffing/fields.py (compares fields itself; deepdiff aligns lists alone).
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/python -m pip install --quiet --no-compile deepdiff==9.1.0
venv/bin/python -W ignore - <<'PY'
import sys
from importlib.metadata import version

from deepdiff import DeepDiff

SEED = 2**53
print("deepdiff", version("deepdiff"))
found = {}
for digits in (None, 5, 20):
    diff = DeepDiff({"seed": SEED}, {"seed": SEED + 1}, significant_digits=digits)
    small = DeepDiff({"seed": 2}, {"seed": 3}, significant_digits=digits)
    found[digits] = (bool(diff), bool(small))
    print(
        f"significant_digits={digits}: 2^53 and 2^53 + 1: {diff or 'equal'}; "
        f"2 and 3: {small or 'equal'}"
    )

expected = {None: (True, True), 5: (False, True), 20: (False, True)}
sys.exit(f"behaviour changed: got {found}, expected {expected}" if found != expected else 0)
PY
