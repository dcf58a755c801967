"""The binary twin of a cube bank: head and sizes, as far as its layout is public.

What cannot be checked: the bits of a shape and of a tiling have no public layout, so a twin
whose sizes fit may still hold other records than its JSON.

Source: CANN 8.1 auto_tune: 64 bytes of head (checksum, length of the head, platform, number
of cases, version), then shape bits and tiling bits per record in the order of the JSON.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from aoebank.formats.protocol import ParsedFile
from aoebank.model.finding import Finding, Location, make_finding

HEAD_BYTES = 64
CHECK_SUM = 1031
_PLATFORM = b"AaZ"
_REBUILD = "make the twin anew with CANN's tools"


def check_binary_cache(parsed: ParsedFile, data: bytes | None) -> Iterator[Finding]:
    """Yield the problems of a bank's binary cache.

    Args:
        parsed: The JSON side.
        data: Bytes of the twin, None if there is none.
    """
    path = parsed.path.with_suffix(".bin")
    if data is None:
        yield make_finding(
            "AB508",
            Location(path=parsed.path),
            "binary twin is missing: readers see no bank",
            expected=path.name,
            hint=_REBUILD,
        )
        return
    yield from _head_problems(data, path)
    yield from _body_problems(data, path, len(parsed))


def _head_problems(data: bytes, path: Path) -> Iterator[Finding]:
    if len(data) < HEAD_BYTES:
        yield _wrong(path, "head is cut short", f"{len(data)} bytes", f">= {HEAD_BYTES} bytes")
        return
    check_sum, *lengths = struct.unpack_from("<III", data)
    if check_sum != CHECK_SUM:
        yield _wrong(path, "checksum of the head is not the usual", check_sum, CHECK_SUM)
    if HEAD_BYTES not in lengths:  # the width of the checksum is not public: 4 or 8 bytes
        yield _wrong(path, "length of the head is not the usual", lengths[0], HEAD_BYTES)
    if _PLATFORM not in data[:HEAD_BYTES] or b"version" not in data[:HEAD_BYTES]:
        yield _wrong(path, "head names no platform and version", "other bytes", "AaZ, version...")


def _body_problems(data: bytes, path: Path, records: int) -> Iterator[Finding]:
    """Yield a record count that does not fit.

    The count is the little-endian word behind the platform; the body must divide by it.
    """
    place = data.find(_PLATFORM, 8, HEAD_BYTES)
    if len(data) < HEAD_BYTES or place < 0:
        return
    words = [
        number
        for offset in range(place + len(_PLATFORM), HEAD_BYTES - 3)
        for (number,) in [struct.unpack_from("<I", data, offset)]
    ]
    if records not in words:
        yield _wrong(path, "head does not hold the number of records", "other numbers", records)
    body = len(data) - HEAD_BYTES
    if (body == 0) != (records == 0):
        yield _wrong(path, "number of records differs", f"{body} bytes of records", records)


def _wrong(path: Path, message: str, got: object, expected: object) -> Finding:
    return make_finding(
        "AB509", Location(path=path), message, got=str(got), expected=str(expected), hint=_REBUILD
    )
