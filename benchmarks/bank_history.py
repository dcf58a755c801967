"""Measure snapshots of a synthetic bank: the first, none needed, one per cent changed, read back.

    python benchmarks/bank_history.py --format unified --records 100000 --files 4 DIRECTORY

The directory is left with the bank in it.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from make_bank import LAYOUTS, make_bank

from aoebank.history.snapshot import record_bank
from aoebank.model.snapshot import Author
from aoebank.storage.history.database import history_path
from aoebank.storage.sides.snapshots import open_snapshot_side

CHANGED = 100  # one line in so many


def change_some(files: list[Path], rng: Random) -> None:
    """Give one record in a hundred another time or strategy, on the line it is on."""
    for file in files:
        lines = file.read_bytes().split(b"\n")
        for number in rng.sample(range(1, len(lines) - 2), max(1, len(lines) // CHANGED)):
            line = lines[number]
            for old, new in ((b'"tile": ', b'"tile": 1'), (b'Num":', b'Num":1')):
                line = line.replace(old, new)
            lines[number] = line
        file.write_bytes(b"\n".join(lines))


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("root", type=Path)
    parser.add_argument("--format", choices=[*LAYOUTS], required=True)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--files", type=int, default=1)
    given = parser.parse_args()
    files = make_bank(given.root, given.format, records=given.records, files=given.files)
    bank_bytes = sum(file.stat().st_size for file in files)
    author = Author(who="benchmark", now=datetime.now(UTC), machine={})

    def step(name: str, act: Callable[[], object]) -> None:
        start, cpu = time.perf_counter(), time.process_time()
        act()
        wall, used = time.perf_counter() - start, time.process_time() - cpu
        history_mb = history_path(given.root).stat().st_size / 1e6
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{name:<20} {wall:8.2f} s  {used:8.2f} s CPU  peak {peak_mib:6.0f} MiB  "
            f"bank {bank_bytes / 1e6:.1f} MB  history {history_mb:.1f} MB"
        )

    step("first snapshot", lambda: record_bank(given.root, author, message="1"))
    step("nothing changed", lambda: record_bank(given.root, author, message="2"))
    change_some(files, Random(1))
    step("1 % changed", lambda: record_bank(given.root, author, message="3"))
    side = open_snapshot_side("latest~1", root=given.root)
    step("first read back", lambda: [side.read(name) for name in side.contents.values()])


if __name__ == "__main__":
    main()
