"""Artifact transfer: files go to a worker by content, each content once."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aoe.folders.disk_cache import remove_file, remove_unused

_KEPT_BYTES = 2 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A file under the name it has for its reader."""

    name: str  # Of the file, without a folder
    digest: str  # SHA-256 of its content
    content: bytes | None  # None where the receiver has it already


def pack(files: Iterable[Path], known: Collection[str]) -> tuple[Artifact, ...]:
    """Return files as artifacts; files the receiver has go without their content.

    Args:
        files: Existing files with different names.
        known: Digests the receiver has.
    """
    return tuple(_packed(file, known) for file in sorted(files))


def _packed(file: Path, known: Collection[str]) -> Artifact:
    content = file.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    return Artifact(name=file.name, digest=digest, content=None if digest in known else content)


class ArtifactStore:
    """Artifacts a worker has; the least recently used one is evicted first.

    Args:
        folder: Existing, and its own.
        kept_bytes: What it may hold.
    """

    def __init__(self, folder: Path, *, kept_bytes: int = _KEPT_BYTES) -> None:
        self._folder = folder
        self._kept_bytes = kept_bytes

    def missing(self, artifacts: Sequence[Artifact]) -> tuple[str, ...]:
        """Return digests that came without content and are not here (any more)."""
        return tuple(
            artifact.digest
            for artifact in artifacts
            if artifact.content is None and not self._file(artifact.digest).exists()
        )

    def unpack(self, artifacts: Sequence[Artifact], folder: Path) -> None:
        """Write artifacts into a folder, under their names.

        Args:
            artifacts: None of them `missing`.
            folder: Existing.
        """
        for artifact in artifacts:
            file = self._file(artifact.digest)
            if artifact.content is not None and not file.exists():
                # under its digest only when it is whole: an interrupted write must not pass for it
                written = file.with_suffix(".part")
                written.write_bytes(artifact.content)
                written.replace(file)
            os.utime(file)
            _linked(file, folder / artifact.name)
        self._prune({artifact.digest for artifact in artifacts})

    def keep(self, files: Iterable[Path]) -> None:
        """Remember files made here, which may come back as artifacts."""
        for file in files:
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            _linked(file, self._file(digest))

    def _file(self, digest: str) -> Path:
        return self._folder / digest

    def _prune(self, needed: Collection[str]) -> None:
        looks: Mapping[Path, os.stat_result] = {
            file: file.stat() for file in self._folder.iterdir() if not file.name.startswith(".")
        }
        remove_unused(
            {file: look.st_size for file, look in looks.items()},
            last_use=lambda file: looks[file].st_mtime_ns,
            limit_bytes=self._kept_bytes,
            remove=lambda file: file.name not in needed and remove_file(file),
        )


def _linked(file: Path, place: Path) -> None:
    """Give a file another name; copy it where the file system has no second names."""
    if place.exists():
        return
    try:
        place.hardlink_to(file)
    except OSError:
        shutil.copyfile(file, place)
