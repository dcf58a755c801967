"""Locks on files of our own, which the system takes back however their holder ends.

A lock says more than a process number in a file: it holds across containers that share a folder
and number their processes alike, and it never outlives a killed process.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
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


def take_lock(file: Path, *, shared: bool = False, wait_s: float = 0.0) -> FileLock | None:
    """Return the lock of a file, which is made if it is missing; None if others keep it.

    Args:
        file: Lies in a folder that exists.
        shared: True for a lock that others may share.
        wait_s: How long others may keep it.

    Raises:
        OSError: the file cannot be opened, or its file system has no locks.
    """
    deadline = time.monotonic() + wait_s
    kind = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    while True:
        descriptor = _opened(file, shared=shared)
        try:
            fcntl.flock(descriptor, kind)
            if _is_named(descriptor, file):  # else somebody removed it while we waited
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


def _opened(file: Path, *, shared: bool) -> int:
    flags = os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(file, os.O_RDWR | os.O_CREAT | flags, 0o644)
    except OSError as error:
        if not shared or error.errno not in (errno.EACCES, errno.EROFS):
            raise
        return os.open(file, os.O_RDONLY | flags)


def _is_named(descriptor: int, file: Path) -> bool:
    try:
        named = file.stat()
    except FileNotFoundError:
        return False
    held = os.fstat(descriptor)
    return (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)
