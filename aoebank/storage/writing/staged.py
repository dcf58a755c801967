"""Everything that writes into a bank: many files together, or one as it is under its lock.

What is made from files as they were read goes through `write_files`: nothing is touched before
everything is written beside them. A full disk, a read-only folder or a kill while the new contents
are written leaves every file as it was. Then each is checked and renamed under its own lock; a
kill among the renames leaves some files new and some old, each of them whole. With a journal the
next one who uses it puts all of them back, and what fails among the renames is put back at once.
A folder that was not there before is made beside its place and appears by one rename.

A link in the tree is a file of its own: see `links`.

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
from aoebank.storage.writing.links import Links, count_steps, find_links, note_replaced


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWrite:
    """The content a file is to have."""

    path: Path
    data: bytes | None  # None if the file is to go
    old_sha256: str | None = None  # Of what is there now, as the caller read it; None: nothing is
    mode: int = FILE_MODE  # Permissions of a new file
    # No link may lead this change out of the tree; None: that of all changes.
    root: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """One file to write or to remove."""

    shown: Path  # As the caller wrote it, for messages; `path` has no links in its folder
    path: Path
    temporary: Path | None  # Holds the new content; None if the file is to go
    sha256: str | None  # Of what must still be there; None if there must be nothing
    new_sha256: str | None  # Of the new content; None if the file is to go


@dataclass(slots=True)
class StagedChanges:
    """New contents that wait for `commit`; see `staged_changes`."""

    _stack: ExitStack
    _journal: Journal | None = None
    _root: Path | None = None
    _tree: NewTree | None = None
    _lock_timeout_s: float = LOCK_TIMEOUT_S
    _settles_links: bool = True
    _changes: dict[Path, _Change] = field(default_factory=dict)
    _roots: dict[Path, Path] = field(default_factory=dict)
    _of_tree: list[Path] = field(default_factory=list)

    def stage(
        self,
        path: Path,
        data: bytes | None,
        *,
        old_sha256: str | None,
        mode: int = FILE_MODE,
        root: Path | None = None,
    ) -> None:
        """Put `data` beside `path`, to become its content; nothing is to do where it is that.

        Args:
            data: None: the file is to go.
            old_sha256: Of what is there now, as the caller knows it; None: nothing is.
            mode: Permissions of a new file.
            root: The tree of this file; None: that of all changes.
        """
        new_sha256, root = sha256_of(data), root or self._root
        if new_sha256 == old_sha256:
            return
        with written_place(path, root) as real:
            if self._tree is not None and data is not None:
                self._tree.write(real, data, mode=mode)
                self._of_tree.append(path)
                return
            if root is not None:
                _demand_own_folder(path, real, root)
                self._roots.setdefault(Path(os.path.realpath(root)), root)
            self._add(path, real, data, old_sha256=old_sha256, mode=mode)

    def _add(
        self, path: Path, real: Path, data: bytes | None, *, old_sha256: str | None, mode: int
    ) -> None:
        if real.exists() and not os.access(real, os.W_OK):
            raise PermissionError(real)
        temporary = None
        if data is not None:
            self._make_directories(real.parent)
            mode = real.stat().st_mode & 0o777 if real.exists() else mode
            announce = self._journal.temporary if self._journal else None
            temporary = self._stack.enter_context(
                synced_temporary(real, data, mode=mode, announce=announce)
            )
        self._changes[real] = _Change(
            shown=path,
            path=real,
            temporary=temporary,
            sha256=old_sha256,
            new_sha256=sha256_of(data),
        )

    def _settle_links(self) -> Links:
        """Let each link of the trees show what was meant, as a link or as a file of its own."""
        links: dict[Path, Path] = {}
        for root in self._roots if self._settles_links else ():
            links |= find_links(root)
        coming = {path: change.new_sha256 for path, change in self._changes.items()}
        for link, target in links.items():
            if link in coming:
                shows = coming[target] if target in coming else digest_of_file(target)
                if shows == coming[link] is not None:
                    del self._changes[link]
            elif target in coming and link.exists():
                data = link.read_bytes()
                coming[link] = sha256_of(data)
                if coming[link] != coming[target]:
                    shown = self._shown(link)
                    self._add(shown, link, data, old_sha256=coming[link], mode=FILE_MODE)
        return links

    def _shown(self, path: Path) -> Path:
        """Return a path as the caller would have written it."""
        root = next(root for root in self._roots if path.is_relative_to(root))
        return self._roots[root] / path.relative_to(root)

    def commit(self) -> tuple[Path, ...]:
        """Put all files in place and return their paths, as they were given.

        Raises:
            BankPathError: a file is not what it was, so nothing is changed; or it became
                another one in the very moment, then the message tells how many are written.
        """
        links = self._settle_links()
        # a link first: it shows what it leads to, which must still be what the caller read
        changes = sorted(self._changes.values(), key=lambda one: -count_steps(one.path, links))
        for change in changes:
            with system_errors_explained(change.shown):
                _demand_unchanged(change)
        if self._tree is not None:
            with system_errors_explained(self._tree.path):
                self._tree.put_in_place()
        if self._journal is not None:
            self._journal.begin([*map(self._keep, changes)])
        replaced = {
            change.shown: change.path.readlink()
            for change in changes
            if change.temporary is not None and change.path.is_symlink()
        }
        done = [*self._of_tree]
        for change in changes:
            try:
                with system_errors_explained(change.shown):
                    _commit(change, self._lock_timeout_s)
            except BankPathError as error:
                if done and self._journal is None:
                    error.hint = f"{len(done)} of {len(changes)} files are written by now"
                raise
            done.append(change.shown)
        if self._journal is not None:
            self._journal.done()
        for link, target in replaced.items():
            note_replaced(link, target)
        return tuple(done)

    def _keep(self, change: _Change) -> NotedChange:
        """Keep the content a file has now, until all have changed."""
        assert self._journal is not None
        kept = None
        if change.path.exists():
            kept = temporary_path(change.path)
            self._journal.temporary(kept)
            if change.path.is_symlink():
                kept.symlink_to(change.path.readlink())
            else:
                _keep_file(change.path, kept)
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
    settles_links: bool = True,
) -> Iterator[StagedChanges]:
    """Give changes to fill; what is not committed at the end leaves no trace.

    Args:
        journal: Where to note them, so that not even a kill leaves half of them: `roll_back`.
        root: No link may lead a change out of this tree; None: a person named each file.
        is_new_tree: Whether `root` is not there yet: then it appears all at once, and needs a
            journal that is not in it.
        lock_timeout_s: How long to wait for another writer of the journal or of a file.
        settles_links: Whether links in the tree may lead to these files, which costs a walk.

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
        yield StagedChanges(stack, noted, root, tree, lock_timeout_s, settles_links)


