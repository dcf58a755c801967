"""Object files kept from run to run: what was compiled once from the same sources is not again.

A file of the folder holds the objects of one name and their digests, is written whole or not at
all, and is believed only when it is still what was written. What has not been used for the longest
time goes first.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from aoe.folders.disk_cache import DiskCache

_SCHEMA = "aoe.compiled_kernel/1"
_MANIFEST = "manifest.json"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptObjects:
    """Objects by name in a folder many processes may share."""

    files: DiskCache  # The folder; not used where others can write to it
    renew: bool = False  # True to take nothing, and keep what is compiled anew

    def has(self, name: str) -> bool:
        """True if there are objects of a name, intact or not."""
        return not self.renew and self.files.find(name) is not None

    def text(self, name: str) -> str | None:
        """Return a text by its name, None if it is not known."""
        file = None if self.renew else self.files.take(name)
        try:
            return None if file is None else file.read_text(encoding="utf-8")
        except (OSError, ValueError):  # another process has removed it, or it is torn
            return None

    def put_text(self, name: str, text: str) -> None:
        """Keep a text, if the folder can be written to."""

        def write(sink: IO[bytes]) -> None:
            sink.write(text.encode())

        self.files.put(name, write)

    def take(self, name: str, directory: Path) -> bool:
        """Write the objects of a name into a folder; return False if they are not known."""
        file = None if self.renew else self.files.take(name)
        if file is None:
            return False
        try:
            for part, content in _read(file).items():
                (directory / part).write_bytes(content)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, *_UNREADABLE):
            self.files.drop(name)  # torn or changed: compiled again
            return False
        return True

    def put(self, name: str, objects: Sequence[Path]) -> None:
        """Keep objects, if the folder can be written to; none that is empty."""
        if all(file.stat().st_size for file in objects):
            self.files.put(name, lambda sink: _write(sink, objects))


def _write(sink: IO[bytes], objects: Sequence[Path]) -> None:
    contents = {file.name: file.read_bytes() for file in objects}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    manifest = json.dumps({"schema": _SCHEMA, "objects": digests})
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in {_MANIFEST: manifest.encode(), **contents}.items():
            archive.writestr(zipfile.ZipInfo(name, date_time=_EPOCH), data, zipfile.ZIP_DEFLATED)


def _read(file: Path) -> dict[str, bytes]:
    """Return the objects in a file by name.

    Raises:
        ValueError: they are not what was written.
    """
    with zipfile.ZipFile(file) as archive:
        manifest = json.loads(archive.read(_MANIFEST))
        if manifest["schema"] != _SCHEMA:
            raise ValueError("unknown schema")
        found = {}
        for name, digest in manifest["objects"].items():
            data = archive.read(name)
            if Path(name).name != name or hashlib.sha256(data).hexdigest() != digest:
                raise ValueError("not what was written")
            if not data:
                raise ValueError("an empty object")
            found[name] = data
    return found
