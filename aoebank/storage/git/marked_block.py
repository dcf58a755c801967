"""A block of lines of ours in a file of other people's lines."""

from __future__ import annotations

import re
from pathlib import Path

from aoebank.errors import AoebankError

_BEGIN = b"# >>> aoebank"
_END = b"# <<< aoebank"
_BLOCK = re.compile(
    rb"^# >>> aoebank\b[^\n]*\n(?P<body>.*?)^# <<< aoebank\b[^\n]*(?:\n|\Z)",
    re.MULTILINE | re.DOTALL,
)


def make_block(note: str, lines: tuple[str, ...]) -> bytes:
    """Return the text of a block: its marks, and `lines` between them."""
    text = "\n".join((f"{_BEGIN.decode()}: {note}", *lines, _END.decode()))
    return f"{text}\n".encode()


def find_block(data: bytes) -> bytes | None:
    """Return the first block of a file as it stands there, LF line ends, or None."""
    found = _BLOCK.search(data)
    return found[0].replace(b"\r\n", b"\n") if found else None


def put_block(data: bytes, block: bytes, path: Path) -> bytes:
    """Return a file with `block` where its block is, else at its end.

    A merge may have left the file with several; one stays.

    Raises:
        AoebankError: a mark stands alone, so where the block ends is not known.
    """
    rest = drop_block(data, path)
    found = _BLOCK.search(data)
    if found:
        return rest[: found.start()] + block + rest[found.start() :]
    return rest + (b"\n" if rest and not rest.endswith(b"\n") else b"") + block


def drop_block(data: bytes, path: Path) -> bytes:
    """Return a file without its blocks, every other byte as it was.

    Raises:
        AoebankError: a mark stands alone, so where the block ends is not known.
    """
    rest = _BLOCK.sub(b"", data)
    for mark in (_BEGIN, _END):
        if re.search(rb"^" + mark + rb"\b", rest, re.MULTILINE):
            raise AoebankError(
                "half a block",
                path=path,
                got=f"{mark.decode()} alone",
                expected=f"{_BEGIN.decode()} and {_END.decode()}",
                hint="remove the mark and the lines that belong to it",
            )
    return rest