def write_files(
    changes: Iterable[FileWrite],
    *,
    journal: Path | None = None,
    root: Path | None = None,
    is_new_tree: bool = False,
    settles_links: bool = True,
) -> tuple[Path, ...]:
    """Write many files, with a journal all or none; return the paths that changed.

    Args:
        changes: One at a time in memory.
        journal: As `staged_changes` has it; so are `root`, `is_new_tree` and `settles_links`.

    Raises:
        BankLockedError: another process uses this journal, or a file.
        BankPathError: a file cannot be written, or is not what it was.
    """
    with staged_changes(
        journal, root=root, is_new_tree=is_new_tree, settles_links=settles_links
    ) as staged:
        for change in changes:
            staged.stage(
                change.path,
                change.data,
                old_sha256=change.old_sha256,
                mode=change.mode,
                root=change.root,
            )
        return staged.commit()


def update_file(
    path: Path,
    edit: Callable[[bytes | None], bytes],
    *,
    root: Path | None = None,
    before: Callable[[], None] | None = None,
) -> None:
    """Replace the content of `path` by the result of `edit`, under its lock.

    Args:
        edit: Gets the current bytes, read under the lock, or None if there is no file. May
            be called again when another writer was first to create the file.
        root: No link may lead the write out of this tree; None: a person named the file.
        before: Called once when the new content is on disk and has not got the name yet; where it
            raises, the file stays as it was.
    """
    waiting = [] if before is None else [before]

    def act_first() -> None:
        while waiting:
            waiting.pop()()

    with system_errors_explained(path):
        path = real_place(path, root)
        make_directories(path.parent)
        while True:
            with hold_lock(path) as exists:
                if exists:
                    _update(path, edit, act_first)
                    return
            with synced_temporary(path, edit(None), mode=FILE_MODE) as temporary:
                act_first()
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


def _update(
    path: Path, edit: Callable[[bytes | None], bytes], act_first: Callable[[], None]
) -> None:
    old = path.read_bytes()
    new = edit(old)
    if new == old:
        act_first()
        return
    target = path.readlink() if path.is_symlink() else None
    with synced_temporary(path, new, mode=path.stat().st_mode & 0o777) as temporary:
        act_first()
        replace(temporary, path)
    if target is not None:
        note_replaced(path, target)


def _keep_file(path: Path, kept: Path) -> None:
    try:
        os.link(path, kept)
    except OSError:  # a file system without hard links
        data, mode = path.read_bytes(), path.stat().st_mode & 0o777
        with synced_temporary(kept, data, mode=mode) as copy:
            give_to_owner_of(path, copy)
            copy.replace(kept)


def _demand_own_folder(path: Path, real: Path, root: Path) -> None:
    """Raise `BankPathError` for a file behind a link to a folder that is in the tree already.

    A folder is read at its own place alone, so the caller took the file for one that is not there.
    """
    top, below = Path(os.path.realpath(root)), os.path.relpath(path.parent, root)
    folder = real.parent.relative_to(top)
    if not below.startswith("..") and Path(below) != folder and not _is_hidden(folder):
        raise BankPathError(
            "folder is a link to another folder of the tree, whose files these are",
            path=path,
            got=real.parent,
            hint="put a copy of that folder in the place of the link",
        )


def _is_hidden(folder: Path) -> bool:
    return any(part.startswith(".") for part in folder.parts)


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
