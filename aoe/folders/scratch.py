"""Scratch folders: gone with their owner, or with the next run if the owner was killed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
import weakref
from pathlib import Path

from aoe.errors import OutputError
from aoe.folders.locks import FileLock, take_lock

PREFIX = "aoe_"
OWNER = ".owner"
"""The file in a scratch folder whose lock its owner holds."""
_MADE_HERE = re.compile(rf"{PREFIX}[a-z]+_\w{{8}}")
_PRIVATE = 0o700
"""Source: `tempfile.mkdtemp`, mode and random letters."""
_WITHOUT_LOCK = ".in-use"
"""The file in a scratch folder where there are no locks: it is not to look like a left one."""


class ScratchFolder:
    """An empty folder below `TMPDIR`, removed by `remove` or at the end of a `with`.

    At the latest it goes with the process: a removal that is interrupted is made up for then.

    Args:
        purpose: A word for its name.
        root: Where it is made; None for `TMPDIR`.

    Attributes:
        path: Where it is; it holds a hidden file that says it is in use.

    Raises:
        OutputError: no folder can be made there.
    """

    def __init__(self, purpose: str, root: Path | None = None) -> None:
        self._process = os.getpid()
        try:
            self.path, self._lock = _new_folder(f"{PREFIX}{purpose}_", root)
        except OSError as error:
            raise OutputError(
                str(root or tempfile.gettempdir()),
                f"no scratch folder can be made: {error.strerror or error}",
                hint="set TMPDIR to a directory you may write to",
            ) from error
        self._left = weakref.finalize(self, _removed_by, self._process, self.path, self._lock)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove the folder with all in it; a forked child leaves that to its parent."""
        _removed_by(self._process, self.path, self._lock)
        self._left.detach()


def is_scratch(path: Path) -> bool:
    """True of a file in a scratch folder: its name tells nobody anything, and is gone soon."""
    markers = (OWNER, _WITHOUT_LOCK)
    return any((folder / marker).exists() for folder in path.parents for marker in markers)


class FolderHold:
    """Keeps a scratch folder: it goes when nobody has its hold any more, or with the process."""

    def __init__(self, folder: ScratchFolder) -> None:
        weakref.finalize(self, folder.remove)


def own_scratch(purpose: str) -> tuple[Path, ...]:
    """Return the scratch folders of this user below `TMPDIR` that were made for a purpose."""
    prefix = f"{PREFIX}{purpose}_"
    return tuple(path for path in _own_folders() if path.name.startswith(prefix))


def sweep_scratch() -> tuple[Path, ...]:
    """Remove the scratch folders below `TMPDIR` whose owners were killed; return them.

    A folder is left alone while anybody holds its lock, and where it has none to take. An empty one
    is left over from its making or its removal.
    """
    return tuple(path for path in _own_folders() if _was_removed(path))


def _removed_by(process: int, path: Path, lock: FileLock | None) -> None:
    """Remove the folder of a process, unless this is a child of it."""
    if os.getpid() == process:
        _remove(path)
    if lock is not None:
        lock.release()


def _new_folder(prefix: str, root: Path | None) -> tuple[Path, FileLock | None]:
    """Return a new folder with the lock of its owner file, None where there are no locks."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
        try:
            lock = take_lock(path / OWNER)
        except OSError:
            if not path.is_dir():  # swept between its making and its locking
                continue
            (path / OWNER).unlink(missing_ok=True)
            (path / _WITHOUT_LOCK).touch()
            return path, None
        if lock is not None:
            return path, lock


def _own_folders() -> list[Path]:
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        return [
            Path(entry.path)
            for entry in entries
            if entry.name.startswith(PREFIX)
            and entry.is_dir(follow_symlinks=False)
            and entry.stat(follow_symlinks=False).st_uid == os.getuid()
        ]
    return []


def _was_removed(path: Path) -> bool:
    """Remove a folder that says whose it is, if its owner is no more; return whether it was."""
    if not (path / OWNER).exists():
        return _was_empty(path)
    try:
        lock = take_lock(path / OWNER)
    except OSError:
        return False
    if lock is None:
        return False
    with lock:  # until it is gone: its owner may just be taking it
        _remove(path)
    return True


def _was_empty(path: Path) -> bool:
    """Remove a folder that was made as scratch folders are, and is empty; return whether it was."""
    if not _MADE_HERE.fullmatch(path.name):
        return False
    try:
        if stat.S_IMODE(path.stat().st_mode) != _PRIVATE:
            return False
        path.rmdir()
    except OSError:
        return False
    return True


def _remove(path: Path) -> None:
    """Remove a folder, at last the file that says whose it is: a killed removal is gone on with."""
    with contextlib.suppress(OSError):
        for inner in [*path.iterdir()]:
            if inner.is_dir() and not inner.is_symlink():
                shutil.rmtree(inner, ignore_errors=True)
            elif inner.name != OWNER:
                inner.unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)
