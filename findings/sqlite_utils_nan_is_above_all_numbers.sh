#!/usr/bin/env bash
# Expected: sqlite-utils stores a nan in a column of floats in one way, whether it comes from
# Python or from a CSV file.
# Happens: from Python it is NULL, which MAX and comparisons pass over. From CSV the column is
# detected as floats and declared REAL, yet `nan` and `inf` are stored as text, and SQLite sorts
# text above every number: MAX(time) is the text nan, and `time > 1000000` finds both rows.
# Seen with: sqlite-utils 4.2.1, Python 3.11; 2026-11-28.
# Matters: the slowest or fastest record of a table of measurements is one without a measurement.
# Handled in: aoebank/reading/query.py makes its tables itself; times of records are finite
# (aoebank/model/record.py).
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/python -m pip install --quiet --no-compile sqlite-utils==4.2.1
venv/bin/python -W ignore - <<'PY'
import csv
import subprocess
import sys
from importlib.metadata import version

import sqlite_utils

ROWS = [("a", 3.5), ("b", float("nan")), ("c", 2.5), ("d", float("inf"))]
LARGEST = "SELECT name, time, typeof(time) AS type FROM times ORDER BY time DESC LIMIT 1"
ABOVE = "SELECT group_concat(name, ' ') AS names FROM times WHERE time > 1000000"

python = sqlite_utils.Database("python.db")
python["times"].insert_all({"name": name, "time": time} for name, time in ROWS)

with open("times.csv", "w", newline="") as file:
    csv.writer(file).writerows([("name", "time"), *ROWS])
command = [
    sys.executable,
    "-m",
    "sqlite_utils",
    "insert",
    "table.db",
    "times",
    "times.csv",
    "--csv",
]
subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
table = sqlite_utils.Database("table.db")

print("sqlite-utils", version("sqlite-utils"))
found = {}
for source, database in (("Python", python), ("CSV", table)):
    largest, above = next(database.query(LARGEST)), next(database.query(ABOVE))["names"]
    declared = database["times"].columns_dict["time"].__name__
    nan = next(database.query("SELECT typeof(time) AS type FROM times WHERE name = 'b'"))["type"]
    found[source] = (declared, nan, largest["name"], largest["type"], above)
    print(
        f"{source}: column of {declared}, nan is {nan}, largest {largest}, above a million: {above}"
    )

expected = {
    "Python": ("float", "null", "d", "real", "d"),
    "CSV": ("float", "text", "b", "text", "b d"),
}
sys.exit(f"behaviour changed: got {found}, expected {expected}" if found != expected else 0)
PY
