"""Writes that leave the old file or the new one, whole, whenever the process dies."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aoebank.errors import AoebankError, BankPathError, BankPermissionError
from aoebank.storage.writing.lock import LOCK_TIMEOUT_S, hold_lock

FILE_MODE = 0o640  # what CANN's readers and writers expect; another one gets a warning there
DIRECTORY_MODE = 0o750
TEMPORARY_SUFFIX = ".aoebank-tmp"


def update_file(
    path: Path, edit: Callable[[bytes | None], bytes], *, timeout_s: float = LOCK_TIMEOUT_S
) -> None:
    """Replace the content of `path` by what `edit` makes of it, under its lock.

    Args:
        edit: Gets the current bytes, read under the lock, or None if there is no file. May
            be called again when another writer was first to create the file.
    """
    path = Path(os.path.realpath(path))  # a link stays one, what it points to is replaced
    with system_errors_explained(path):
        make_directories(path.parent)
        while True:
            with hold_lock(path, timeout_s=timeout_s) as exists:
                if exists:
                    _replace(path, edit)
                    return
            if _create(path, edit(None)):
                return


def make_directories(path: Path) -> None:
    """Create a directory and its missing parents with mode 750, whatever the umask is."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        try:
            folder.mkdir()
        except FileExistsError:
            if not folder.is_dir():
                raise
            continue
        folder.chmod(DIRECTORY_MODE)


def _replace(path: Path, edit: Callable[[bytes | None], bytes]) -> None:
    old = path.read_bytes()
    new = edit(old)
    if new == old:
        return
    status = path.stat()
    with synced_temporary(path, new, mode=status.st_mode & 0o777) as temporary:
        with contextlib.suppress(OSError):  # keep a shared group if we may
            os.chown(temporary, -1, status.st_gid)
        temporary.replace(path)
    sync_directory(path.parent)


def _create(path: Path, data: bytes) -> bool:
    """Give `path` its first content; return False if somebody else just did."""
    with synced_temporary(path, data, mode=FILE_MODE) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError:  # a file system without hard links
            return _create_without_links(temporary, path)
    sync_directory(path.parent)
    return True


def _create_without_links(temporary: Path, path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE))
    except FileExistsError:
        return False
    with hold_lock(path) as exists:
        if not exists or path.stat().st_size:
            return False
        temporary.replace(path)
    sync_directory(path.parent)
    return True


@contextmanager
def synced_temporary(path: Path, data: bytes, *, mode: int) -> Iterator[Path]:
    """Give a synced file with `data` beside `path`; gone afterwards under that name."""
    temporary = path.with_name(f".{path.name[:200]}.{secrets.token_hex(8)}{TEMPORARY_SUFFIX}")
    try:
        with temporary.open("xb") as stream:
            os.fchmod(stream.fileno(), mode)
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        del data  # may be large, and who waits for the end of many files need not keep it
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def sync_directory(path: Path) -> None:
    """Make renames in a directory last through a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def system_errors_explained(path: Path) -> Iterator[None]:
    """Turn errors of the system about writing `path` into ours."""
    try:
        yield
    except AoebankError:
        raise
    except PermissionError as error:
        raise BankPermissionError(
            "cannot write here",
            path=path,
            expected="write permission on the file and its folder",
            hint=f"ls -ld {path.parent}",
        ) from error
    except OSError as error:
        problem = f"cannot write here: {(error.strerror or str(error)).lower()}"
        raise BankPathError(problem, path=path) from error
