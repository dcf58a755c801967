"""Folders whose files are believed or run: nobody else may be able to put a file into one.

Source: sshd(8), StrictModes, which looks at the key files of a user in the same way.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

_FOLDER_MODE, _SHARED_MODE = 0o755, 0o1777


class UnsafeFolderError(OSError):
    """Another user of this machine could put files into a folder, or could have."""

    def __init__(self, problem: str) -> None:
        super().__init__(errno.EPERM, problem)


def make_own_folder(folder: Path) -> Path:
    """Make a folder and its parents, which only this user may write to; return its real path.

    Use the returned path: a link in the given one could lead elsewhere the next time.

    Raises:
        UnsafeFolderError: it is there, and others may put files into it or into a folder above.
        OSError: it cannot be made.
    """
    folder = Path(os.path.realpath(folder))
    check_own_folder(folder)
    for place in (*reversed(folder.parents), folder):
        try:
            place.mkdir(_FOLDER_MODE)  # whatever the umask is, a group may not write to it
        except FileExistsError:
            pass
        except OSError:
            if not place.is_dir():
                raise
    check_own_folder(folder)
    return folder


@contextmanager
def shared_folder(folder: Path) -> Iterator[int]:
    """Open a folder into which every user of the machine puts files; yield its descriptor.

    It is made if it is missing, with the mode of `/tmp`: all may write, and nobody removes the file
    of another one. A folder that is there keeps its mode; one of an older version, which left it
    open to all, gets the sticky bit if it is ours.

    Raises:
        UnsafeFolderError: it is a link, or anybody may remove and replace the files in it.
        OSError: it cannot be made or opened.
    """
    is_new = False
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(0o700)
        is_new = True
    if folder.is_symlink():
        raise UnsafeFolderError("is a link, which somebody else may have put there")
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        facts = os.fstat(descriptor)
        is_former = (stat.S_IMODE(facts.st_mode), facts.st_uid) == (0o777, os.geteuid())
        if is_new or is_former:
            os.fchmod(descriptor, _SHARED_MODE)
        mode = os.fstat(descriptor).st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise UnsafeFolderError(
                "lets every user remove the locks of others "
                f"(got mode {stat.S_IMODE(mode):o}, expected {_SHARED_MODE:o}; chmod +t)"
            )
        yield descriptor
    finally:
        os.close(descriptor)


def check_own_folder(folder: Path) -> None:
    """Check a folder and all above, as far as they are there.

    A folder with the sticky bit (`/tmp`) is open to all and keeps what is in it from others, so it
    may be above, but not be the folder itself.

    Raises:
        UnsafeFolderError: others may put files into one of them.
    """
    real = Path(os.path.realpath(folder))
    for place in (real, *real.parents):
        try:
            facts = place.stat()
        except FileNotFoundError:
            continue
        keeps = place != real and bool(facts.st_mode & stat.S_ISVTX)
        if not is_own(facts, writable=keeps):
            raise UnsafeFolderError(f"{place} {_problem(facts)}")


def is_own(facts: os.stat_result, *, writable: bool = False) -> bool:
    """True if a file or folder is of this user or of root, and nobody else may write to it.

    Args:
        facts: What the system says of it.
        writable: True where others may write nevertheless.
    """
    is_ours = facts.st_uid in (0, os.geteuid())
    return is_ours and (writable or not _others_write(facts))


def _others_write(facts: os.stat_result) -> int:
    """Return the bits of the mode that let others write."""
    bits = facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return bits & ~stat.S_IWGRP if _is_own_group(facts.st_gid) else bits


@cache
def _is_own_group(group: int) -> bool:
    """True for a group of this user alone, as most systems make one for each and set umask 002.

    Source: user-group-modes.patch of Debian's OpenSSH, `secure_permissions`.
    """
    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    is_private = found.gr_gid == user.pw_gid and found.gr_name == user.pw_name
    return is_private and {*found.gr_mem} <= {user.pw_name}


def _problem(facts: os.stat_result) -> str:
    if facts.st_uid not in (0, os.geteuid()):
        return f"belongs to another user (got {facts.st_uid}, expected {os.geteuid()} or 0)"
    mode = stat.S_IMODE(facts.st_mode)
    return (
        f"can be written to by others (got mode {mode:o}, "
        f"expected {mode & ~_others_write(facts):o})"
    )
