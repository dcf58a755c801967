"""A repository of sources with banks among them, of any size; the same arguments, the same commits.

Made with `git fast-import`: sources, JSON files that are no banks, and runtime banks beside the
operators they belong to, with the traits of the repository of an operator library: one commit in
twenty touches a bank, one in ten is a merge of a branch of two commits, banks are renamed, removed
and added, and two releases are tagged.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class History:
    """A repository as it grows."""

    rng: Random
    stream: list[bytes] = field(default_factory=list)  # What `git fast-import` reads
    sources: list[str] = field(default_factory=list)  # Paths of files that are no banks
    banks: dict[str, list[str]] = field(default_factory=dict)  # Lines of each bank file by its path
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


def key_to_blame(top: Path) -> str:
    """Return the key of a record of the newest commit, one of the largest bank file."""
    from aoebank.storage.bank import load_file

    listing = git(top, "ls-files", "*_runtime_kb.json")
    paths = [top / os.fsdecode(line) for line in listing.splitlines()]
    parsed = load_file(max(paths, key=lambda path: (path.stat().st_size, path)))
    return parsed.keys[len(parsed) // 2]


def clone_bundle(bundle: Path, top: Path, tag: str) -> Path:
    """Return a clone of a bundle, whose work tree is at a tag."""
    top.mkdir()
    git(top, "init", "-q")
    wanted = ("refs/heads/*:refs/bundle/*", "refs/tags/*:refs/tags/*")
    git(top, "fetch", "-q", str(bundle.absolute()), *wanted)
    git(top, "checkout", "-q", tag)
    return top


def git(top: Path, *arguments: str) -> bytes:
    """Return what a command of git writes."""
    return subprocess.run(["git", *arguments], cwd=top, check=True, capture_output=True).stdout
