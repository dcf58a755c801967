"""Remove a file only if it still is what was seen, under its lock."""

from __future__ import annotations

import os
from pathlib import Path

from aoebank.errors import BankPathError, BankPermissionError
from aoebank.storage.writing.lock import LOCK_TIMEOUT_S, hold_lock


def remove_file(path: Path, expected: bytes) -> None:
    """Remove a file.

    Raises:
        BankPathError: it is not what was expected, or cannot be removed.
    """
    try:
        with hold_lock(path, timeout_s=LOCK_TIMEOUT_S) as exists:
            if exists and path.read_bytes() != expected:
                raise BankPathError(
                    "file was changed meanwhile, so it is left as it is",
                    path=path,
                    hint="run the command again",
                )
            path.unlink(missing_ok=True)
        _sync(path.parent)
    except BankPathError:
        raise
    except PermissionError as error:
        raise BankPermissionError(
            "cannot remove the file", path=path, hint=f"ls -ld {path.parent}"
        ) from error
    except OSError as error:
        problem = f"cannot remove the file: {(error.strerror or str(error)).lower()}"
        raise BankPathError(problem, path=path) from error


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
