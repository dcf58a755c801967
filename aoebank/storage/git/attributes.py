"""What git is told about bank files, and what it says it was told.

Source: gitattributes(5), "Defining a custom merge driver" and "Performing text diffs of
binary files".
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from aoebank.formats.provenance import SUFFIX
from aoebank.storage.git.marked_block import make_block
from aoebank.storage.git.program import run_git

DRIVER = "aoebank"
INNER_DRIVER = "aoebank-inner"  # merges the bases of a merge that has several
BLOCK_VERSION = 1

QUARANTINE = ".aoebank/quarantine.jsonl"
# what no name of a bank file escapes; the broader ones take in what another reader added
BANK_GLOBS = (
    "*_AiCore_*.json",
    "*_VectorCore_*.json",
    "*_runtime_kb.json",
    "repository_*.json",
    "AIC_*_repository_*.json",
    "*_gradient_fusion.json",
    "*_l2cache.json",
    "*_l2fusion.json",
    "*_l1fusion.json",
)
LINE_GLOBS = (f"*{SUFFIX}", f"**/{QUARANTINE}")

_NOTE = f"written by `aoebank git install`, version {BLOCK_VERSION}"


def attribute_block() -> bytes:
    """Return the lines for `.gitattributes`; `-text`: bank files are kept byte for byte."""
    width = max(map(len, (*BANK_GLOBS, *LINE_GLOBS)))
    banks = (f"{glob:<{width}} merge={DRIVER} diff={DRIVER} -text" for glob in BANK_GLOBS)
    lines = (f"{glob:<{width}} merge={DRIVER} -text" for glob in LINE_GLOBS)
    return make_block(f"{_NOTE}; a later line counts more", (*banks, *lines))


def exclude_block(*patterns: str) -> bytes:
    """Return the lines for `.git/info/exclude`: what is nobody's to commit."""
    return make_block(_NOTE, patterns)


def get_attributes(names: Iterable[str], attribute: str, *, cwd: Path) -> dict[str, str]:
    """Return what git takes an attribute for, by path from `cwd`.

    `unspecified`, `set` and `unset` are git's words for no value.
    """
    data = b"".join(os.fsencode(name) + b"\0" for name in names)
    if not data:
        return {}
    output = run_git(["check-attr", "-z", "--stdin", attribute], cwd=cwd, data=data)
    fields = [os.fsdecode(each) for each in output.split(b"\0")[:-1]]
    return dict(zip(fields[::3], fields[2::3], strict=True))
