"""What the bank layer takes in time and memory, on synthetic banks and repositories.

    python benchmarks/banks.py load --format unified --records 1000000 --files 20
    python benchmarks/banks.py load --bank DIRECTORY         # one that is there
    python benchmarks/banks.py query --format unified --records 1000000 --files 20
    python benchmarks/banks.py diff_merge --format runtime_kb --records 1000000 --files 20
    python benchmarks/banks.py history --format unified --records 100000 --files 4
    python benchmarks/banks.py repository [--sources 5000] [--commits 2000]
    python benchmarks/banks.py repository --repository CLONE|BUNDLE --tags v8.5.0 v9.0.0

Each row is a process of its own, page cache warm: wall-clock and CPU seconds of the fastest of
`--repeat` runs, programs it started included, the peak memory of the largest process, and how many
lines it wrote. What is named by a command is that whole command, start of Python included, by the
`aoebank` on PYTHONPATH, so an older one can be measured too; `--only` leaves out what it does not
know. Writes Markdown.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from make_bank import LAYOUTS, make_bank
from source_repository import clone_bundle, git, key_to_blame, write_repository

from aoebank import Bank
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.text.splice import splice_raw
from aoebank.history.snapshot import record_bank
from aoebank.model.snapshot import Author
from aoebank.storage.bank import load_file
from aoebank.storage.history.database import history_path
from aoebank.storage.sides.snapshots import open_snapshot_side

AOEBANK = (sys.executable, "-P", "-c", "import sys; from aoebank.cli import main; sys.exit(main())")
OUTPUT = "OUTPUT"
"""Stands in a command for a path at which nothing is, another one in each run."""
LOOK_UPS = 20_000
CHANGED = 100  # one line in so many, between two snapshots
TIMED = ("unified", "cube", "vector")
NUMBER = {  # a number in the answer of a record, to change it
    "runtime_kb": re.compile(rb'"baseM":()'),
    "unified": re.compile(rb'"tile": ()'),
    "cube": re.compile(rb'"tiling": \[()'),
    "vector": re.compile(rb"\[251, ()"),
    "graph": re.compile(rb'"end2EndTime":()'),
    "gradient": re.compile(rb'"gradientTime":\[()'),
}
QUERIES = (
    "SELECT op_type, count(*) FROM records GROUP BY op_type",
    "SELECT soc_version, count(DISTINCT key) FROM records GROUP BY soc_version",
    "SELECT op_type, median(cost_us) FROM records GROUP BY op_type",
    "SELECT count(DISTINCT strategy_sha256) FROM records",
)
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

Work = Sequence[str] | Callable[[], object]
"""A command, or a function that is called in a process of its own."""
Rows = Iterator[tuple[str, Work]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one process took; both times in seconds, and how many lines it wrote."""

    wall: float
    cpu: float
    peak_mib: float
    lines: int


def load(given: argparse.Namespace, folder: Path) -> Rows:
    """Yield reading every file and the identity of every record; then its findings."""
    if given.bank:
        paths = [*Bank(given.bank).iter_files()]
    else:
        paths = _in_child(make_bank, folder, given.format, records=given.records, files=given.files)
    for path in paths:
        path.read_bytes()
    size = sum(path.stat().st_size for path in paths)

    def load_all() -> None:
        files = [load_file(path) for path in paths]
        print(f"{sum(map(len, files))} records, {size / 1e6:.1f} MB")
        print(f"look-up {look_up_us(files):.2f} us (median)")

    def check() -> None:
        for path in paths:
            file = load_file(path)
            print(len(file.findings) + sum(1 for _ in file.format.check(file)), "findings")

    yield f"load {len(paths)} files", load_all
    yield "load and check", check


def look_up_us(files: Sequence[ParsedFile]) -> float:
    """Return the median time of finding a record's place by its key, microseconds."""
    rng = Random(0)
    some = [file for file in files if len(file)][:50]
    for file in some:
        file.find("")  # the first look-up builds the table
    samples = []
    for _ in range(LOOK_UPS if some else 0):
        file = rng.choice(some)
        key = rng.choice(file.keys)
        start = time.perf_counter_ns()
        file.find(key)
        samples.append((time.perf_counter_ns() - start) / 1000)
    return median(samples) if samples else 0.0


def query(given: argparse.Namespace, folder: Path) -> Rows:
    """Yield questions to a bank, beside `aoebank ls` and a count in plain Python."""
    _in_child(make_bank, folder, given.format, records=given.records, files=given.files)
    bank = str(folder)
    plain = (sys.executable, "-c", PLAIN_PYTHON, bank, given.format)
    yield "plain Python, GROUP BY op_type", plain
    yield "`aoebank ls`", (*AOEBANK, "ls", bank)
    for text in QUERIES:
        yield f"`{text}`", (*AOEBANK, "query", text, bank)
    yield "`aoebank stats`", (*AOEBANK, "stats", bank)


def diff_merge(given: argparse.Namespace, folder: Path) -> Rows:
    """Yield comparing and merging three versions of a bank.

    The second one has a tenth of the records of the first one changed, a hundredth removed and a
    hundredth added; the third one has another tenth changed, and one record in a thousand that the
    second one changed too, in another way.
    """
    _in_child(make_versions, folder, given.format, given.records, given.files)
    a, b, c = (str(folder / letter) for letter in "abc")
    policy = "keep-best" if given.format in TIMED else "theirs"
    yield "`diff`", (*AOEBANK, "diff", a, b, "--json")
    yield "`merge`", (*AOEBANK, "merge", a, b, "--policy", policy, "-o", OUTPUT)
    yield "`merge --base`", (*AOEBANK, "merge", "--base", a, b, c, "-o", OUTPUT)


def make_versions(root: Path, name: str, records: int, files: int) -> None:
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


