"""The zip file of an `.om`: its directory is checked before any part is unpacked.

Anybody may have made the file. This engine stores the parts and never compresses them. A file with
anything else was changed by somebody, and a few kilobytes of it could unpack to gigabytes.

A signature is over the manifest, which has the digest of every other part. OpenSSH makes and checks
it, as it does for packs of banks.
"""

from __future__ import annotations

import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from aoe.errors import OfflineModelError
from aoebank import find_signer

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
    struct.error,
)
"""Errors that these modules and `json` raise on damaged, encrypted or oddly compressed files."""
_HEAD = struct.Struct("<4s2xHH4xLLLHH")
_END = struct.Struct("<4s8xLLH")
_LARGE_END = struct.Struct("<4s36xQQ20s")
"""Source: APPNOTE.TXT, 4.3.7, 4.3.16, and 4.3.14 with 4.3.15, zip64's end and its locator."""
_UTF8, _IN_EXTRA, _ZIP64 = 0x800, 0xFFFFFFFF, 1
_HARMLESS = {_ZIP64, 0x5455, 0x7875}
"""Extra fields that name no other file: sizes, times, owners."""
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


def check_layout(file: Path) -> None:
    """Refuse an `.om` in which another reader of zips could find other parts than this one.

    Some readers go by the directory at the end, some by the heads between the parts, some by
    names in extra fields. So heads and directory agree, and there is nothing beside them.

    Raises:
        OfflineModelError: they do not agree, or there are bytes that belong to no part.
        OSError, BadZipFile: and the rest of `UNREADABLE`: it is no zip.
    """
    with open_archive(file) as archive, file.open("rb") as stream:
        at = 0
        for member in sorted(archive.infolist(), key=lambda one: one.header_offset):
            if member.header_offset != at or not _is_said_once(stream, member):
                raise OfflineModelError(
                    f"{file}:{member.filename}",
                    "another reader of zips could find something else here",
                    hint=_COPY,
                )
            at = stream.tell() + member.file_size
        if not _ends_with_directory(stream, at):
            raise OfflineModelError(str(file), "holds bytes that are no part of it", hint=_COPY)


def _is_said_once(stream: IO[bytes], member: zipfile.ZipInfo) -> bool:
    """True if the head before a part says what the directory says; read up to the part."""
    stream.seek(member.header_offset)
    fields = _HEAD.unpack(stream.read(_HEAD.size))
    magic, flags, method, crc, packed, size, name_bytes, extra_bytes = fields
    name, extra = stream.read(name_bytes), stream.read(extra_bytes)
    own = dict(_extra_fields(extra))
    sizes = (packed, size)
    if sizes == (_IN_EXTRA, _IN_EXTRA) and _ZIP64 in own:
        sizes = struct.unpack_from("<QQ", own[_ZIP64])[::-1]
    return (
        (magic, method, flags & ~_UTF8) == (b"PK\3\4", zipfile.ZIP_STORED, 0)
        and sizes == (member.file_size, member.file_size)
        and crc == member.CRC
        and name == member.orig_filename.encode("utf-8" if flags & _UTF8 else "cp437")
        and {*own, *dict(_extra_fields(member.extra))} <= _HARMLESS
    )


def _extra_fields(extra: bytes) -> Iterator[tuple[int, bytes]]:
    while extra:
        kind, size = struct.unpack_from("<HH", extra)
        yield kind, extra[4 : 4 + size]
        extra = extra[4 + size :]


def _ends_with_directory(stream: IO[bytes], at: int) -> bool:
    """True if there is nothing behind a place but the directory of the zip, without a comment."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - _LARGE_END.size - _END.size))
    tail = stream.read()
    *_, length, start, comment = _END.unpack(tail[-_END.size :])
    ends = _END.size
    if len(tail) > _END.size and tail.startswith(b"PK\6\6"):
        length, start = _LARGE_END.unpack(tail[: _LARGE_END.size])[-3:-1]
        ends = len(tail)
    return bool(comment == 0 and start == at and at + length + ends == size)


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


SIGNATURE = "manifest.json.sig"
NAMESPACE = "aoe-om"
"""Purpose of a signature, see ssh-keygen(1): one of a pack or a commit is none of a model."""
MOST_SIGNATURE_BYTES = 1 << 15


def check_signature(file: Path, manifest: bytes, signature: bytes | None, trusted: Path) -> str:
    """Return the signer of a model.

    Args:
        file: The `.om`, for messages.
        manifest: The bytes of its manifest.
        signature: None if it has none.
        trusted: File of allowed signers, in the form of ssh-keygen(1).

    Raises:
        OfflineModelError: none of them signed it.
        AoebankError: there is no such file of signers, or no ssh-keygen.
    """
    expected = f"a signature of one of {trusted}"
    if signature is None:
        raise OfflineModelError(
            str(file),
            "is not signed",
            expected=expected,
            hint="whoever made it signs it: aoe sign FILE.om --key ~/.ssh/id_ed25519",
        )
    signer = find_signer(manifest, signature, trusted, NAMESPACE)
    if not signer:
        raise OfflineModelError(
            str(file),
            "is not signed by anybody trusted, or was changed since",
            expected=expected,
            hint="get it again, or ask whoever made it for their public key",
        )
    return signer
