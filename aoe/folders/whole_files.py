"""Files that are written whole or not at all: temporary file, fsync, rename."""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from aoe.folders.locks import take_lock

_LONGEST_PREFIX = 80  # of a temporary file; a long model name must not make it too long
_RANDOM_LETTERS = 8  # which `tempfile` puts behind it
_RUN = re.compile(r"\d{17}_pid\d+")  # what tells result files of two runs apart
_SETTLED_S = 60.0  # a younger one may be about to be locked


@contextmanager
def replaced(file: Path) -> Iterator[IO[bytes]]:
    """Yield a temporary file that takes the place of `file` when everything went well.

    It is locked while it is written; those of writers that were killed go first.
    """
    prefix = f".{file.name}."[:_LONGEST_PREFIX]
    _sweep(file.parent, _left_names(prefix))
    handle, name = tempfile.mkstemp(prefix=prefix, dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as sink:
            with suppress(OSError):  # a file system without locks: then nobody sweeps there
                fcntl.flock(sink, fcntl.LOCK_EX)
            yield sink
            sink.flush()
            os.fsync(sink.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _left_names(prefix: str) -> re.Pattern[str]:
    """Return the pattern of temporary names, names of earlier runs included."""
    kind = _RUN.sub(r"\\d+_pid\\d+", re.escape(prefix))
    return re.compile(kind + rf"\w{{{_RANDOM_LETTERS}}}")


def _sweep(directory: Path, names: re.Pattern[str]) -> None:
    """Remove temporary files whose writers hold them no more, and so were killed."""
    with suppress(OSError):  # a folder that may be written to and not be listed
        for path in directory.iterdir():
            if names.fullmatch(path.name):
                _remove_if_left(path)


def _remove_if_left(path: Path) -> None:
    with suppress(OSError):
        if time.time() - path.stat().st_mtime > _SETTLED_S:
            lock = take_lock(path)
            if lock is not None:
                with lock:
                    path.unlink()
