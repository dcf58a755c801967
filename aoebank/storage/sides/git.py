"""Git: a revision as a side, and the commits that touch a bank as versions."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from aoebank.errors import HistoryError, shell_word
from aoebank.formats.provenance import SUFFIX
from aoebank.formats.registry import HEAD_BYTES, bank_globs, find_format, may_be_bank
from aoebank.storage.git.links import CommitFiles, resolve_links
from aoebank.storage.git.long_lived import ObjectReader, TreeReader
from aoebank.storage.git.program import (
    find_commit,
    find_top,
    find_work_tree,
    get_commit,
    has_link_above,
    iter_blobs,
    iter_git,
)
from aoebank.storage.history.store import Counts
from aoebank.storage.sides.side import SideKind, StoredSide
from aoebank.storage.sides.versions import Version, empty_side
from aoebank.storage.writing.links import note

_FIELDS = ("%H", "%P", "%an <%ae>", "%cI", "%D", "%B")
_FORMAT = "%x00".join(_FIELDS)
_TAG = "tag: "
_MANY_NAMES = 500
_KEPT_LISTINGS = 8


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
    top = find_top(near)
    if top is None:
        raise HistoryError(
            "not in a git work tree",
            where=f"git:{text}",
            got=str(near),
            hint="cd into the work tree, or name the other side by its path in it",
        )
    commit = get_commit(revision, cwd=top)
    inside = _from_top(path, top=top, cwd=cwd) if colon else _below(beside, top)
    objects = ObjectReader(top)
    files = list_files(commit, inside, objects)
    if not files.paths() and inside:
        raise HistoryError(
            "no such path in this revision",
            where=f"git:{revision}",
            got=inside,
            hint=f"git -C {shell_word(top)} ls-tree -r --name-only {shell_word(revision)}",
        )
    is_file = inside in files.paths()
    folder = inside.rpartition("/")[0] if is_file else inside
    if is_file:
        files = files.plus(list_files(commit, f"{inside}{SUFFIX}", objects))
    store = _Store(objects)
    return store.side(files, folder, label=f"git:{text}", revision=revision, is_tree=not is_file)


class _Store:
    """Makes sides of what commits of one repository hold; they share what was found out."""

    def __init__(self, objects: ObjectReader) -> None:
        self._objects = objects
        self._recognized: dict[str, bool] = {}

    def side(
        self,
        files: CommitFiles,
        folder: str,
        *,
        label: str,
        revision: str,
        is_tree: bool = True,
    ) -> StoredSide:
        """Return files as a side.

        Args:
            files: By path from the top.
            folder: Where paths of the side begin; empty for the top.
        """
        start = len(folder) + 1 if folder else 0
        return StoredSide(
            label=label,
            kind=SideKind.GIT,
            is_tree=is_tree,
            place=f"git:{revision}:{folder or '.'}",
            contents={path[start:]: name for path, name in files.blobs.items()},
            closed={path[start:]: reason for path, reason in files.closed.items()},
            read=self._objects.read,
            read_head=lambda name: self._objects.read_head(name, HEAD_BYTES),
            recognized=self._recognized,
        )


def list_files(commit: str, inside: str, objects: ObjectReader) -> CommitFiles:
    """Return the files at or below a path, also behind links, by path from the top."""
    blobs = [*iter_blobs(commit, cwd=objects.cwd, path=inside)]
    is_behind_link = not blobs and has_link_above(commit, inside, cwd=objects.cwd)
    if not is_behind_link and not any(blob.is_link for blob in blobs):
        return CommitFiles(blobs={blob.path: blob.name for blob in blobs if blob.is_file})
    if inside:
        blobs = [*iter_blobs(commit, cwd=objects.cwd)]
    return resolve_links(blobs, inside, objects.read)


def _from_top(path: str, *, top: Path, cwd: Path) -> str:
    is_relative = path in (".", "..") or path.startswith(("./", "../"))
    return _below(cwd / path, top) if is_relative else path.strip("/")


def _below(path: Path, top: Path) -> str:
    """Return a path from the top of the work tree; the file may be gone from disk.

    A link to a file is a file of its own, so what it leads to here does not count.
    """
    real = Path(os.path.realpath(path))
    if not path.is_dir():
        real = Path(os.path.realpath(path.parent)) / path.name
    try:
        inside = real.relative_to(os.path.realpath(top)).as_posix()
    except ValueError as error:
        raise HistoryError("outside of the work tree", where=str(path), got=str(top)) from error
    return "" if inside == "." else inside


class GitHistory:
    """The commits of the current branch that touch the bank at `root`.

    Those are the commits that touch a bank file or a side-car, by its name; files under other
    names count that the newest commit holds records in. A repository of sources has thousands of
    others, which git passes over before they are seen here.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def kind(self) -> SideKind:
        return SideKind.GIT

    def iter_versions(self, names: Collection[str] = ()) -> Iterator[Version]:
        """Yield the commits, newest first.

        As in `git log`, a branch that left nothing of its own is passed over; with names none is.
        """
        if names:
            return self._log(["--full-history", "--parents", "HEAD"], self._pathspecs(names))
        return self._log(["--parents", "HEAD"], self._all_banks)

    def get(self, reference: str) -> Version:
        """Return the commit a revision means, whether it touches the bank or not."""
        commit = get_commit(reference, cwd=self._top)
        return next(self._log(["--no-walk=unsorted", commit]))

    def side(self, version: str) -> StoredSide:
        """Return the bank as a commit has it; one without the bank gives an empty side."""
        if not version:
            return empty_side(self.kind)
        commit = get_commit(version, cwd=self._top)
        files = self._listing(commit)
        return self._make_side(files, version) if files.paths() else empty_side(self.kind)

    def files(self, version: str, names: Collection[str] = ()) -> StoredSide:
        """Return some files of a commit, by default all of the bank, and nothing else."""
        wanted = tuple(sorted(names))
        if wanted and wanted not in self._readers:
            pathspecs = self._pathspecs(wanted)
            self._readers[wanted] = TreeReader(pathspecs, objects=self._objects)
        reader = self._readers[wanted] if wanted else self._banks
        files = CommitFiles(blobs=reader.files(version))
        if reader.links or (version and self._has_links):
            files = self._listing(version)
            files = files.only([f"{self._start}{name}" for name in names]) if names else files
        return self._open_side(files, version)

    def changes(self, version: Version) -> tuple[StoredSide, StoredSide]:
        """Return both sides of a commit: the bank files that differ from its first parent's."""
        parent = version.parents[0] if version.parents else ""
        before, after = CommitFiles(), CommitFiles()
        for path, (old, new) in self._banks.differences(parent, version.id).items():
            if old is not None:
                before.blobs[path] = old
            if new is not None:
                after.blobs[path] = new
        if self._has_links or self._banks.met_links:  # a link changes with what it leads to
            before = self._listing(parent) if parent else CommitFiles()
            after = self._listing(version.id)
        return self._open_side(before, parent), self._open_side(after, version.id)

    def counts(self) -> dict[str, Counts]:
        """Return nothing: a commit is compared with its parent when it is asked for."""
        return {}

    @property
    def has_files(self) -> bool:
        """True if the bank lies on disk: a bare repository has commits alone."""
        return find_work_tree(self.root) is not None

    @cached_property
    def _top(self) -> Path:
        top = find_top(self.root)
        if top is None or find_commit("HEAD", cwd=top) is None:
            problem = "not in a git work tree" if top is None else "no commit yet"
            raise HistoryError(problem, where=str(self.root), hint="aoebank snapshot")
        return top

    @cached_property
    def _inside(self) -> str:
        return _below(self.root, self._top)

    @property
    def _start(self) -> str:
        """Return the prefix of the bank's paths, counted from the top of the work tree."""
        return f"{self._inside}/" if self._inside else ""

    def _listing(self, commit: str) -> CommitFiles:
        """Return all files of the bank, also behind links; commits are asked for in a row."""
        if commit not in self._listings:
            while len(self._listings) >= _KEPT_LISTINGS:
                del self._listings[next(iter(self._listings))]
            self._listings[commit] = list_files(commit, self._inside, self._objects)
        return self._listings[commit]

    @cached_property
    def _listings(self) -> dict[str, CommitFiles]:
        return {}

    @cached_property
    def _newest(self) -> CommitFiles:
        return self._listing(get_commit("HEAD", cwd=self._top))

    @property
    def _has_links(self) -> bool:
        """True if the newest commit has links; links of others show when a change meets one."""
        return any(map(_is_bank_like, (*self._newest.targets, *self._newest.closed)))

    @cached_property
    def _objects(self) -> ObjectReader:
        return ObjectReader(self._top)

    @cached_property
    def _store(self) -> _Store:
        return _Store(self._objects)

    @cached_property
    def _banks(self) -> TreeReader:
        return TreeReader(self._all_banks, objects=self._objects)

    @cached_property
    def _readers(self) -> dict[tuple[str, ...], TreeReader]:
        return {}

    @cached_property
    def _all_banks(self) -> tuple[str, ...]:
        """Return the pathspecs of bank files and side-cars."""
        newest = self._open_side(self._newest, "HEAD")
        others = [name for name in newest.names() if find_format(Path(name)) is None]
        globs = [*bank_globs(), f"*{SUFFIX}"]
        if len(others) > _MANY_NAMES:  # a command line takes only so many
            globs, others = [*globs, "*.json"], []
        place = _escape(self._start)
        return (
            *(f":(top,glob){place}**/{glob}" for glob in globs),
            *self._pathspecs(others),
            *self._pathspecs_of_targets([*filter(_is_bank_like, self._newest.targets)]),
        )

    def _pathspecs(self, names: Collection[str]) -> tuple[str, ...]:
        places = [f"{self._start}{name}" for name in names]
        own = (f":(top,literal){place}" for place in places)
        return (*own, *self._pathspecs_of_targets(places))

    def _pathspecs_of_targets(self, places: Collection[str]) -> tuple[str, ...]:
        """Return the pathspecs of what links lead to: a commit that changes it changes them."""
        targets = self._newest.targets
        found = {targets[place] for place in places if place in targets}
        return tuple(f":(top,literal){target}" for target in sorted(found)[:_MANY_NAMES])

    def _make_side(self, files: CommitFiles, commit: str) -> StoredSide:
        return self._store.side(files, self._inside, label=f"git:{commit}", revision=commit)

    def _open_side(self, files: CommitFiles, commit: str) -> StoredSide:
        """Return files of a commit that can be read; of others it is said once that they are none.

        Nobody can mend a commit: one link to nowhere would close its whole history.
        """
        side = self._make_side(files, commit)
        for name, reason in side.closed.items():
            if name not in self._told and find_format(Path(name)) is not None:
                self._told.add(name)
                note(f"{side.place}/{name}: cannot be read: {reason}; counted as no file")
        return replace(side, closed={})

    @cached_property
    def _told(self) -> set[str]:
        return set()

    def _log(self, arguments: list[str], pathspecs: tuple[str, ...] = ()) -> Iterator[Version]:
        options = ("--encoding=UTF-8", "--decorate=short", "--decorate-refs=refs/tags/")
        output = iter_git(
            ["log", "-z", f"--format={_FORMAT}", *options, *arguments, "--", *pathspecs],
            cwd=self._top,
        )
        fields = (field.decode("utf-8", errors="replace") for field in output)
        # as many at a time as a commit has
        for commit, parents, who, time, names, message in zip(
            *[fields] * len(_FIELDS), strict=True
        ):
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
    """True if the newest commit holds bank files of a bank, as their names tell."""
    try:
        top = find_top(root)
        if top is None or find_commit("HEAD", cwd=top) is None:
            return False
        inside = os.path.relpath(os.path.realpath(root), os.path.realpath(top))
        blobs = iter_blobs("HEAD", cwd=top, path="" if inside == "." else inside)
        return any(find_format(Path(blob.path)) for blob in blobs)
    except HistoryError:  # no git on this machine
        return False


def _is_bank_like(path: str) -> bool:
    place = Path(path)
    return may_be_bank(place) or path.endswith(SUFFIX) or find_format(place) is not None


def _escape(path: str) -> str:
    """Return a path as a pattern that means it alone."""
    return "".join(f"\\{letter}" if letter in "\\*?[]" else letter for letter in path)


def _utc(text: str) -> str:
    moment = datetime.fromisoformat(text).astimezone(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
