"""The journal of a change of many files: what a process that died left half done is put back.

One JSON object per line, each written before what it tells of happens:

    {"folder": P}      P is going to be made
    {"temporary": P}   P is going to be written: new content, or the old one kept
    {"change": {...}}  what a file was, what it becomes, and where both are kept
    {"tree": {...}}    on disk: a whole folder is going to get its name; SHA-256 of its files
    {"mark": "begin"}  on disk; from here on files change
    {"mark": "done"}   on disk; all of them have

Until "done" nothing has happened: whoever finds the journal of a dead process puts back every file
that is as the journal would have it. A file somebody else changed since is left alone. Paths are
from the folder of the journal, so a tree may be moved in between. A folder that got its name is
whole; it goes only for the command that makes it once more, and only if nobody touched it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from aoebank.errors import AoebankError, BankPathError, shell_word
from aoebank.storage.writing.atomic import (
    FILE_MODE,
    LOCK_TIMEOUT_S,
    TEMPORARY_SUFFIX,
    NotedChange,
    digest_of_file,
    give_to_owner_of,
    hold_lock,
    make_directories,
    put_back,
    sync_directory,
    temporary_path,
    write_synced,
    written_place,
)

_BEGIN, _DONE = "begin", "done"
_MOST_CHARACTERS = 200  # of a name; file systems take 255 bytes
# members that are files or whole folders; other folders only go when empty
_FILES = ("temporary", "path", "kept", "beside", "place")
_OF_A_CHANGE = {"path", "kept", "old_sha256", "new_sha256"}


@dataclass(slots=True)
class Journal:
    """A journal that is being written; its lock is held."""

    path: Path
    _stream: BinaryIO

    def folder(self, path: Path) -> None:
        """Note that a folder is going to be made."""
        self._write({"folder": self._name(path)})

    def temporary(self, path: Path) -> None:
        """Note that a file is going to be written that nobody is to keep."""
        self._write({"temporary": self._name(path)})

    def begin(self, changes: Iterable[NotedChange]) -> None:
        """Note, on disk, what is going to change."""
        for change in changes:
            members = {
                "path": self._name(change.path),
                "kept": None if change.kept is None else self._name(change.kept),
                "old_sha256": change.old_sha256,
                "new_sha256": change.new_sha256,
            }
            self._write({"change": members})
        self._mark(_BEGIN)

    def tree(self, beside: Path, place: Path, files: Mapping[Path, str]) -> None:
        """Note, on disk, that a folder is going to be renamed.

        Args:
            files: SHA-256 of each of its files, by their paths below it.
        """
        names = {path.as_posix(): sha256 for path, sha256 in files.items()}
        members = {"beside": self._name(beside), "place": self._name(place), "files": names}
        self._write({"tree": members})
        os.fsync(self._stream.fileno())

    def done(self) -> None:
        """Note, on disk, that all has changed."""
        self._mark(_DONE)

    def _mark(self, mark: str) -> None:
        self._write({"mark": mark})
        os.fsync(self._stream.fileno())
        sync_directory(self.path.parent)

    def _write(self, line: object) -> None:
        self._stream.write(json.dumps(line).encode("ascii") + b"\n")

    def _name(self, path: Path) -> str:
        return os.path.relpath(path, self.path.parent)


@contextmanager
def open_journal(path: Path, *, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[Journal]:
    """Give a new journal; what is not `done` at the end is put back, and the journal goes.

    Raises:
        BankLockedError: another process is at it.
    """
    with written_place(path, path.parent) as real:
        missing = [folder for folder in (real.parent, *real.parent.parents) if not folder.exists()]
        make_directories(real.parent)
        while True:
            with hold_lock(real, timeout_s=timeout_s) as exists:
                if exists:
                    _put_back(real)
            try:
                descriptor = os.open(real, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE)
            except FileExistsError:
                continue
            give_to_owner_of(real.parent, descriptor)
            with os.fdopen(descriptor, "wb", buffering=0) as stream, hold_lock(real) as is_ours:
                if not is_ours:  # somebody took it for one a dead process left
                    continue
                journal = Journal(real, stream)
                for folder in reversed(missing):
                    journal.folder(folder)
                try:
                    yield journal
                finally:
                    _put_back(real)
                return


def tree_journal(path: Path) -> Path:
    """Return the journal of a merge, or an edit, of many files below a folder."""
    return path / f".merge{TEMPORARY_SUFFIX}"


def file_journal(path: Path, verb: str) -> Path:
    """Return the journal of a verb that writes one file or a new folder, beside that."""
    return path.with_name(f".{path.name[:_MOST_CHARACTERS]}.{verb}{TEMPORARY_SUFFIX}")


def demand_whole(path: Path) -> None:
    """Raise `BankPathError` if a merge into this file or tree, or a tree above, was cut off."""
    real = Path(os.path.realpath(path))
    own = [(real, file_journal(real, "merge"))] if real.name else []  # `/` has no name
    places = [*own, *((top, tree_journal(top)) for top in (real, *real.parents))]
    for merged, journal in places:
        if journal.exists():
            raise BankPathError(
                "a merge or an edit was cut off here, or still runs",
                path=merged,
                expected="one that came to its end",
                hint="run that command again: it first puts back what it had changed",
            )


def put_back_merge(path: Path, *, takes_tree: bool = False) -> None:
    """Undo a merge into a file or a tree, or an edit there, whose process died in the middle.

    Args:
        takes_tree: Whether a new tree goes too that was whole: the merge makes it once more.

    Raises:
        BankLockedError: it lives.
    """
    real = Path(os.path.realpath(path))  # `.` has no name
    own = [file_journal(real, "merge")] if real.name else []
    for journal in (tree_journal(real), *own):
        roll_back(journal, takes_tree=takes_tree)


def roll_back(path: Path, *, timeout_s: float = LOCK_TIMEOUT_S, takes_tree: bool = False) -> None:
    """Undo what a dead process left half done, if there is such a journal.

    Args:
        takes_tree: Whether a folder that got its name goes too, for it is made once more.

    Raises:
        BankLockedError: its process lives.
    """
    if path.exists():
        with written_place(path, path.parent) as real, hold_lock(real, timeout_s=timeout_s) as held:
            if held:
                _put_back(real, takes_tree=takes_tree)


def _put_back(journal: Path, *, takes_tree: bool = False) -> None:
    folder = journal.parent
    lines = [*_read(journal)]
    _demand_own(lines, journal)
    marks = {line.get("mark") for line in lines}
    if takes_tree:
        for tree in filter(None, (line.get("tree") for line in lines)):
            _take_tree(tree, folder)
            _demand_own(lines, journal)  # a link in it may lead elsewhere from its new place
    if _BEGIN in marks and _DONE not in marks:
        changes = [members for line in lines if isinstance(members := line.get("change"), dict)]
        _undo_all(_change(members, folder) for members in changes)
    for line in lines:
        if "temporary" in line:
            _place(line["temporary"], folder).unlink(missing_ok=True)
    journal.unlink(missing_ok=True)
    if _DONE not in marks or takes_tree:
        folders = [_place(line["folder"], folder) for line in lines if "folder" in line]
        for made in sorted(folders, key=lambda made: -len(made.parts)):
            with contextlib.suppress(OSError):  # not empty: somebody else uses it
                made.rmdir()
    if folder.is_dir():
        sync_directory(folder)


def _take_tree(members: object, folder: Path) -> None:
    """Take a folder its name again, unless somebody changed what is in it."""
    if not isinstance(members, dict):
        return
    beside, place = (_place(members.get(name), folder) for name in ("beside", "place"))
    if place.is_symlink() or not place.is_dir() or os.path.lexists(beside):
        return
    found = {
        path.relative_to(place).as_posix(): digest_of_file(path)
        for path in place.rglob("*")
        if path.is_file()
    }
    if found == members.get("files"):
        place.rename(beside)


def _undo_all(changes: Iterable[NotedChange]) -> None:
    """Undo every change, whatever becomes of the others; then raise what came first."""
    failed = []
    for change in changes:
        try:
            put_back(change)
        except (OSError, AoebankError) as error:
            failed.append(error)
    if failed:
        raise failed[0]  # the journal stays: the next one tries again


def _read(journal: Path) -> Iterator[dict[str, object]]:
    """Yield the lines; the last one may be torn."""
    for text in journal.read_bytes().split(b"\n") if journal.exists() else ():
        with contextlib.suppress(ValueError):
            line = json.loads(text)
            if isinstance(line, dict):
                yield line


def _demand_own(lines: Iterable[dict[str, object]], journal: Path) -> None:
    """Raise `BankPathError` for a journal no merge wrote: of files elsewhere, or in pieces.

    A tree may come from others, and what stands in a journal is renamed and removed.
    """
    for line in lines:
        change = line.get("change")
        if isinstance(change, dict) and not change.keys() >= _OF_A_CHANGE:
            raise _foreign("a change without all of its members", journal, json.dumps(change))
        # every level: nobody keeps a foreign line from having members beside `change` or `tree`
        for members in (line, change, line.get("tree")):
            for name in map(members.get, _FILES) if isinstance(members, dict) else ():
                if name and not _is_inside(name, journal.parent):
                    raise _foreign("a file outside of its folder", journal, name)


def _is_inside(name: object, folder: Path) -> bool:
    real = Path(os.path.realpath(_place(name, folder)))
    # no merge writes into `.git`, and git runs the hooks that lie in it
    return real.is_relative_to(folder) and ".git" not in real.relative_to(folder).parts


def _foreign(what: str, journal: Path, got: object) -> BankPathError:
    return BankPathError(
        f"journal of a merge that was cut off tells of {what}",
        path=journal,
        got=got,
        expected="one that a merge wrote here",
        hint=f"look where it comes from, then rm {shell_word(journal)}",
    )


def _change(members: dict[str, str | None], folder: Path) -> NotedChange:
    kept = members["kept"]
    return NotedChange(
        path=_place(members["path"], folder),
        kept=None if kept is None else _place(kept, folder),
        old_sha256=members["old_sha256"],
        new_sha256=members["new_sha256"],
    )


def _place(name: object, folder: Path) -> Path:
    return Path(os.path.normpath(folder / str(name)))


@dataclass(slots=True)
class NewTree:
    """Files of a folder that is not there yet; the journal knows all of them."""

    path: Path  # Where it is going to be, without links
    _journal: Journal
    _folders: dict[Path, None] = field(default_factory=dict)
    _beside: Path = field(init=False)
    _digests: dict[Path, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._beside = temporary_path(self.path)

    def write(self, path: Path, data: bytes, *, mode: int = FILE_MODE) -> None:
        """Write a file of the tree, on disk when this returns.

        Args:
            path: Where it is going to be.
        """
        place = self._beside / path.relative_to(self.path)
        self._make(place.parent)
        self._journal.temporary(place)
        write_synced(place, data, mode=mode, like=place.parent)
        self._digests[path.relative_to(self.path)] = hashlib.sha256(data).hexdigest()

    def put_in_place(self) -> None:
        """Give the tree its name; readers see no tree, or the whole tree.

        Raises:
            BankPathError: something else has that name by now.
        """
        if not self._folders:
            return
        for folder in self._folders:
            sync_directory(folder)
        self._journal.tree(self._beside, self.path, self._digests)
        try:
            os.rename(self._beside, self.path)  # noqa: PTH104
        except OSError as error:
            if not os.path.lexists(self.path):
                raise
            raise BankPathError(
                "came into being meanwhile, so it is left as it is",
                path=self.path,
                hint="run the command again",
            ) from error
        sync_directory(self.path.parent)

    def _make(self, folder: Path) -> None:
        missing = [place for place in (folder, *folder.parents) if place not in self._folders]
        for place in reversed(missing):
            if place.is_relative_to(self._beside):
                self._journal.folder(place)
                make_directories(place)
                self._folders[place] = None
