"""Merge commits, their parents and their bases."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from pathlib import Path

from aoebank.errors import HistoryError
from aoebank.storage.git.config import git_path
from aoebank.storage.git.program import find_commit, find_work_tree, get_commit, run_git, try_git

_INCOMING = {  # where git keeps what it is merging, and which version of that is theirs
    "MERGE_HEAD": "",
    "CHERRY_PICK_HEAD": "",
    "REBASE_HEAD": "",
    "REVERT_HEAD": "^",
}
_REBASING = ("rebase-merge", "rebase-apply")
_OURS, _THEIRS = b"2", b"3"  # stages of the index


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePoint:
    """Commit and version that one file was merged at."""

    head: str  # Commit the work tree was at
    # Blob of the version git merged into it; None if git had no part in it.
    theirs: str | None = None


class Standing(StrEnum):
    """Relation of a work tree to the merge in which a conflict was met."""

    CURRENT = "current"  # in the middle of it, or at the commit it made
    COMMITTED = "committed"  # commits stand on top of where it was met
    GIVEN_UP = "given_up"  # `git merge --abort` and the like
    ELSEWHERE = "elsewhere"  # another branch, or another merge


def current_point(path: Path, theirs: bytes | None = None) -> MergePoint | None:
    """Return the merge in progress; None outside of a work tree, or before any commit.

    Args:
        path: A file or a folder of the work tree.
        theirs: The version git merges; None if it is not git that does.
    """
    with suppress(HistoryError):  # no git: then there is no branch either
        top = find_work_tree(path)
        head = find_commit("HEAD", cwd=top) if top else None
        if top is not None and head is not None:
            return MergePoint(head=head, theirs=_blob_of(theirs, top) if theirs else None)
    return None


def find_standing(point: MergePoint, path: str, *, top: Path) -> Standing:
    """Return the standing of the work tree at `top` towards the merge of one file.

    Args:
        path: Of the bank file, from the top.
    """
    head = find_commit("HEAD", cwd=top)
    if head is None or not _is_ancestor(point.head, head, top):
        return Standing.ELSEWHERE
    if point.theirs is None:
        return Standing.CURRENT
    stages = _stages(path, top)
    if _THEIRS in stages or _OURS in stages:
        is_this = head == point.head and stages.get(_THEIRS) in (None, point.theirs)
        return Standing.CURRENT if is_this else Standing.ELSEWHERE
    if head != point.head:
        parents = run_git(["rev-list", "--parents", "-n1", head], cwd=top).decode().split()[1:]
        others = [parent for parent in parents if parent != point.head]
        is_made = point.head in parents and _has_blob(others, point.theirs, top)
        return Standing.CURRENT if is_made else Standing.COMMITTED
    incoming = [*_incoming(top)]
    if incoming:
        is_this = _has_blob(incoming, point.theirs, top)
        return Standing.CURRENT if is_this else Standing.GIVEN_UP
    if any(git_path(name, cwd=top).exists() for name in _REBASING):
        return Standing.CURRENT
    # a stash pop or a squash leaves no trace but what it brought
    is_as_before = stages.get(b"0") == _blob_at(head, path, top)
    return Standing.GIVEN_UP if is_as_before else Standing.CURRENT


def _blob_of(data: bytes, cwd: Path) -> str:
    return run_git(["hash-object", "--stdin"], cwd=cwd, data=data).decode("ascii").strip()


def _is_ancestor(commit: str, head: str, top: Path) -> bool:
    return try_git(["merge-base", "--is-ancestor", commit, head], cwd=top).returncode == 0


def _stages(path: str, top: Path) -> dict[bytes, str]:
    """Return the blobs of a file in the index, by stage."""
    arguments = ["--literal-pathspecs", "ls-files", "--stage", "-z", "--", path]
    entries = run_git(arguments, cwd=top).split(b"\0")
    fields = (entry.partition(b"\t")[0].split() for entry in entries if entry)
    return {stage: blob.decode("ascii") for _, blob, stage in fields}


def _blob_at(commit: str, path: str, top: Path) -> str | None:
    name = f"{commit}:{path}"
    result = try_git(["rev-parse", "--verify", "--quiet", "--end-of-options", name], cwd=top)
    return result.stdout.decode("ascii").strip() if result.returncode == 0 else None


def _incoming(top: Path) -> Iterator[str]:
    """Yield the commits git is merging now."""
    for name, version in _INCOMING.items():
        with suppress(OSError):
            for commit in git_path(name, cwd=top).read_text(encoding="ascii").split():
                yield commit + version


def _has_blob(commits: list[str], blob: str, top: Path) -> bool:
    """True if a commit has a file with this content, whatever its name."""
    wanted = os.fsencode(blob)
    return any(
        wanted in try_git(["ls-tree", "-r", "--full-tree", commit], cwd=top).stdout
        for commit in commits
    )


# ---- commits that merge ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit."""

    name: str
    parents: tuple[str, ...]
    day: date  # When it was committed, in the time zone of who did it
    subject: str


