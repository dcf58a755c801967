"""Measure how long `aoebank diff` and `aoebank merge` take, and how much memory.

    python benchmarks/bank_diff_merge.py [--formats NAME...] [--records N...] [--json FILE]

For each format and size three banks are written. The second one has a tenth of the records of
the first one changed, a hundredth removed and a hundredth added; the third one has another tenth
changed, and one record in a thousand that the second one changed too, in another way. A bank has
one file per 50,000 records, each for a target of its own, as large banks have. Measured are whole
commands, start of Python included, page cache warm: wall-clock seconds of the fastest of
`--repeat` runs, and the peak memory of the largest process. The two-way merge of formats without
times takes theirs. Writes Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

from make_bank import LAYOUTS, make_bank

from aoebank.formats.text.splice import splice_raw
from aoebank.storage.bank import load_file

RECORDS_PER_FILE = 50_000
NUMBER = {  # a number in the answer of a record, to change it
    "runtime_kb": re.compile(rb'"baseM":()'),
    "unified": re.compile(rb'"tile": ()'),
    "cube": re.compile(rb'"tiling": \[()'),
    "vector": re.compile(rb"\[251, ()"),
    "graph": re.compile(rb'"end2EndTime":()'),
    "gradient": re.compile(rb'"gradientTime":\[()'),
}
TIMED = ("unified", "cube", "vector")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One command measured.

    Attributes:
        size_mb: Of the first two banks together, 10^6 bytes.
    """

    format: str
    records: int
    files: int
    size_mb: float
    command: str
    seconds: float
    peak_mib: float


def make_banks(root: Path, name: str, records: int, files: int) -> None:
    """Write the three banks."""
    banks = [root / letter for letter in "abc"]
    for path in make_bank(banks[0], name, records=records, files=files):
        for bank, data in zip(banks, versions_of(path, name), strict=True):
            target = bank / path.relative_to(banks[0])
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)


def versions_of(path: Path, name: str) -> Iterator[bytes]:
    """Yield the three versions of a file; what the first lacks is taken out of it."""
    parsed = load_file(path)
    numbers = range(len(parsed))

    def changed(text: bytes, wanted: Callable[[int], bool]) -> dict[int, bytes]:
        return {
            number: NUMBER[name].sub(rb"\g<0>" + text, parsed.raw(number), count=1)
            for number in numbers
            if wanted(number)
        }

    added = {number for number in numbers if number % 100 == 77}
    removed = {number for number in numbers if number % 100 == 55}
    in_b = changed(b"1", lambda number: number % 10 == 3)
    in_c = changed(b"2", lambda number: number % 10 == 6 or number % 1000 == 3)
    for replaced, gone in (({}, added), (in_b, removed), (in_c, added)):
        yield splice_raw(parsed, replaced=replaced, removed=gone, added=())


def measure(command: list[str]) -> tuple[float, float]:
    """Run a command; return its wall-clock seconds and its peak memory in MiB."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise SystemExit(errors.decode())
    return seconds, usage.ru_maxrss / 1024


def run(name: str, records: int, repeat: int, root: Path) -> Iterator[Figure]:
    """Yield the figures of one format and size."""
    files = -(-records // RECORDS_PER_FILE)
    # in a child: what this process used counts as memory of the commands it starts
    maker = get_context("fork").Process(target=make_banks, args=(root, name, records, files))
    maker.start()
    maker.join()
    a, b, c = (root / letter for letter in "abc")
    size = sum(path.stat().st_size for tree in (a, b) for path in tree.rglob("*.json"))
    main = "import sys; from aoebank.cli import main; sys.exit(main())"
    aoebank = [sys.executable, "-P", "-c", main]
    policy = "keep-best" if name in TIMED else "theirs"
    commands = {
        "diff": [*aoebank, "diff", str(a), str(b), "--json"],
        "merge": [*aoebank, "merge", str(a), str(b), "--policy", policy, "-o"],
        "merge --base": [*aoebank, "merge", "--base", str(a), str(b), str(c), "-o"],
    }
    for title, command in commands.items():
        best = (float("inf"), 0.0)
        for number in range(repeat):
            out = root / f"out {number}"
            best = min(best, measure([*command, str(out)] if command[-1] == "-o" else command))
            shutil.rmtree(out, ignore_errors=True)
        yield Figure(
            format=name,
            records=records,
            files=files,
            size_mb=round(size / 1e6, 1),
            command=title,
            seconds=round(best[0], 2),
            peak_mib=round(best[1]),
        )


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument(
        "--formats",
        choices=[*LAYOUTS],
        nargs="+",
        default=["runtime_kb", "unified"],
    )
    parser.add_argument("--records", type=int, nargs="+", default=[10**4, 10**5, 10**6])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    figures = []
    print("| format | records | files | MB | command | s | peak MiB |")
    print("|---|---|---|---|---|---|---|")
    for name in given.formats:
        for records in given.records:
            with tempfile.TemporaryDirectory() as folder:
                for row in run(name, records, given.repeat, Path(folder)):
                    figures.append(asdict(row))
                    print(
                        f"| {row.format} | {row.records:,} | {row.files} | {row.size_mb} "
                        f"| {row.command} | {row.seconds} | {row.peak_mib} |",
                        flush=True,
                    )
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
