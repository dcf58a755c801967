"""The files of a commit, with what links in it lead to, as a walk through a tree on disk has them.

A link to a file is a file with that content, and a link to a folder is walked unless the folder
is in the tree already: the same as `storage.tree` makes of files on disk. What a link leads to is
looked up in the commit, so one that leads out of the repository cannot be read.
"""

from __future__ import annotations

import os
import posixpath
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

from aoebank.storage.git.program import Blob

OUTSIDE = "link out of the repository"
NOWHERE = "link to nowhere"
_MOST_STEPS = 40  # links on one way, as Linux has it


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFiles:
    """Files of a commit by their paths from the top, files behind links included."""

    blobs: dict[str, str] = field(default_factory=dict)  # Object names
    closed: dict[str, str] = field(default_factory=dict)  # Why a link cannot be read
    # What the files behind links are called in the commit itself.
    targets: dict[str, str] = field(default_factory=dict)

    def paths(self) -> set[str]:
        """Return the paths of all files, unreadable ones included."""
        return {*self.blobs, *self.closed}

    def plus(self, other: CommitFiles) -> CommitFiles:
        """Return these files and others."""
        return CommitFiles(
            blobs=self.blobs | other.blobs,
            closed=self.closed | other.closed,
            targets=self.targets | other.targets,
        )

    def only(self, paths: Collection[str]) -> CommitFiles:
        """Return the files of these paths."""
        members = (
            {path: member[path] for path in paths if path in member}
            for member in (self.blobs, self.closed, self.targets)
        )
        blobs, closed, targets = members
        return CommitFiles(blobs=blobs, closed=closed, targets=targets)


class _LinkError(Exception):
    """Reason why a link leads to nothing here."""


def resolve_links(blobs: Iterable[Blob], inside: str, read: Callable[[str], bytes]) -> CommitFiles:
    """Return the files at or below a path of a commit.

    Args:
        blobs: All files of the commit.
        inside: The path, which may be a link or lie behind one; empty for the top.
        read: Returns the content of a blob by its object name.
    """
    tree = _Tree(blobs, read)
    found = CommitFiles()
    try:
        real = tree.resolve(inside)
    except _LinkError as error:
        if inside in tree.blobs:
            found.closed[inside] = str(error)
        return found
    if real in tree.blobs:
        found.blobs[inside] = tree.blobs[real].name
        if real != inside:
            found.targets[inside] = real
    else:
        tree.walk(inside, real, found)
    return found


class _Tree:
    """All files of a commit, by folder."""

    def __init__(self, blobs: Iterable[Blob], read: Callable[[str], bytes]) -> None:
        self.blobs = {blob.path: blob for blob in blobs}
        self._target_of = cache(lambda name: os.fsdecode(read(name)))
        self._files: dict[str, list[str]] = defaultdict(list)
        self._folders: dict[str, set[str]] = {"": set()}
        for path in sorted(self.blobs):
            folder = posixpath.dirname(path)
            self._files[folder].append(path)
            while folder and folder not in self._folders:
                self._folders[folder] = set()
                folder = posixpath.dirname(folder)
        for folder in filter(None, self._folders):
            self._folders[posixpath.dirname(folder)].add(folder)

    def resolve(self, path: str) -> str:
        """Return the file or folder a path leads to.

        Raises:
            _LinkError: a link on the way leads to nothing here.
        """
        todo = deque(part for part in path.split("/") if part not in ("", "."))
        real, steps = "", 0
        while todo:
            part = todo.popleft()
            if part == "..":
                if not real:
                    raise _LinkError(OUTSIDE)
                real = posixpath.dirname(real)
                continue
            real = posixpath.join(real, part)
            blob = self.blobs.get(real)
            if blob is None or not blob.is_link:
                continue
            target, steps = self._target_of(blob.name), steps + 1
            if target.startswith("/"):
                raise _LinkError(OUTSIDE)
            if steps > _MOST_STEPS:
                raise _LinkError(NOWHERE)
            todo.extendleft(reversed([one for one in target.split("/") if one not in ("", ".")]))
            real = posixpath.dirname(real)
        if real not in self.blobs and real not in self._folders:
            raise _LinkError(NOWHERE)
        return real

    def walk(self, shown: str, real: str, found: CommitFiles) -> None:
        """Add the files of a folder, links to folders last; no folder is walked twice."""
        seen: set[str] = set()
        links = deque([(shown, real)])
        while links:
            for place, folder in self._iter_folders(*links.popleft(), seen):
                for path in self._files[folder]:
                    name = posixpath.join(place, posixpath.basename(path))
                    links += self._add(name, path, found)

    def _iter_folders(self, shown: str, real: str, seen: set[str]) -> Iterator[tuple[str, str]]:
        """Yield a folder and its subfolders, unless walked before; hidden ones may be again."""
        folders = [(shown, real, False)]
        while folders:
            place, folder, is_hidden = folders.pop()
            if folder in seen:
                continue
            if not is_hidden:
                seen.add(folder)
            yield place, folder
            for below in sorted(self._folders[folder], reverse=True):
                name = posixpath.basename(below)
                hidden = is_hidden or name.startswith(".")
                folders.append((posixpath.join(place, name), below, hidden))

    def _add(self, name: str, path: str, found: CommitFiles) -> Iterator[tuple[str, str]]:
        """Add a file under a name; yield what a link to a folder leads to."""
        blob = self.blobs[path]
        if blob.is_file:
            found.blobs[name] = blob.name
            if name != path:
                found.targets[name] = path
        if not blob.is_link:
            return
        try:
            real = self.resolve(path)
        except _LinkError as error:
            found.closed[name] = str(error)
            return
        if real in self.blobs:
            found.blobs[name] = self.blobs[real].name
            found.targets[name] = real
        elif not f"{posixpath.dirname(path)}/".startswith(f"{real}/" if real else ""):
            yield name, real
