"""Everything that writes into a bank: many files together, or one as it is under its lock.

What is made from files as they were read goes through `write_files`: nothing is touched before
everything is written beside them. A full disk, a read-only folder or a kill while the new contents
are written leaves every file as it was. Then each is checked and renamed under its own lock; a
kill among the renames leaves some files new and some old, each of them whole. With a journal the
next one who uses it puts all of them back, and what fails among the renames is put back at once.
A folder that was not there before is made beside its place and appears by one rename.

What is made from a file as it is at that moment, whoever wrote it last, goes through `update_file`:
records put into a bank, lines added to a side-car, entries of the quarantine. There a file that
was changed meanwhile is no error but what the change is for.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from aoebank.errors import BankNotFoundError, BankPathError
from aoebank.model.digest import sha256_of
from aoebank.storage.writing.atomic import (
    FILE_MODE,
    LOCK_TIMEOUT_S,
    NotedChange,
    create,
    digest_of_file,
    give_to_owner_of,
    hold_lock,
    make_directories,
    real_place,
    replace,
    sync_directory,
    synced_temporary,
    system_errors_explained,
    temporary_path,
    written_place,
)
from aoebank.storage.writing.journal import (
    Journal,
    NewTree,
    open_journal,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWrite:
    """The content a file is to have.

    Attributes:
        data: None if the file is to go.
        old_sha256: Of what is there now, as the caller read it; None: nothing is.
        mode: Permissions of a new file.
    """

    path: Path
    data: bytes | None
    old_sha256: str | None = None
    mode: int = FILE_MODE


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """One file to write or to remove.

    Attributes:
        shown: As the caller wrote it, for messages; `path` has no links.
        temporary: Holds the new content; None if the file is to go.
        sha256: Of what must still be there; None if there must be nothing.
        new_sha256: Of the new content; None if the file is to go.
    """

    shown: Path
    path: Path
    temporary: Path | None
    sha256: str | None
    new_sha256: str | None


@dataclass(slots=True)
class StagedChanges:
    """New contents that wait for `commit`; see `staged_changes`."""

    _stack: ExitStack
    _journal: Journal | None = None
    _root: Path | None = None
    _tree: NewTree | None = None
    _lock_timeout_s: float = LOCK_TIMEOUT_S
    _changes: list[_Change] = field(default_factory=list)
    _of_tree: list[Path] = field(default_factory=list)

    def stage(
        self, path: Path, data: bytes | None, *, old_sha256: str | None, mode: int = FILE_MODE
    ) -> None:
        """Put `data` beside `path`, to become its content; nothing is to do where it is that.

        Args:
            data: None: the file is to go.
            old_sha256: Of what is there now, as the caller knows it; None: nothing is.
            mode: Permissions of a new file.
        """
        new_sha256 = sha256_of(data)
        if new_sha256 == old_sha256:
            return
        temporary = None
        with written_place(path, self._root) as real:
            if self._tree is not None and data is not None:
                self._tree.write(real, data, mode=mode)
                self._of_tree.append(path)
                return
            if real.exists() and not os.access(real, os.W_OK):
                raise PermissionError(real)
            if data is not None:
                self._make_directories(real.parent)
                mode = real.stat().st_mode & 0o777 if real.exists() else mode
                announce = self._journal.temporary if self._journal else None
                temporary = self._stack.enter_context(
                    synced_temporary(real, data, mode=mode, announce=announce)
                )
            change = _Change(
                shown=path,
                path=real,
                temporary=temporary,
                sha256=old_sha256,
                new_sha256=new_sha256,
            )
            self._changes.append(change)

    def commit(self) -> tuple[Path, ...]:
        """Put all of it in place and return the paths, as they were given.

        Raises:
            BankPathError: a file is not what it was, so nothing is changed; or it became
                another one in the very moment, then the message tells how many are written.
        """
        for change in self._changes:
            with system_errors_explained(change.shown):
                _demand_unchanged(change)
        if self._tree is not None:
            with system_errors_explained(self._tree.path):
                self._tree.put_in_place()
        if self._journal is not None:
            self._journal.begin([*map(self._keep, self._changes)])
        done = [*self._of_tree]
        for change in self._changes:
            try:
                with system_errors_explained(change.shown):
                    _commit(change, self._lock_timeout_s)
            except BankPathError as error:
                if done and self._journal is None:
                    error.hint = f"{len(done)} of {len(self._changes)} files are written by now"
                raise
            done.append(change.shown)
        if self._journal is not None:
            self._journal.done()
        return tuple(done)

    def _keep(self, change: _Change) -> NotedChange:
        """Keep the content a file has now, until all have changed."""
        assert self._journal is not None
        kept = None
        if change.path.exists():
            kept = temporary_path(change.path)
            self._journal.temporary(kept)
            try:
                os.link(change.path, kept)
            except OSError:  # a file system without hard links
                data, mode = change.path.read_bytes(), change.path.stat().st_mode & 0o777
                with synced_temporary(kept, data, mode=mode) as copy:
                    give_to_owner_of(change.path, copy)
                    copy.replace(kept)
        return NotedChange(
            path=change.path, kept=kept, old_sha256=change.sha256, new_sha256=change.new_sha256
        )

    def _make_directories(self, path: Path) -> None:
        """Make a directory; what is empty at the end goes again."""
        for folder in reversed((path, *path.parents)):
            if not folder.exists():
                self._stack.callback(_remove_empty, folder)
                if self._journal is not None:
                    self._journal.folder(folder)
        make_directories(path)


@contextmanager
def staged_changes(
    journal: Path | None = None,
    *,
    root: Path | None = None,
    is_new_tree: bool = False,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
) -> Iterator[StagedChanges]:
    """Give changes to fill; what is not committed at the end leaves no trace.

    Args:
        journal: Where to note them, so that not even a kill leaves half of them: `roll_back`.
        root: No link may lead a change out of this tree; None: a person named each file.
        is_new_tree: Whether `root` is not there yet: then it appears all at once, and needs a
            journal that is not in it.
        lock_timeout_s: How long to wait for another writer of the journal or of a file.

    Raises:
        BankLockedError: another process uses this journal.
    """
    with ExitStack() as stack:
        noted = tree = None
        if journal is not None:
            noted = stack.enter_context(open_journal(journal, timeout_s=lock_timeout_s))
        if is_new_tree:
            assert noted is not None
            assert root is not None
            tree = NewTree(Path(os.path.realpath(root)), noted)
        yield StagedChanges(stack, noted, root, tree, lock_timeout_s)


def write_files(
    changes: Iterable[FileWrite],
    *,
    journal: Path | None = None,
    root: Path | None = None,
    is_new_tree: bool = False,
) -> tuple[Path, ...]:
    """Write many files, with a journal all or none; return the paths of those that changed.

    Args:
        changes: One at a time in memory.
        journal: As `staged_changes` has it; so are `root` and `is_new_tree`.

    Raises:
        BankLockedError: another process uses this journal, or a file.
        BankPathError: a file cannot be written, or is not what it was.
    """
    with staged_changes(journal, root=root, is_new_tree=is_new_tree) as staged:
        for change in changes:
            staged.stage(change.path, change.data, old_sha256=change.old_sha256, mode=change.mode)
        return staged.commit()


def update_file(
    path: Path, edit: Callable[[bytes | None], bytes], *, root: Path | None = None
) -> None:
    """Replace the content of `path` by what `edit` makes of it, under its lock.

    Args:
        edit: Gets the current bytes, read under the lock, or None if there is no file. May
            be called again when another writer was first to create the file.
        root: No link may lead the write out of this tree; None: a person named the file.
    """
    with system_errors_explained(path):
        path = real_place(path, root)
        make_directories(path.parent)
        while True:
            with hold_lock(path) as exists:
                if exists:
                    _update(path, edit)
                    return
            with synced_temporary(path, edit(None), mode=FILE_MODE) as temporary:
                if create(temporary, path):
                    return


def rename_file(
    path: Path, suffix: str, is_meant: Callable[[bytes], bool], *, root: Path | None = None
) -> Path | None:
    """Give a file a name with a suffix behind, under its lock; numbered where that is taken.

    Args:
        is_meant: Asked about the bytes read under the lock.
        root: No link may lead out of this tree; None: a person named the file.

    Returns:
        The new name, None if there is no such file, or it is not meant.
    """
    with system_errors_explained(path):
        path = real_place(path, root)
        with hold_lock(path) as exists:
            if not exists or not is_meant(path.read_bytes()):
                return None
            names = (f"{path.name}{suffix}{number or ''}" for number in count())
            other = next(place for name in names if not (place := path.with_name(name)).exists())
            path.rename(other)
            sync_directory(path.parent)
            return other


def _update(path: Path, edit: Callable[[bytes | None], bytes]) -> None:
    old = path.read_bytes()
    new = edit(old)
    if new != old:
        with synced_temporary(path, new, mode=path.stat().st_mode & 0o777) as temporary:
            replace(temporary, path)


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _demand_unchanged(change: _Change) -> None:
    found = digest_of_file(change.path)
    if found is None and change.sha256 is not None:
        if change.temporary is not None:
            raise BankNotFoundError("file was removed meanwhile", path=change.shown)
    elif found != change.sha256:
        raise _changed(change)


def _changed(change: _Change) -> BankPathError:
    return BankPathError(
        "file was changed meanwhile, so it is left as it is",
        path=change.shown,
        hint="run the command again",
    )


def _commit(change: _Change, lock_timeout_s: float) -> None:
    if change.sha256 is None:
        assert change.temporary is not None
        if not create(change.temporary, change.path):
            raise _changed(change)
        return
    with hold_lock(change.path, timeout_s=lock_timeout_s):
        _demand_unchanged(change)
        if change.temporary is not None:
            replace(change.temporary, change.path)
        else:
            change.path.unlink(missing_ok=True)
            sync_directory(change.path.parent)
