"""Merge commits, their parents and their bases."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from aoebank.errors import HistoryError
from aoebank.storage.git.program import get_commit, run_git, try_git


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit.

    Attributes:
        day: When it was committed, in the time zone of who did it.
    """

    name: str
    parents: tuple[str, ...]
    day: date
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
    """Return whether a file of the index has this content, whatever its name and stage are."""
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
