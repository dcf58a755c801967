"""Converted models, kept for the next start: under the digest of all they depend on.

A file for each model and shape, `<digest>.om`, or `<digest>.none` where the bank has nothing for
it. Both are written whole or not at all; what has not been used for the longest time goes first.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from aoe.folders.disk_cache import DiskCache
from aoebank import old_soc_versions

_FOLDER = "online"
_QUARANTINE = ".aoebank/quarantine.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class BankRoots:
    """Roots of the banks in which records for a target are looked up."""

    soc_version: str  # The target
    roots: tuple[Path, ...]  # Of the custom banks, then of the built-in one
    union: str = ""  # Which of several custom banks answers, as `AOE_BANK_UNION` says it

    def digest(self) -> str:
        """Return a digest of all a look-up depends on, empty if there is no record."""
        digest, is_empty = hashlib.sha256(self.union.encode()), True
        for file, name in self._files():
            with suppress(FileNotFoundError), file.open("rb") as source:
                found = hashlib.file_digest(source, "sha256").hexdigest()
                digest.update(f"{name} {found}\n".encode())
                is_empty = False
        return "" if is_empty else digest.hexdigest()

    def _files(self) -> Iterator[tuple[Path, str]]:
        names = (self.soc_version, *old_soc_versions(self.soc_version))
        for number, root in enumerate(self.roots):
            files = [file for name in names for file in sorted((root / name).rglob("*"))]
            for file in [file for file in files if file.is_file()]:
                yield file, f"{number} {file.relative_to(root)}"
            if files and (root / _QUARANTINE).is_file():
                yield root / _QUARANTINE, f"{number} {_QUARANTINE}"


class KeptModels:
    """Converted models in a folder that any number of processes share.

    Args:
        root: Cache of the user; None keeps nothing, and so does one that others can write to.
        limit_bytes: What the folder may hold; 0 keeps nothing.
    """

    def __init__(self, root: Path | None, limit_bytes: int) -> None:
        self._files = DiskCache(root / _FOLDER, limit_bytes) if root and limit_bytes else None

    def knows(self, key: str) -> bool:
        """True if a conversion was kept, also one that found nothing."""
        files = self._files
        return files is not None and any(files.find(f"{key}.{end}") for end in ("om", "none"))

    def find(self, key: str) -> Path | None:
        """Return a kept model, None if there is none."""
        return self._files.take(f"{key}.om") if self._files is not None else None

    def put(self, key: str, om_file: Path | None) -> None:
        """Keep a model, or that there is none, if the folder can be written to."""
        if self._files is None:
            return

        def write(sink: IO[bytes]) -> None:
            if om_file is not None:
                with om_file.open("rb") as source:
                    shutil.copyfileobj(source, sink)

        self._files.put(f"{key}.{'none' if om_file is None else 'om'}", write)
        self._files.prune()


def key_of(facts: Mapping[str, object]) -> str:
    """Return the name of a conversion by all it depends on, JSON values."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
