"""Findings about the bytes of a file, before anyone looks for records."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from aoebank.formats.lines import LineIndex
from aoebank.model.finding import Finding, Location, make_finding

BOM = b"\xef\xbb\xbf"
LONG_INTEGER = "integer has more digits than Python reads"
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"  # Source: the Git LFS specification
_LONGEST_STUB = 100
_MOST_MARKERS = 1000  # each is a finding; a file with more of them is no bank
_BLANK = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*")
_STUB = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*\{[ \t\r\n]*\}[ \t\r\n]*")
MOST_DIGITS = 4300  # Source: sys.int_info.default_max_str_digits of CPython, for int(text)
_DIGITS = frozenset(b"0123456789")
_LONG_INTEGER = re.compile(
    rb'"(?:[^"\\\n]|\\.)*"|(?<![0-9.eE+-])-?(?P<digits>[0-9]{%d,})(?![0-9.eE])' % (MOST_DIGITS + 1)
)
_MARKER = re.compile(rb"^(?:<{7} |={7}\r?$|\|{7} |>{7} )[^\n]*", re.MULTILINE)


def is_blank(data: bytes) -> bool:
    """True if a file holds white space at most, or a byte order mark before it."""
    return data.isspace() or _BLANK.fullmatch(data) is not None  # strip() would copy gigabytes


def is_lfs_pointer(data: bytes) -> bool:
    """True if a file only names the content that Git LFS keeps elsewhere."""
    return data.startswith(_LFS_POINTER)


def is_stub(data: bytes) -> bool:
    """True if a file is an object without members: how people empty a bank of lines."""
    return len(data) < _LONGEST_STUB and _STUB.fullmatch(data) is not None


def check_text(data: bytes, path: Path, lines: LineIndex) -> Iterator[Finding]:
    """Yield the problems of the bytes: encoding, marks, line ends, conflict markers."""
    if is_lfs_pointer(data):
        yield make_finding(
            "AB117",
            Location(path=path),
            "is a Git LFS pointer: the bank itself was not fetched",
            hint="git lfs pull; a revision of git has the pointer only",
        )
        return
    if _BLANK.fullmatch(data):
        yield make_finding(
            "AB110",
            Location(path=path),
            "file is empty",
            hint="restore it, or remove it; a bank emptied on purpose holds {} or []",
        )
    if data.startswith(BOM):
        yield make_finding(
            "AB105",
            lines.location(path, 0, 3),
            "file starts with a byte order mark",
            hint="aoebank validate --fix --fix-class bom FILE; Python readers reject it",
        )
    yield from _check_line_ends(data, path, lines)
    yield from _check_encoding(data, path, lines)
    yield from _check_markers(data, path, lines)
    yield from _check_integers(data, path, lines)


def _check_line_ends(data: bytes, path: Path, lines: LineIndex) -> Iterator[Finding]:
    # one byte is looked for ten times as fast as two
    first = data.find(b"\r\n") if b"\r" in data else -1
    if first >= 0:
        number = data.count(b"\r\n")
        yield make_finding(
            "AB106",
            lines.location(path, first, first + 2),
            "lines end with CR LF",
            got=f"{number} of {data.count(bytes([10]))} lines",
            expected="LF",
            hint="aoebank validate --fix --fix-class crlf FILE; aoebank git install keeps it",
        )


def _check_encoding(data: bytes, path: Path, lines: LineIndex) -> Iterator[Finding]:
    if data.isascii():
        return
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        yield make_finding(
            "AB102",
            lines.location(path, error.start, error.end),
            "bytes are not UTF-8",
            got=data[error.start : error.end].hex(" "),
            hint="convert the file to UTF-8, or restore it",
        )


def _check_markers(data: bytes, path: Path, lines: LineIndex) -> Iterator[Finding]:
    if b"<" not in data and b">" not in data:
        return
    if b"<<<<<<< " not in data and b">>>>>>> " not in data:
        return
    for match in islice(_MARKER.finditer(data), _MOST_MARKERS):
        yield make_finding(
            "AB104",
            lines.location(path, match.start(), match.end()),
            "merge conflict marker left in the file",
            got=match[0][:40].decode("utf-8", errors="replace").rstrip(),
            hint="merge the two versions again",
        )


def _check_integers(data: bytes, path: Path, lines: LineIndex) -> Iterator[Finding]:
    for start, digits in islice(iter_long_integers(data), _MOST_MARKERS):
        yield make_finding(
            "AB116",
            lines.location(path, start, start + digits),
            LONG_INTEGER,
            got=f"{digits} digits",
            expected=f"at most {MOST_DIGITS}",
            hint="restore the record from git, or remove it",
        )


def iter_long_integers(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield first byte and digits of each integer in JSON text that Python does not read."""
    step = MOST_DIGITS // 2  # few bytes tell: so many digits cover a stretch between two of these
    if any(
        data[place] in _DIGITS and data[place : place + step].isdigit()
        for place in range(0, len(data) - step + 1, step)
    ):
        for match in _LONG_INTEGER.finditer(data):
            if match["digits"]:
                yield match.start("digits"), len(match["digits"])
