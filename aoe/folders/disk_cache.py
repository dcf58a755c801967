"""A folder of files that many processes share: each whole or absent, unused ones go first.

Files are believed, and some are run, so the folder is used only if nobody else can put files into
it, and so is each file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, TypeVar

from aoe.folders.locks import take_lock
from aoe.folders.ownership import check_own_folder, is_own, make_own_folder
from aoe.folders.whole_files import replaced

T = TypeVar("T")
_PRUNE_LOCK = "prune.lock"
_LEFT_SHARE = 0.9
"""Of the limit, after a cache has grown beyond it."""


class DiskCache:
    """Files by name in a folder of one user.

    Args:
        root: Folder, made when something is put into it.
        limit_bytes: Most bytes of all files.
    """

    def __init__(self, root: Path, limit_bytes: int) -> None:
        self.root = Path(os.path.realpath(root))  # a link could lead elsewhere the next time
        self._limit_bytes = limit_bytes

    def find(self, name: str) -> Path | None:
        """Return a file that nobody else can have put there, None if there is none."""
        file = self.root / name
        try:
            check_own_folder(self.root)
            return file if is_own(file.stat()) else None
        except OSError:
            return None

    def take(self, name: str) -> Path | None:
        """Return a file as `find` does; it counts as used now."""
        file = self.find(name)
        try:
            if file is not None:
                os.utime(file)
        except OSError:
            return None
        return file

    def put(self, name: str, write: Callable[[IO[bytes]], None]) -> None:
        """Write a file whole or not at all, if the folder can be written to."""
        with suppress(OSError):
            make_own_folder(self.root)
            with replaced(self.root / name) as sink:
                write(sink)

    def drop(self, name: str) -> None:
        """Remove a file that cannot be believed."""
        with suppress(OSError):
            (self.root / name).unlink()

    def prune(self) -> None:
        """Remove the files that were not used for the longest time, where there is too much."""
        with suppress(OSError):
            check_own_folder(self.root)
            files = [file for file in self.root.iterdir() if file.is_file()]
            looks = {file: file.stat() for file in files if file.name != _PRUNE_LOCK}
            sizes = {file: look.st_size for file, look in looks.items()}
            too_large = sum(sizes.values()) > self._limit_bytes
            lock = take_lock(self.root / _PRUNE_LOCK) if too_large else None
            if lock is None:  # small enough, or somebody else is at it
                return
            with lock:
                remove_unused(
                    sizes,
                    last_use=lambda file: looks[file].st_mtime_ns,
                    limit_bytes=int(_LEFT_SHARE * self._limit_bytes),
                    remove=remove_file,
                )


def remove_file(file: Path) -> bool:
    """Remove a file, which may be gone already; see `remove_unused`."""
    file.unlink(missing_ok=True)
    return True


def remove_unused(
    sizes: Mapping[T, int],
    *,
    last_use: Callable[[T], int],
    limit_bytes: int,
    remove: Callable[[T], bool],
) -> None:
    """Remove what was not used for the longest time, until the rest is within the limit.

    Args:
        sizes: Bytes of each.
        last_use: Tells when it was used, any number that grows.
        limit_bytes: Most bytes of the rest.
        remove: Removes one; returns False if somebody uses it.
    """
    total = sum(sizes.values())
    for one in sorted(sizes, key=last_use):
        if total <= limit_bytes:
            return
        if remove(one):
            total -= sizes[one]
