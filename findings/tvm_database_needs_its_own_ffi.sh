#!/usr/bin/env bash
# Expected: a MetaSchedule database takes a workload with the packages pip installs for TVM.
# Happens: pip installs apache-tvm-ffi 0.1.15 beside apache-tvm 0.27.0, and committing a workload to
# a database ends the process (segmentation fault in ToJSONGraph); the file stays empty. TVM 0.25.0
# does not even load with it, and writes databases with apache-tvm-ffi 0.1.12.
# Seen with: apache-tvm 0.27.0.post1, apache-tvm-ffi 0.1.15.post2, Python 3.11; 2026-11-29.
# Matters: a bank left empty by a crash looks like one that was just made.
# Handled in: aoebank/formats/metaschedule/format.py: a database of no bytes is an error (AB110), so
# that a merge never takes its records for removed.
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/python -m pip install --quiet --no-compile apache-tvm==0.27.0.post1 apache-tvm-ffi==0.1.15.post2
cat > commit.py <<'PY'
import os

import tvm
from tvm import te
from tvm.s_tir import meta_schedule

a = te.placeholder((8, 8), name="a")
b = te.compute((8, 8), lambda i, j: a[i, j] + 1, name="b")
os.makedirs("database")
database = meta_schedule.database.JSONDatabase(work_dir="database")
database.commit_workload(tvm.IRModule({"main": te.create_prim_func([a, b])}))
PY
status=0
venv/bin/python -W ignore commit.py > log 2>&1 || status=$?
venv/bin/python -m pip list 2> /dev/null | grep tvm
echo "exit status $status, $(wc -c < database/database_workload.json) bytes of workloads"
if [[ $status -ne 139 && $status -ne 134 ]] || [[ -s database/database_workload.json ]]; then
  tail -3 log
  echo "behaviour changed: the process did not end in a fault" >&2
  exit 1
fi
