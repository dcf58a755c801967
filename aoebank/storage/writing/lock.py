"""The lock of a bank file, shared with CANN's own writers.

CANN's Python writer takes `flock(LOCK_EX)` on the bank file itself and then checks that the
name still means the file it locked. This project does the same: a writer that replaces the
file leaves everybody who waited with a lock on a file that has no name any more, so after
each lock the name is looked up again and, if it has moved on, the lock is taken anew.
A new file gets its name only when it is complete (see `storage.atomic`), so there is nothing
to lock before it exists.

What no lock can help against: a writer that does not look the name up again after it waited
(its records go into a file without a name), and one that writes what it read before it held
the lock. CANN's C++ tuner does both: it locks a runtime bank, does not read it again, and
writes all records it knows. Records others add between its start and its end are lost.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aoebank.errors import BankLockedError, BankPermissionError, shell_word

LOCK_TIMEOUT_S = 30.0
SETTLE_TIMEOUT_S = 5.0
_POLL_S = 0.01


@contextmanager
def hold_lock(
    path: Path,
    *,
    timeout_s: float = LOCK_TIMEOUT_S,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[bool]:
    """Hold the exclusive lock of `path`; give False, and hold nothing, if it does not exist.

    Raises:
        BankLockedError: another writer holds it for longer than `timeout_s`.
        BankPermissionError: the file cannot be opened for writing.
    """
    deadline = clock() + timeout_s
    while True:
        descriptor = _open(path)
        if descriptor is None:
            yield False
            return
        try:
            _wait(descriptor, path, deadline, clock, pause)
            if _is_named(descriptor, path):
                yield True
                return
        finally:
            os.close(descriptor)  # closing gives the lock back


@contextmanager
def hold_folder(
    folder: Path,
    *,
    timeout_s: float = LOCK_TIMEOUT_S,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Hold a lock on a folder, for what reads many files and then changes them; none if it is none.

    Only calls that ask for it wait for one another: writers of single files do not.

    Raises:
        BankLockedError: another process holds it for longer than `timeout_s`.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # whoever reads it tells what is the matter
        yield
        return
    try:
        _wait(descriptor, folder, clock() + timeout_s, clock, pause)
        yield
    finally:
        os.close(descriptor)  # closing gives the lock back


def read_settled(
    path: Path,
    *,
    timeout_s: float = SETTLE_TIMEOUT_S,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> bytes | None:
    """Return the bytes of a file while no writer is at it, or None if that cannot be had.

    CANN's writers truncate a bank and write it again in place, so a reader without a lock
    can meet an empty file or half of one. Asks for the shared lock, which needs no more
    than permission to read.
    """
    deadline = clock() + timeout_s
    try:
        while True:
            with path.open("rb") as stream:
                _wait(stream.fileno(), path, deadline, clock, pause, fcntl.LOCK_SH)
                if _is_named(stream.fileno(), path):
                    return stream.read()
    except (OSError, BankLockedError):
        return None


def _open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except (PermissionError, IsADirectoryError) as error:
        raise BankPermissionError(
            "file cannot be opened for writing", path=path, hint=f"chmod u+rw {shell_word(path)}"
        ) from error


def _wait(
    descriptor: int,
    path: Path,
    deadline: float,
    clock: Callable[[], float],
    pause: Callable[[float], None],
    kind: int = fcntl.LOCK_EX,
) -> None:
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if clock() >= deadline:
                raise BankLockedError(
                    "another writer holds the lock",
                    path=path,
                    hint=f"wait for it to end; `fuser {shell_word(path)}` names it",
                ) from error
            pause(_POLL_S)


def _is_named(descriptor: int, path: Path) -> bool:
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    held = os.fstat(descriptor)
    return (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)
