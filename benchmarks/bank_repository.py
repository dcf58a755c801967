"""Measure `diff`, `log`, `blame`, `validate` and `verify-merge` at the root of a source repository.

    python benchmarks/bank_repository.py [--files 5000] [--commits 2000] [--keep DIRECTORY]
    python benchmarks/bank_repository.py --repository CLONE|BUNDLE --tags v8.5.0 v9.0.0

Without `--repository` one is made with `git fast-import`: sources, JSON files that are no banks,
and runtime banks beside the operators they belong to, with the traits of the repository of an
operator library: one commit in twenty touches a bank, one in ten is a merge of a branch of two
commits, banks are renamed, removed and added, and two releases are tagged. Measured are whole
commands, start of Python included, page cache warm: wall-clock seconds and CPU seconds of the
fastest of `--repeat` runs, the peak memory of the largest process, and how many lines are written.
Each measured command is that of the `aoebank` on PYTHONPATH, so an older one can be measured too;
what it does not know is left out with `--only`. Writes Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from random import Random

from make_bank import runtime_lines

SOCS = ("Ascend910B2", "Ascend910B4", "Ascend910_9391", "Ascend950PR_9579")
CORES = 24
BANK_FILES = 48
RECORDS_PER_FILE = 90
JSON_SHARE = 0.2  # files named `*.json` that are no banks
BANK_COMMIT = 40  # of so many steps in a row four touch banks
MERGE_COMMIT = 10
START = 1_700_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one command took; both times in seconds, and how many lines it wrote."""

    wall: float
    cpu: float
    peak_mib: float
    lines: int


@dataclass(slots=True)
class History:
    """A repository as it grows.

    Attributes:
        stream: What `git fast-import` reads.
        sources: Paths of files that are no banks.
        banks: Lines of each bank file by its path.
    """

    rng: Random
    stream: list[bytes] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    banks: dict[str, list[str]] = field(default_factory=dict)
    commits: int = 0

    def begin(self, branch: str, message: str, *parents: str) -> str:
        """Start a commit and return its mark; without parents the branch goes on."""
        self.commits += 1
        when = START + 600 * self.commits
        text = f"{message}\n\nDescription: what was done and why, in a few words.\n".encode()
        head = (
            f"commit refs/heads/{branch}\nmark :{self.commits}\n"
            f"committer Ann <ann@example.org> {when} +0000\ndata {len(text)}\n"
        )
        self.stream += [head.encode(), text, b"\n"]
        for word, parent in zip(("from", "merge"), parents, strict=False):
            self.stream.append(f"{word} {parent}\n".encode())
        return f":{self.commits}"

    def write(self, path: str, data: bytes) -> None:
        """Give a file its content."""
        self.stream += [f"M 100644 inline {path}\ndata {len(data)}\n".encode(), data, b"\n"]

    def write_bank(self, path: str) -> None:
        """Write a bank file as its lines are."""
        self.write(path, "".join(f"{line}\n" for line in self.banks[path]).encode())

    def touch_source(self) -> None:
        """Change a file that is no bank."""
        path = self.rng.choice(self.sources)
        self.write(path, source_of(path, self.rng))

    def touch_bank(self) -> None:
        """Change, add or remove records, now and then a whole file."""
        path = self.rng.choice(sorted(self.banks))
        kind = self.rng.random()
        if kind < 0.1:
            moved = path.replace("/ascend/", f"/ascend{self.commits}/")
            self.banks[moved] = self.banks.pop(path)
            self.stream.append(f"D {path}\n".encode())
            path = moved
        elif kind < 0.15 and len(self.banks) > BANK_FILES // 2:
            del self.banks[path]
            self.stream.append(f"D {path}\n".encode())
            return
        lines = self.banks[path]
        number = self.rng.randrange(len(lines))
        record = json.loads(lines[number])
        record["knowledge"]["baseM"] = self.commits
        lines[number] = json.dumps(record, separators=(",", ":"))
        self.write_bank(path)


def source_of(path: str, rng: Random) -> bytes:
    """Return some text for a file that is no bank."""
    if path.endswith(".json"):
        return json.dumps({"op": path, "binary": [rng.random() for _ in range(40)]}).encode()
    return "".join(f"line {rng.random()} of {path};\n" for _ in range(60)).encode()


def write_repository(top: Path, files: int, commits: int, seed: int = 0) -> None:
    """Make the repository; the same arguments give the same commits."""
    history = History(rng=Random(seed))
    kinds = ("h", "cpp", "cpp", "md", "json")
    for number in range(files - BANK_FILES):
        kind = "json" if number < JSON_SHARE * files else kinds[number % (len(kinds) - 1)]
        history.sources.append(f"family{number % 12}/op{number % 180}/op_host/part{number}.{kind}")
    lines = [*runtime_lines(range(BANK_FILES * RECORDS_PER_FILE), Random(seed), CORES)]
    for number in range(BANK_FILES):
        soc = SOCS[number % len(SOCS)]
        folder = f"matmul/op{number // len(SOCS)}/op_host/config/ascend/{soc.lower()}"
        name = f"{soc}_{CORES}_AiCore_MatMulV3_runtime_kb.json"
        part = lines[number * RECORDS_PER_FILE :][:RECORDS_PER_FILE]
        history.banks[f"{folder}/{name}"] = part
    history.begin("main", "import")
    for path in history.sources:
        history.write(path, source_of(path, history.rng))
    for path in history.banks:
        history.write_bank(path)
    for tag, share in (("v1", 0.6), ("v2", 0.95)):
        while history.commits < share * commits:
            _step(history)
        history.stream.append(f"reset refs/tags/{tag}\nfrom :{history.commits}\n\n".encode())
    while history.commits < commits:
        _step(history)
    subprocess.run(["git", "init", "-q", "-b", "main", str(top)], check=True)
    subprocess.run(
        ["git", "fast-import", "--quiet", "--force"],
        cwd=top,
        input=b"".join(history.stream),
        check=True,
    )
    subprocess.run(["git", "checkout", "-q", "main"], cwd=top, check=True)