def history(given: argparse.Namespace, folder: Path) -> Rows:
    """Yield snapshots: the first, none needed, one per cent changed, the first read back."""
    given.repeat = 1  # each snapshot is of what the one before it left
    files = _in_child(make_bank, folder, given.format, records=given.records, files=given.files)
    author = Author(who="benchmark", now=datetime.now(UTC), machine={})

    def snapshot(message: str) -> None:
        record_bank(folder, author, message=message)
        print(f"history {history_path(folder).stat().st_size / 1e6:.1f} MB")

    def read_back() -> None:
        side = open_snapshot_side("latest~1", root=folder)
        for name in side.contents.values():
            side.read(name)

    yield "first snapshot", functools.partial(snapshot, "1")
    yield "nothing changed", functools.partial(snapshot, "2")
    change_some(files, Random(1))
    yield "1 % changed", functools.partial(snapshot, "3")
    yield "first read back", read_back


def change_some(files: Sequence[Path], rng: Random) -> None:
    """Give one record in a hundred another time or strategy, on the line it is on."""
    for file in files:
        lines = file.read_bytes().split(b"\n")
        for number in rng.sample(range(1, len(lines) - 2), max(1, len(lines) // CHANGED)):
            line = lines[number]
            for old, new in ((b'"tile": ', b'"tile": 1'), (b'Num":', b'Num":1')):
                line = line.replace(old, new)
            lines[number] = line
        file.write_bytes(b"\n".join(lines))


def repository(given: argparse.Namespace, folder: Path) -> Rows:
    """Yield commands at the root of a repository of sources with banks among them."""
    top = given.repository or folder / "repository"
    if given.repository is None:
        _in_child(write_repository, top, given.sources, given.commits)
    elif top.is_file():
        top = clone_bundle(top, folder / "repository", given.tags[1])
    old, new = given.tags
    commands: dict[str, Sequence[str]] = {
        f"diff git:{old} git:{new}": ("diff", f"git:{old}", f"git:{new}"),
        "log -n 3 .": ("log", "-n", "3", "."),
        "blame KEY .": ("blame", key_to_blame(top), "."),
        "validate .": ("validate", "."),
        f"validate . --baseline git:{old}": ("validate", ".", "--baseline", f"git:{old}"),
    }
    if len(git(top, "rev-list", "-n", "1001", "--first-parent", "HEAD").split()) == 1001:
        merges = ("git", "verify-merge", "HEAD~1000..HEAD")
        commands[" ".join(merges)] = merges
    for title, words in commands.items():
        yield f"`{title}`", ("env", "-C", str(top), *AOEBANK, *words)


EXPERIMENTS: Mapping[str, Callable[[argparse.Namespace, Path], Rows]] = {
    "load": load,
    "query": query,
    "diff_merge": diff_merge,
    "history": history,
    "repository": repository,
}


def measure(work: Work) -> tuple[Cost, str]:
    """Run a command or a function in a process of its own; return what it took and wrote.

    Raises:
        SystemExit: it failed.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
    ):
        start = time.perf_counter()
        if isinstance(work, Sequence):
            words = [f"{folder}/{OUTPUT}" if word == OUTPUT else word for word in work]
            process = subprocess.Popen(words, stdout=output, stderr=errors)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        else:
            pid = _forked(work, output.fileno(), errors.fileno())
            _, status, usage = os.wait4(pid, 0)
        wall = time.perf_counter() - start
        for stream in (output, errors):
            stream.seek(0)
        written, said = output.read(), errors.read().decode()
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise SystemExit(said)
    cost = Cost(
        wall=wall,
        cpu=usage.ru_utime + usage.ru_stime,
        peak_mib=usage.ru_maxrss / 1024,
        lines=written.count(b"\n"),
    )
    return cost, "" if isinstance(work, Sequence) else written.decode()


def _forked(work: Callable[[], object], output: int, errors: int) -> int:
    """Call a function in a child; return its process id."""
    pid = os.fork()
    if pid:
        return pid
    os.dup2(output, 1)
    os.dup2(errors, 2)
    sys.stdout, code = os.fdopen(1, "w"), 2
    try:
        work()
        sys.stdout.flush()
        code = 0
    finally:
        os._exit(code)


def _in_child(function: Callable[..., Any], *arguments: object, **named: object) -> Any:
    """Call a function in a child: what this process used counts as memory of what it starts."""
    with get_context("fork").Pool(1) as pool:
        return pool.apply(function, arguments, named)


def main(words: Sequence[str] | None = None) -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("experiment", choices=[*EXPERIMENTS])
    parser.add_argument("--format", choices=[*LAYOUTS], default="unified")
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--files", type=int, default=1, help="each of a target of its own")
    parser.add_argument("--bank", type=Path, help="of load: this one")
    parser.add_argument("--sources", type=int, default=5000, help="files of the repository")
    parser.add_argument("--commits", type=int, default=2000, help="of the repository")
    parser.add_argument("--repository", type=Path, help="measure in this clone or bundle")
    parser.add_argument("--tags", nargs=2, default=["v1", "v2"])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default="", help="rows with this in them")
    given = parser.parse_args(words)
    print("| what | wall | CPU | peak | lines |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for title, work in EXPERIMENTS[given.experiment](given, Path(folder)):
            if given.only not in title:
                continue
            found = [measure(work) for _ in range(given.repeat)]
            best, said = min(found, key=lambda one: one[0].wall)
            peak = max(cost.peak_mib for cost, _ in found)
            told = f" ({', '.join(said.splitlines()[:2])})" if said else ""
            print(
                f"| {title}{told} | {best.wall:.2f} s | {best.cpu:.2f} s | {peak:.0f} MiB "
                f"| {best.lines} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
