"""Change many files together: nothing is touched before everything is written beside them.

A full disk, a read-only folder or a kill while the new contents are written leaves every file as
it was. Then each is checked and renamed under its own lock; a kill among the renames leaves some
files new and some old, each of them whole.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aoebank.errors import BankPathError
from aoebank.model.digest import sha256_of
from aoebank.storage.writing.atomic import (
    FILE_MODE,
    make_directories,
    sync_directory,
    synced_temporary,
    system_errors_explained,
)
from aoebank.storage.writing.lock import hold_lock


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """One file to write or to remove.

    Attributes:
        shown: As the caller wrote it, for messages; `path` has no links.
        temporary: Holds the new content; None if the file is to go.
        sha256: Of what must still be there; None if there must be nothing.
    """

    shown: Path
    path: Path
    temporary: Path | None
    sha256: str | None


@dataclass(slots=True)
class StagedChanges:
    """New contents that wait for `commit`; see `staged_changes`."""

    _stack: ExitStack
    _changes: list[_Change] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._changes)

    def write(self, path: Path, data: bytes, *, old_sha256: str | None) -> None:
        """Put `data` beside `path`, to become its content.

        Args:
            old_sha256: Of what is there now, as the caller knows it; None: nothing is.
        """
        real = Path(os.path.realpath(path))  # a link stays one, what it points to is replaced
        with system_errors_explained(path):
            _demand_writable(real)
            self._make_directories(real.parent)
            mode = real.stat().st_mode & 0o777 if real.exists() else FILE_MODE
            temporary = self._stack.enter_context(synced_temporary(real, data, mode=mode))
            self._add(path, real, temporary, old_sha256)

    def remove(self, path: Path, *, old_sha256: str) -> None:
        """Let a file go at the end."""
        real = Path(os.path.realpath(path))
        with system_errors_explained(path):
            _demand_writable(real)
            self._add(path, real, None, old_sha256)

    def commit(self) -> tuple[Path, ...]:
        """Put all of it in place and return the paths, as they were given.

        Raises:
            BankPathError: a file is not what it was, so nothing is changed; or it became
                another one in the very moment, then the message tells how many are written.
        """
        for change in self._changes:
            with system_errors_explained(change.shown):
                _demand_unchanged(change)
        done: list[Path] = []
        for change in self._changes:
            try:
                with system_errors_explained(change.shown):
                    _commit(change)
            except BankPathError as error:
                if done:
                    error.hint = f"{len(done)} of {len(self._changes)} files are written by now"
                raise
            done.append(change.shown)
        return tuple(done)

    def _add(self, path: Path, real: Path, temporary: Path | None, old_sha256: str | None) -> None:
        self._changes.append(_Change(shown=path, path=real, temporary=temporary, sha256=old_sha256))

    def _make_directories(self, path: Path) -> None:
        """Make a directory; what is empty at the end goes again."""
        for folder in reversed((path, *path.parents)):
            if not folder.exists():
                self._stack.callback(_remove_empty, folder)
        make_directories(path)


@contextmanager
def staged_changes() -> Iterator[StagedChanges]:
    """Give changes to fill; what is not committed at the end leaves no trace."""
    with ExitStack() as stack:
        yield StagedChanges(stack)


def _demand_writable(path: Path) -> None:
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(path)


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _demand_unchanged(change: _Change) -> None:
    found = change.path.read_bytes() if change.path.exists() else None
    if sha256_of(found) != change.sha256:
        raise BankPathError(
            "file was changed meanwhile, so it is left as it is",
            path=change.shown,
            hint="run the command again",
        )


def _commit(change: _Change) -> None:
    if change.sha256 is None:
        _create(change)
    else:
        with hold_lock(change.path):
            _demand_unchanged(change)
            _replace(change)
    sync_directory(change.path.parent)


def _replace(change: _Change) -> None:
    if change.temporary is None:
        change.path.unlink()
        return
    with contextlib.suppress(OSError):  # keep a shared group if we may
        os.chown(change.temporary, -1, change.path.stat().st_gid)
    change.temporary.replace(change.path)


def _create(change: _Change) -> None:
    assert change.temporary is not None
    try:
        os.link(change.temporary, change.path)
    except FileExistsError:
        _demand_unchanged(change)  # raises: somebody was first
    except OSError:  # a file system without hard links
        _demand_unchanged(change)
        change.temporary.replace(change.path)
