"""Breaks one call of an operation after the other, and judges what is left.

    python -m support.reliability.breaking OPERATION KIND EVERY FOLDER

with `breaking.c` loaded by LD_PRELOAD, which `run_broken` does. Writes one JSON document.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from aoebank import AoebankError, verify_history
from aoebank.storage.writing.atomic import TEMPORARY_SUFFIX
from support.forked import end_in_time
from support.reliability.operations import OPERATIONS, Operation

SOURCE = Path(__file__).with_name("breaking.c")
KILLED = ("before a call", "after a call", "in a write")  # in the order of breaking.c, from 1 on
ERRORS = ("ENOSPC", "EIO", "EACCES")
FAIL_ONCE, FULL = 4, 5
KINDS = ("kill", "fault", "full disk")
HISTORY = ".aoebank/history"
NOW = re.compile(rb'"when": ?"[^"]*"')
Content = Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """What came of breaking an operation."""

    calls: int  # That change files, in one undisturbed run
    tries: int  # Runs that were broken
    problems: tuple[str, ...]  # What must not be, in words


def build(folder: Path) -> Path | None:
    """Compile `breaking.c`; return None where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    library = folder / "breaking.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return library


def run_broken(library: Path, operation: str, kind: str, folder: Path, *, every: int = 1) -> Broken:
    """Break an operation at every n-th of its calls, in a process of its own."""
    tests = Path(__file__).resolve().parents[2]
    folder.mkdir()
    process = subprocess.run(
        [sys.executable, "-m", "support.reliability.breaking", operation, kind, str(every), folder],
        env={
            **os.environ,
            "LD_PRELOAD": str(library),
            "PYTHONPATH": f"{tests}:{tests.parent}",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        check=False,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout)
    return Broken(**{**found, "problems": tuple(found["problems"])})


class _World:
    """A folder that is put back to its start before each try."""

    def __init__(self, operation: Operation, folder: Path) -> None:
        self.operation = operation
        self.root = folder / "try"  # documents may name paths: always the same one
        self._start = folder / "start"
        self.root.mkdir()
        operation.prepare(self.root)
        shutil.copytree(self.root, self._start)
        self.has_past = (self.root / "a" / f"{HISTORY}.db").exists()
        self.old = self.content()
        operation.act(self.root)
        self.new = self.content()
        assert self.new != self.old or (self.root / "a" / f"{HISTORY}.db").exists()

    def start_again(self) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self._start, self.root)

    def content(self) -> Content:
        """Return the files that are to be, times left out."""
        target = self.root / self.operation.target
        return {
            path.relative_to(target).as_posix(): NOW.sub(b"", path.read_bytes())
            for path in sorted(target.rglob("*"))
            if path.is_file()
            and TEMPORARY_SUFFIX not in path.as_posix()  # a folder may be one too
            and not path.relative_to(target).as_posix().startswith(HISTORY)
        }

    def left_over(self) -> list[str]:
        return [path.name for path in self.root.rglob(f"*{TEMPORARY_SUFFIX}*")]


def _tries(kind: str, calls: int, every: int) -> Iterator[tuple[int, int, int, str]]:
    """Yield which call breaks, how, with which error, and that in words."""
    for at in range(0, calls, every):
        if kind == "kill":
            for mode, words in enumerate(KILLED, 1):
                yield at, mode, 0, f"killed {words}, {at}"
        elif kind == "fault":
            for name in ERRORS:
                yield at, FAIL_ONCE, getattr(errno, name), f"{name} at call {at}"
        else:
            yield at, FULL, errno.ENOSPC, f"disk full from call {at} on"


def _act(operation: Operation, root: Path) -> str:
    """Do it; return what went wrong that must not, an error of ours being none."""
    try:
        code = operation.act(root)
    except AoebankError:
        return ""
    except Exception as error:
        return f"unexplained {error!r}"
    return f"exit code {code}" if isinstance(code, int) and code not in (0, 1, 3) else ""


def _in_child(
    library: ctypes.CDLL, operation: Operation, root: Path, at: int, mode: int, code: int
) -> tuple[int, str]:
    """Run in a process of its own; return its number of calls, 0 if it was killed, and the bad."""
    hear, on_event = os.pipe()
    child = os.fork()
    if child == 0:
        end_in_time()
        library.breaking_arm(str(root).encode(), at, mode, code)
        problem = _act(operation, root)
        os.write(on_event, json.dumps([library.breaking_count(), problem]).encode())
        os._exit(0)
    os.close(on_event)
    with os.fdopen(hear, "rb") as stream:
        said = stream.read()
    os.waitpid(child, 0)
    calls, problem = json.loads(said) if said else (0, "")
    return calls, problem


def _judge(world: _World, kind: str) -> Iterator[str]:
    left = world.content()
    for name in sorted({*left, *world.old, *world.new}):
        if left.get(name) not in (world.old.get(name), world.new.get(name)):
            yield f"{name} is neither old nor new"
    if kind != "kill" and world.operation.is_together and left not in (world.old, world.new):
        yield "some files are old, some are new"
    yield from _judge_history(world)
    again = _act(world.operation, world.root)
    if again:
        yield f"done again: {again}"
    if world.content() != world.new:
        yield "done again, it is not what it is undisturbed"
    yield from _judge_history(world)
    tidy = world.operation.is_tidy and world.operation.is_repeatable
    if kind == "fault" and tidy and world.left_over():
        yield f"done again, there is still {world.left_over()}"


def _judge_history(world: _World) -> Iterator[str]:
    """Yield what is wrong with the history; one that was just being begun may be empty."""
    root = world.root / "a"
    if (root / f"{HISTORY}.db").exists():
        try:
            for problem in verify_history(root).problems:
                yield f"history: {problem}"
        except AoebankError as error:
            if world.has_past or "first snapshot did not end" not in str(error):
                yield f"history: {error}"


def _main(name: str, kind: str, every: str, folder: str) -> None:
    library = ctypes.CDLL(os.environ["LD_PRELOAD"])
    operation = OPERATIONS[name]
    world = _World(operation, Path(folder))
    world.start_again()
    calls, problem = _in_child(library, operation, world.root, -1, 0, 0)
    problems = [problem] if problem else []
    tries = 0
    for at, mode, code, words in _tries(kind, calls, int(every)):
        world.start_again()
        _, problem = _in_child(library, operation, world.root, at, mode, code)
        found = [problem] if problem else []
        problems += [f"{name}, {words}: {what}" for what in (*found, *_judge(world, kind))]
        tries += 1
    print(json.dumps(asdict(Broken(calls=calls, tries=tries, problems=tuple(problems)))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
