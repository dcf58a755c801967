"""Measure how long a bank takes to load, and how much memory.

    python benchmarks/bank_load.py [--format NAME] [--records N] [--files N] [--check] [BANK]

Without BANK a synthetic one is written to a temporary folder first. Loading means: read every
file, find every record, compute its identity; all files stay in memory. `--check` looks for
findings too. Times are wall-clock seconds of one run in this process, page cache warm.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path
from random import Random
from statistics import median

from make_bank import LAYOUTS, make_bank

from aoebank import Bank
from aoebank.formats.protocol import ParsedFile
from aoebank.storage.bank import load_file

LOOK_UPS = 20_000


def load(paths: list[Path]) -> list[ParsedFile]:
    """Return all files with the identities of their records."""
    return [load_file(path) for path in paths]


def look_up_us(files: list[ParsedFile]) -> float:
    """Return the median time of finding a record's place by its key, microseconds."""
    rng = Random(0)
    keys = []
    for _ in range(LOOK_UPS if any(map(len, files)) else 0):
        file = rng.choice([parsed for parsed in files[:50] if len(parsed)])
        keys.append((file, rng.choice(file.keys)))
    samples = []
    for file in files[:50]:
        file.find("")  # the first look-up builds the table
    for file, key in keys:
        start = time.perf_counter_ns()
        file.find(key)
        samples.append((time.perf_counter_ns() - start) / 1000)
    return median(samples) if samples else 0.0


def measure(paths: list[Path], *, check: bool) -> None:
    """Load the files and print what it took."""
    size = sum(path.stat().st_size for path in paths)
    for path in paths:
        path.read_bytes()
    start = time.perf_counter()
    files = load(paths)
    seconds = time.perf_counter() - start
    records = sum(map(len, files))
    print(f"{records} records, {len(files)} files, {size / 1e6:.1f} MB")
    print(f"load        {seconds:.3f} s  ({1e6 * seconds / max(records, 1):.2f} us per record)")
    print(f"look-up     {look_up_us(files):.2f} us (median)")
    if check:
        start = time.perf_counter()
        findings = sum(
            len(file.findings) + sum(1 for _ in file.format.check(file)) for file in files
        )
        print(f"check       {time.perf_counter() - start:.3f} s, {findings} findings")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


def main() -> None:
    """Measure the bank the command line names, or a synthetic one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("bank", type=Path, nargs="?")
    parser.add_argument("--format", choices=[*LAYOUTS], default="runtime_kb")
    parser.add_argument("--records", type=int, default=4397)
    parser.add_argument("--files", type=int, default=1)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    if given.bank is not None:
        measure([*Bank(given.bank).iter_files()], check=given.check)
        return
    with tempfile.TemporaryDirectory() as folder:
        paths = make_bank(Path(folder), given.format, records=given.records, files=given.files)
        measure(paths, check=given.check)


if __name__ == "__main__":
    main()
