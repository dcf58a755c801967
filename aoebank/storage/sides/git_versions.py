"""Commits that touch a bank as versions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from aoebank.errors import HistoryError
from aoebank.formats.registry import find_format
from aoebank.storage.git.program import (
    Blob,
    find_commit,
    find_work_tree,
    get_commit,
    iter_blobs,
    run_git,
)
from aoebank.storage.sides.git_side import open_git_side
from aoebank.storage.sides.side import SideKind, StoredSide
from aoebank.storage.sides.versions import Version, empty_side

_FORMAT = "%x1e%H%x1f%P%x1f%an <%ae>%x1f%cI%x1f%D%x1f%B"
_TAG = "tag: "


@dataclass(frozen=True, slots=True)
class GitHistory:
    """The commits of the current branch that touch the bank at `root`."""

    root: Path

    @property
    def kind(self) -> SideKind:
        return SideKind.GIT

    def versions(self) -> tuple[Version, ...]:
        """Return the commits, newest first, each with its parents among them."""
        return tuple(self._log(["--topo-order", "--parents", "HEAD"]))

    def get(self, reference: str) -> Version:
        """Return the commit a revision means, whether it touches the bank or not."""
        commit = get_commit(reference, cwd=self._top())
        listing = ["--no-walk=unsorted", commit]
        return next(self._log(listing, path=False))

    def side(self, version: str) -> StoredSide:
        """Return the bank as a commit has it; one without the bank gives an empty side."""
        if not version or next(_blobs(version, self._top(), self.root), None) is None:
            return empty_side(self.kind)
        return open_git_side(version, beside=self.root, cwd=self.root)

    def _top(self) -> Path:
        top = find_work_tree(self.root)
        if top is None or find_commit("HEAD", cwd=top) is None:
            problem = "not in a git work tree" if top is None else "no commit yet"
            raise HistoryError(problem, where=str(self.root), hint="aoebank snapshot")
        return top

    def _log(self, arguments: list[str], *, path: bool = True) -> Iterator[Version]:
        top = self._top()
        place = ["--", f":(literal){os.path.realpath(self.root)}"] if path else ["--"]
        listing = run_git(
            [
                "log",
                "--encoding=UTF-8",
                f"--format={_FORMAT}",
                "--decorate=short",
                "--decorate-refs=refs/tags/",
                *arguments,
                *place,
            ],
            cwd=top,
        )
        for each in listing.decode("utf-8", errors="replace").split("\x1e")[1:]:
            commit, parents, who, time, names, message = each.split("\x1f", 5)
            tags = (name.removeprefix(_TAG) for name in names.split(", "))
            yield Version(
                kind=SideKind.GIT,
                id=commit,
                parents=tuple(parents.split()),
                who=who,
                time=_utc(time),
                message=message.strip(),
                tags=tuple(sorted(filter(None, tags))),
            )


def is_tracked(root: Path) -> bool:
    """Return whether the newest commit holds bank files of a bank, as their names tell."""
    try:
        top = find_work_tree(root)
        if top is None or find_commit("HEAD", cwd=top) is None:
            return False
        return any(find_format(Path(blob.path)) for blob in _blobs("HEAD", top, root))
    except HistoryError:  # no git on this machine
        return False


def _blobs(commit: str, top: Path, root: Path) -> Iterator[Blob]:
    inside = os.path.relpath(os.path.realpath(root), os.path.realpath(top))
    return iter_blobs(commit, cwd=top, path="" if inside == "." else inside)


def _utc(text: str) -> str:
    moment = datetime.fromisoformat(text).astimezone(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