def _step(history: History) -> None:
    """Add a commit to main, or a branch of two commits beside one of main, and their merge."""
    is_about_banks = history.commits % BANK_COMMIT < 4
    touch = history.touch_bank if is_about_banks else history.touch_source
    if history.commits % MERGE_COMMIT > 3:
        history.begin("main", f"change {history.commits}")
        history.touch_source()
        return
    side, done = f":{history.commits}", []
    for number in range(2):
        parents = () if number else (side,)
        side = history.begin("side", f"change {history.commits} aside", *parents)
        start = len(history.stream)
        touch()
        done += history.stream[start:]
    main = history.begin("main", f"change {history.commits}")
    history.touch_source()
    history.begin("main", f"merge {history.commits}", main, side)
    history.stream += done  # a commit starts from its first parent


def measure(command: Sequence[str], *, cwd: Path) -> Cost:
    """Run a command and return what it took, programs it started included."""
    start = time.perf_counter()
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, cwd=cwd, stdout=output, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        output.seek(0)
        lines = sum(1 for _ in output)
        errors.seek(0)
        said = errors.read().decode()
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise SystemExit(said)
    cpu, peak_mib = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
    return Cost(wall=wall, cpu=cpu, peak_mib=peak_mib, lines=lines)


def key_to_blame(top: Path) -> str:
    """Return the key of a record of the newest commit, one of the largest bank file."""
    from aoebank.storage.bank import load_file

    listing = _git(top, "ls-files", "*_runtime_kb.json")
    paths = [top / os.fsdecode(line) for line in listing.splitlines()]
    parsed = load_file(max(paths, key=lambda path: (path.stat().st_size, path)))
    return parsed.keys[len(parsed) // 2]


def clone_bundle(bundle: Path, top: Path, tag: str) -> Path:
    """Return a clone of a bundle, whose work tree is at a tag."""
    top.mkdir()
    _git(top, "init", "-q")
    wanted = ("refs/heads/*:refs/bundle/*", "refs/tags/*:refs/tags/*")
    _git(top, "fetch", "-q", str(bundle.absolute()), *wanted)
    _git(top, "checkout", "-q", tag)
    return top


def _git(top: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=top, check=True, capture_output=True).stdout


def figures(top: Path, tags: Sequence[str], repeat: int, only: str = "") -> Iterator[str]:
    """Yield a row per command; `only` is a part of the commands wanted."""
    start = "import sys; from aoebank.cli import main; sys.exit(main())"
    aoebank = [sys.executable, "-P", "-c", start]
    old, new = tags
    commands = {
        f"`diff git:{old} git:{new}`": ["diff", f"git:{old}", f"git:{new}"],
        "`log -n 3 .`": ["log", "-n", "3", "."],
        "`blame KEY .`": ["blame", key_to_blame(top), "."],
        "`validate .`": ["validate", "."],
        f"`validate . --baseline git:{old}`": ["validate", ".", "--baseline", f"git:{old}"],
        "`git verify-merge HEAD~1000..HEAD`": ["git", "verify-merge", "HEAD~1000..HEAD"],
    }
    if len(_git(top, "rev-list", "-n", "1001", "--first-parent", "HEAD").split()) < 1001:
        del commands["`git verify-merge HEAD~1000..HEAD`"]
    for title, command in commands.items():
        if only not in title:
            continue
        costs = [measure([*aoebank, *command], cwd=top) for _ in range(repeat)]
        best = min(costs, key=lambda cost: cost.wall)
        peak = max(cost.peak_mib for cost in costs)
        times = f"{best.wall:.2f} s | {best.cpu:.2f} s"
        yield f"| {title} | {times} | {peak:.0f} MiB | {best.lines} |"


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--files", type=int, default=5000)
    parser.add_argument("--commits", type=int, default=2000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="make the repository here and leave it")
    parser.add_argument("--repository", type=Path, help="measure in this clone or bundle")
    parser.add_argument("--only", default="", help="commands with this in them")
    parser.add_argument("--tags", nargs=2, default=["v1", "v2"])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        top = given.repository or given.keep or Path(folder, "repository")
        if given.repository is None:
            # in a child: what this process used counts as memory of the commands it starts
            maker = get_context("fork").Process(
                target=write_repository, args=(top, given.files, given.commits)
            )
            maker.start()
            maker.join()
        elif top.is_file():
            top = clone_bundle(top, Path(folder, "repository"), given.tags[1])
        print("| command | wall | CPU | peak | lines |")
        print("|---|---|---|---|---|")
        for row in figures(top, given.tags, given.repeat, given.only):
            print(row, flush=True)


if __name__ == "__main__":
    main()
