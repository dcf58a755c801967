"""Git: a revision as a side, and the commits that touch a bank as versions."""

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
    read_blobs,
    run_git,
)
from aoebank.storage.sides.side import SideKind, StoredSide
from aoebank.storage.sides.versions import Version, empty_side

_FORMAT = "%x1e%H%x1f%P%x1f%an <%ae>%x1f%cI%x1f%D%x1f%B"
_TAG = "tag: "


def open_git_side(text: str, *, beside: Path, cwd: Path) -> StoredSide:
    """Return the bank file or tree at a revision.

    Args:
        text: `REV` or `REV:PATH`.
        beside: The path meant when `text` has none.

    Raises:
        HistoryError: no work tree here, no such revision, or no such path in it.
    """
    revision, colon, path = text.partition(":")
    near = cwd if colon or not beside.exists() else beside
    top = find_work_tree(near)
    if top is None:
        raise HistoryError(
            "not in a git work tree",
            where=f"git:{text}",
            got=str(near),
            hint="cd into the work tree, or name the other side by its path in it",
        )
    commit = get_commit(revision, cwd=top)
    inside = _from_top(path, top=top, cwd=cwd) if colon else _below(beside, top)
    blobs = {
        blob.path: blob.name for blob in iter_blobs(commit, cwd=top, path=inside) if blob.is_file
    }
    if not blobs and inside:
        raise HistoryError(
            "no such path in this revision",
            where=f"git:{revision}",
            got=inside,
            hint=f"git -C {top} ls-tree -r --name-only {revision}",
        )
    return _make_side(text, revision, inside, blobs, top)


def _make_side(
    text: str, revision: str, inside: str, blobs: dict[str, str], top: Path
) -> StoredSide:
    is_file = inside in blobs
    folder = inside.rpartition("/")[0] if is_file else inside
    start = len(folder) + 1 if folder else 0
    contents = {path[start:]: name for path, name in blobs.items()}
    if is_file:
        contents |= _side_car(inside, revision, top)
    return StoredSide(
        label=f"git:{text}",
        kind=SideKind.GIT,
        is_tree=not is_file,
        place=f"git:{revision}:{folder or '.'}",
        contents=contents,
        read=lambda name: next(read_blobs([name], cwd=top)),
    )


def _side_car(inside: str, revision: str, top: Path) -> dict[str, str]:
    from aoebank.formats.provenance import SUFFIX

    found = iter_blobs(revision, cwd=top, path=f"{inside}{SUFFIX}")
    return {blob.path.rpartition("/")[2]: blob.name for blob in found}


def _from_top(path: str, *, top: Path, cwd: Path) -> str:
    is_relative = path in (".", "..") or path.startswith(("./", "../"))
    return _below(cwd / path, top) if is_relative else path.strip("/")


def _below(path: Path, top: Path) -> str:
    """Return a path from the top of the work tree; the file may be gone from disk."""
    real = Path(os.path.realpath(path))
    try:
        inside = real.relative_to(os.path.realpath(top)).as_posix()
    except ValueError as error:
        raise HistoryError("outside of the work tree", where=str(path), got=str(top)) from error
    return "" if inside == "." else inside


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
        for line in listing.decode("utf-8", errors="replace").split("\x1e")[1:]:
            commit, parents, who, time, names, message = line.split("\x1f", 5)
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
