"""Locks on files of our own, which the system takes back however their holder ends.

A lock says more than a process number in a file: it holds across containers that share a folder
and number their processes alike, and it never outlives a killed process.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
import weakref
from pathlib import Path

_POLL_S = 0.01


class FileLock:
    """A lock that is held until `release`, or as long as there is this object."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._close = weakref.finalize(self, os.close, descriptor)

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Give the lock back; again is no mistake."""
        self._close()

    def note(self, text: bytes) -> None:
        """Make a text all there is in the locked file, where that is allowed."""
        if self._close.alive:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, text, 0)

    def touch(self) -> None:
        """Note the time in the locked file, where that is allowed."""
        if self._close.alive:
            with contextlib.suppress(OSError):
                os.utime(self._descriptor)


def take_lock(
    file: Path, *, shared: bool = False, wait_s: float = 0.0, folder: int | None = None
) -> FileLock | None:
    """Return the lock of a file, which is made if it is missing; None if others keep it.

    Args:
        file: Lies in a folder that exists.
        shared: True for a lock that others may share.
        wait_s: How long others may keep it.
        folder: Descriptor of the file's folder where all users put their locks; None goes by path.

    Raises:
        OSError: the file cannot be opened, is no lock of ours, or its file system has no locks.
    """
    deadline = time.monotonic() + wait_s
    kind = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    while True:
        descriptor = _opened(file, folder, shared=shared)
        try:
            fcntl.flock(descriptor, kind)
            if _is_named(descriptor, file, folder):  # else somebody removed it while we waited
                return FileLock(descriptor)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        time.sleep(_POLL_S)


def open_plain(file: Path, flags: int, folder: int | None, mode: int = 0) -> int:
    """Open a file that is no link, without waiting for whoever holds the other end of a pipe.

    In a folder of all users it has to be a plain file under one name: what is written into a hard
    link would end in somebody's file.

    Args:
        file: Its path; only the name counts where there is a folder.
        flags: As for `os.open`.
        folder: As for `take_lock`.
        mode: Permissions of a new file.

    Raises:
        OSError: it is something else, or cannot be opened.
    """
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    if folder is None:
        return os.open(file, flags, mode)
    descriptor = os.open(file.name, flags, mode, dir_fd=folder)
    facts = os.fstat(descriptor)
    if stat.S_ISREG(facts.st_mode) and facts.st_nlink <= 1:
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EPERM, "no plain file, or one with other names", str(file))


def _opened(file: Path, folder: int | None, *, shared: bool) -> int:
    try:
        while True:
            # not with O_CREAT alone: for a file of another user in a sticky folder Linux refuses
            # that. Source: proc(5), fs.protected_regular
            with contextlib.suppress(FileNotFoundError):
                return open_plain(file, os.O_RDWR, folder)
            with contextlib.suppress(FileExistsError):
                return _made(file, folder)
    except OSError as error:
        if not shared or error.errno not in (errno.EACCES, errno.EROFS):
            raise
        return open_plain(file, os.O_RDONLY, folder)


def _made(file: Path, folder: int | None) -> int:
    """Return the descriptor of a new lock, which every user may take in a folder of all users."""
    descriptor = open_plain(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, folder, 0o644)
    if folder is not None:
        with contextlib.suppress(OSError):  # a file system without modes
            os.fchmod(descriptor, 0o666)
    return descriptor


def _is_named(descriptor: int, file: Path, folder: int | None) -> bool:
    try:
        named = os.stat(file if folder is None else file.name, dir_fd=folder)
    except FileNotFoundError:
        return False
    held = os.fstat(descriptor)
    return (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)
