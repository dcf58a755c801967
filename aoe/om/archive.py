"""The zip that an `.om` is, whose directory is checked before a byte of it is unpacked.

Anybody may have made the file. This engine stores the parts and never compresses them. A file with
anything else was changed by somebody, and a few kilobytes of it could unpack to gigabytes.
"""

from __future__ import annotations

import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aoe.errors import OfflineModelError

MOST_MANIFEST_BYTES = 64 << 20
"""A kernel has about 2 KiB in it, so this is enough for some thirty thousand."""
UNREADABLE = (
    OSError,
    EOFError,
    KeyError,
    ValueError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What `zipfile` and `json` raise on damaged files, encryption and unknown compression included."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
_UNIX = 3
"""Source: APPNOTE.TXT of PKWARE, 4.4.2.2: the upper half of the attributes is a mode of Unix."""


def new_member(name: str) -> zipfile.ZipInfo:
    """Return the head of a part to write: no time, no owner, so equal parts give equal bytes."""
    info = zipfile.ZipInfo(name, date_time=_EPOCH)
    info.external_attr = 0o644 << 16
    return info


@contextmanager
def open_archive(file: Path) -> Iterator[zipfile.ZipFile]:
    """Open an `.om` whose parts are plain, stored once each, and together no longer than the file.

    Raises:
        OfflineModelError: a member of the zip is something else.
        OSError, BadZipFile: and the rest of `UNREADABLE`: it is no zip.
    """
    with zipfile.ZipFile(file) as archive:
        _check(file, archive.infolist())
        yield archive


def read_member(archive: zipfile.ZipFile, file: Path, name: str, most_bytes: int) -> bytes:
    """Return the bytes of a small member.

    Raises:
        OfflineModelError: it is larger than it may be.
        KeyError: and the rest of `UNREADABLE`: there is none, or it is damaged.
    """
    size = archive.getinfo(name).file_size
    if size > most_bytes:
        raise OfflineModelError(
            f"{file}:{name}", "too large", got=f"{size} bytes", expected=f"at most {most_bytes}"
        )
    return archive.read(name)


def _check(file: Path, members: list[zipfile.ZipInfo]) -> None:
    seen: set[str] = set()
    unpacked = 0
    for member in members:
        place = f"{file}:{member.filename}"[:300]
        if member.filename in seen:
            raise OfflineModelError(place, "is in the file twice", hint=_COPY)
        mode = member.external_attr >> 16 if member.create_system == _UNIX else 0
        if member.is_dir() or stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            raise OfflineModelError(place, "no plain file", hint=_COPY)
        if member.compress_type != zipfile.ZIP_STORED or member.compress_size != member.file_size:
            raise OfflineModelError(
                place,
                "compressed, and parts of a tuned model are stored",
                got=f"{member.compress_size} bytes for {member.file_size}",
                hint=f"{_COPY}; `zip -0` stores what `unzip` has unpacked",
            )
        seen.add(member.filename)
        unpacked += member.file_size
    if unpacked > file.stat().st_size:  # members that share their bytes
        raise OfflineModelError(
            str(file),
            "its parts are larger than the file",
            got=f"{unpacked} bytes",
            expected=f"at most {file.stat().st_size}",
            hint=_COPY,
        )


_COPY = "copy the file again, or tune the model again"
