"""The side-car of a version of a bank file git hands out without saying where it is from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from aoebank.formats.provenance import SUFFIX
from aoebank.storage.git.program import iter_blobs, run_git, try_git

_LABEL = "GITHEAD_"  # `git merge` leaves the names of what it merges in the environment
_HEADS = (
    "HEAD",
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
    "ORIG_HEAD",
    "refs/stash",
)


def find_side_car(path: str, data: bytes, *, cwd: Path, env: Mapping[str, str]) -> bytes | None:
    """Return the side-car of a commit in which a bank file is `data`, or None.

    Looks at what is being merged, then at all branches and tags, then through their history.

    Args:
        path: Of the bank file from the top of the work tree; it may be another one there.
    """
    blob = run_git(["hash-object", "--stdin"], cwd=cwd, data=data).decode("ascii").strip()
    labels = [name.removeprefix(_LABEL) for name in env if name.startswith(_LABEL)]
    for commits in ([*labels, *_HEADS], _all_refs(cwd)):
        side_car = _beside(commits, path, blob, cwd)
        if side_car is not None:
            return side_car
    for commit in _history(blob, cwd):
        paths = [file.path for file in iter_blobs(commit, cwd=cwd) if file.name == blob]
        if paths:
            return _beside([commit], paths[0], blob, cwd)
    return None


def _beside(commits: Sequence[str], path: str, blob: str, cwd: Path) -> bytes | None:
    if not commits or "\n" in path:  # git reads one name per line
        return None
    names = [f"{commit}:{path}{suffix}" for commit in commits for suffix in ("", SUFFIX)]
    data = os.fsencode("".join(f"{name}\n" for name in names))
    result = try_git(["cat-file", "--batch-check=%(objectname)"], cwd=cwd, data=data)
    lines = result.stdout.split(b"\n")  # none outside of a repository
    for bank_file, side_car in zip(lines[::2], lines[1::2], strict=False):
        if bank_file.decode() == blob:
            is_there = not side_car.endswith((b" missing", b" ambiguous"))
            return run_git(["cat-file", "blob", side_car.decode()], cwd=cwd) if is_there else b""
    return None


def _all_refs(cwd: Path) -> list[str]:
    result = try_git(["for-each-ref", "--format=%(objectname)", "--sort=-creatordate"], cwd=cwd)
    return list(dict.fromkeys(result.stdout.decode("ascii").split()))


def _history(blob: str, cwd: Path) -> Iterator[str]:
    """Yield the newest commits that added a blob or took it out."""
    search = ["log", "--all", "--max-count=5", "--format=%H", f"--find-object={blob}"]
    result = try_git(["-c", "log.showSignature=false", *search], cwd=cwd)
    yield from result.stdout.decode("ascii").split()
