"""Lines for git about bank files, in a marked block among other people's lines.

Source: gitattributes(5), "Defining a custom merge driver" and "Performing text diffs of
binary files".
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from aoebank.errors import AoebankError, BankPathError
from aoebank.formats.provenance import SUFFIX
from aoebank.formats.registry import bank_globs
from aoebank.storage.git.program import run_git

DRIVER = "aoebank"
INNER_DRIVER = "aoebank-inner"  # merges the bases of a merge that has several
BLOCK_VERSION = 1

QUARANTINE = ".aoebank/quarantine.jsonl"
LINE_GLOBS = (f"*{SUFFIX}", f"**/{QUARANTINE}")

_NOTE = f"written by `aoebank git install`, version {BLOCK_VERSION}"
_ONLY = "only "
_SHELL = b"#!/bin/sh\n"
_SHELL_LINE = re.compile(rb"#!.*\b(?:ba|da|k|z)?sh\b")
_BEGIN = b"# >>> aoebank"
_END = b"# <<< aoebank"
_BLOCK = re.compile(
    rb"^# >>> aoebank\b[^\n]*\n(?P<body>.*?)^# <<< aoebank\b[^\n]*(?:\n|\Z)",
    re.MULTILINE | re.DOTALL,
)


def attribute_block(formats: Collection[str] = ()) -> bytes:
    """Return the lines for `.gitattributes`; `-text`: bank files are kept byte for byte.

    Args:
        formats: Names of the formats that git is to know; all without any.
    """
    globs = bank_globs(formats)
    width = max(map(len, (*globs, *LINE_GLOBS)))
    banks = (f"{glob:<{width}} merge={DRIVER} diff={DRIVER} -text" for glob in globs)
    lines = (f"{glob:<{width}} merge={DRIVER} -text" for glob in LINE_GLOBS)
    only = f"; {_ONLY}{', '.join(sorted(formats))}" if formats else ""
    return make_block(f"{_NOTE}{only}; a later line counts more", (*banks, *lines))


def formats_of(block: bytes) -> tuple[str, ...]:
    """Return the formats that a block of `.gitattributes` was written for; none for all."""
    _, found, names = block.partition(b"\n")[0].decode("utf-8", "replace").partition(_ONLY)
    return tuple(names.partition(";")[0].split(", ")) if found else ()


def exclude_block(*patterns: str) -> bytes:
    """Return the lines for `.git/info/exclude`: what is nobody's to commit."""
    return make_block(_NOTE, patterns)


def hook_block(command: str) -> bytes:
    """Return the lines of a `pre-commit` hook that stop commits while conflicts are open.

    Args:
        command: How a shell starts `aoebank`.
    """
    return make_block(_NOTE, (f"{command} git check --conflicts || exit 1",))


def put_hook_block(data: bytes, block: bytes, path: Path) -> bytes:
    """Return a hook with `block` in its place, a new one behind the first line.

    At the end of a hook it might never run: many end in `exec`.

    Raises:
        BankPathError: the hook is no shell script.
    """
    start, _, rest = drop_block(data, path).partition(b"\n")
    if not start:
        return _SHELL + block
    if not _SHELL_LINE.match(start):
        raise BankPathError(
            "hook is no shell script",
            path=path,
            got=start[:60].decode("utf-8", errors="replace"),
            expected="#!/bin/sh",
            hint="let it run: aoebank git check --conflicts",
        )
    return start + b"\n" + block + rest


def drop_hook_block(data: bytes, path: Path) -> bytes | None:
    """Return a hook without our block; None where nothing else was in it."""
    rest = drop_block(data, path)
    return None if rest in (b"", _SHELL) else rest


def get_attributes(names: Iterable[str], attribute: str, *, cwd: Path) -> dict[str, str]:
    """Return the values git has for an attribute, by path from `cwd`.

    `unspecified`, `set` and `unset` are git's words for no value.
    """
    data = b"".join(os.fsencode(name) + b"\0" for name in names)
    if not data:
        return {}
    output = run_git(["check-attr", "-z", "--stdin", attribute], cwd=cwd, data=data)
    fields = [os.fsdecode(field) for field in output.split(b"\0")[:-1]]
    return dict(zip(fields[::3], fields[2::3], strict=True))


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
