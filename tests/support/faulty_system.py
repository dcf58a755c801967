"""Calls of the system that fail, or before which something happens, for the length of a test."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]
_OWNERS = {"Path": Path, "fcntl": fcntl, "os": os, "tempfile": tempfile}


class FaultySystem:
    """Puts faults into calls of this process, named as in Python: `os.fsync`, `Path.open`."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self._closed: dict[str, OSError] = {}

    def replace(self, name: str, call: Any) -> None:
        """Let something else answer a call."""
        owner, _, member = name.partition(".")
        self._patch.setattr(_OWNERS[owner], member, call)

    def before(self, name: str, act: Call) -> None:
        """Let `act` have the arguments first; what it raises, the call raises."""
        owner, _, member = name.partition(".")
        real = getattr(_OWNERS[owner], member)

        def call(*arguments: Any, **options: Any) -> Any:
            act(*arguments)
            return real(*arguments, **options)

        self.replace(name, call)

    def fail(self, name: str, error: BaseException, *, after: int = 0) -> None:
        """Let a call raise an error, the first few times excepted."""
        calls = iter(range(after))

        def act(*_: Any) -> None:
            if next(calls, None) is None:
                raise error

        self.before(name, act)

    def close(self, path: Path, error: OSError | None = None) -> None:
        """Close a file or a folder to this user, who may be root.

        Args:
            error: What a look into it raises; None: permission denied.
        """
        if not self._closed:
            for name in ("os.scandir", "Path.open", "Path.read_bytes"):
                self.before(name, self._demand_open)
        denied = PermissionError(errno.EACCES, "Permission denied", os.fspath(path))
        self._closed[os.fspath(path)] = error or denied

    def fill(self, folder: Path, *, after: int = 0) -> None:
        """Let the disk of a folder be full: no file below it is made, the first few excepted."""
        calls = iter(range(after))

        def act(path: Path, mode: str = "r", *_: Any) -> None:
            if "x" in mode and path.is_relative_to(folder) and next(calls, None) is None:
                raise OSError(errno.ENOSPC, "No space left on device", os.fspath(path))

        self.before("Path.open", act)

    def _demand_open(self, place: Any = ".", *_: Any) -> None:
        if not isinstance(place, int) and os.fspath(place) in self._closed:
            raise self._closed[os.fspath(place)]


def name_of(descriptor: int) -> str:
    """Return the name of the file a descriptor is of."""
    return Path(f"/proc/self/fd/{descriptor}").readlink().name
