"""Measure what questions to a large bank cost, beside `aoebank ls` and a count in plain Python.

    python benchmarks/bank_query.py [--format NAME] [--records N] [--files N]

Writes a synthetic bank to a temporary folder. Each question is a process of its own; its figure is
CPU seconds, those of its own processes included, the lowest of three runs, page cache warm.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from make_bank import LAYOUTS, make_bank

RUNS = 3
PLAIN_PYTHON = """
import collections, json, pathlib, sys
found = collections.Counter()
for path in pathlib.Path(sys.argv[1]).rglob("*.json"):
    with path.open() as stream:
        if sys.argv[2] == "unified":
            found[path.name.rpartition("_")[2]] += len(json.load(stream))
        else:
            found.update(json.loads(line)["op"] for line in stream if line.strip())
print(found)
"""
QUERIES = (
    "SELECT op_type, count(*) FROM records GROUP BY op_type",
    "SELECT soc_version, count(DISTINCT key) FROM records GROUP BY soc_version",
    "SELECT op_type, median(cost_us) FROM records GROUP BY op_type",
    "SELECT count(DISTINCT strategy_sha256) FROM records",
)


def cpu_s(command: Sequence[str]) -> float:
    """Return the CPU seconds of a command, the lowest of some runs."""
    return min(_run(command) for _ in range(RUNS))


def _run(command: Sequence[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print a line per question."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--format", choices=[*LAYOUTS], default="unified")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=20)
    given = parser.parse_args()
    aoebank = [sys.executable, "-m", "aoebank"]
    with tempfile.TemporaryDirectory() as folder:
        make_bank(Path(folder), given.format, records=given.records, files=given.files)
        questions = {
            "plain Python, GROUP BY op_type": [sys.executable, "-c", PLAIN_PYTHON],
            "aoebank ls": [*aoebank, "ls"],
            **{query: [*aoebank, "query", query] for query in QUERIES},
            "aoebank stats": [*aoebank, "stats"],
        }
        for name, command in questions.items():
            format_ = [given.format] if command[1] == "-c" else []
            print(f"{cpu_s([*command, folder, *format_]):6.2f} s  {name}", flush=True)


if __name__ == "__main__":
    main()