def demand_full_history(cwd: Path) -> None:
    """Raise `HistoryError` in a shallow clone: merges and bases beyond its edge are hidden."""
    result = try_git(["rev-parse", "--is-shallow-repository"], cwd=cwd)
    if result.returncode:
        raise HistoryError("not in a git repository", where=str(cwd), hint="cd into it")
    if result.stdout.strip() == b"true":
        raise HistoryError(
            "the history is cut off (shallow clone)",
            where=str(cwd),
            hint="git fetch --unshallow; in a GitHub workflow `fetch-depth: 0`",
        )


def list_merges(revision: str, *, cwd: Path) -> tuple[Commit, ...]:
    """Return the merge commits of a range, oldest first, or the one commit a name means.

    Args:
        revision: `A..B`, `A...B`, or a commit, which then comes back whatever it is.

    Raises:
        HistoryError: a revision is not known.
    """
    if ".." not in revision:
        return tuple(_commits(["--no-walk", get_commit(revision, cwd=cwd)], cwd))
    dots = "..." if "..." in revision else ".."
    ends = [get_commit(end or "HEAD", cwd=cwd) for end in revision.split(dots, 1)]
    return tuple(_commits(["--merges", "--reverse", "--topo-order", dots.join(ends)], cwd))


def merge_bases(commit: str, others: Sequence[str], *, cwd: Path) -> tuple[str, ...]:
    """Return the best common ancestors of a commit and the merge of some others."""
    result = try_git(["merge-base", "--all", commit, *others], cwd=cwd)
    return tuple(result.stdout.decode("ascii").split())  # none in common: no base, no error


def is_in_index(data: bytes, *, cwd: Path) -> bool:
    """True if a file of the index has this content, whatever its name and stage."""
    blob = run_git(["hash-object", "--stdin"], cwd=cwd, data=data).strip()
    entries = run_git(["ls-files", "--stage", "-z"], cwd=cwd).split(b"\0")
    return any(entry.split(b" ", 2)[1:2] == [blob] for entry in entries)


def find_renames(old: str, new: str, *, cwd: Path) -> dict[str, str]:
    """Return the files git takes for renamed between two commits, new name by old name."""
    arguments = ["diff-tree", "-r", "-z", "-M", "-l0", "--diff-filter=R", "--name-status", old, new]
    fields = [os.fsdecode(field) for field in run_git(arguments, cwd=cwd).split(b"\0")[:-1]]
    return dict(zip(fields[1::3], fields[2::3], strict=True))


def _commits(arguments: Sequence[str], cwd: Path) -> list[Commit]:
    layout = "--format=%H%x00%P%x00%cs%x00%s"
    output = run_git(["rev-list", "--no-commit-header", layout, *arguments], cwd=cwd)
    commits = []
    for line in filter(None, output.decode("utf-8", errors="replace").split("\n")):
        name, parents, day, subject = line.split("\0", 3)
        commits.append(
            Commit(
                name=name,
                parents=tuple(parents.split()),
                day=date.fromisoformat(day),
                subject=subject,
            )
        )
    return commits
