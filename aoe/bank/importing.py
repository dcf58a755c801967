"""Banks the `aoe` of CANN has written: found where it writes, and taken into the bank here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from aoebank import Bank, BankFormatError, BankPathError, resolve

_OPERATOR_FOLDER = "unified_bank"
"""Its files are alike under any root; those elsewhere have binary copies or other names."""

Seen = Mapping[Path, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBank:
    """A bank file that is new or another one."""

    file: Path  # Where CANN has written it
    records: int  # Records in it that can be read
    is_new: bool  # True if there was no such file before
    # Where its records were taken to, None if they are where they belong or stay.
    taken_to: Path | None = None
    problem: str = ""  # Why it cannot be read or taken; empty if it can


def look_at_banks(soc_version: str) -> Seen:
    """Return the bank files below every place a writer of CANN uses, each with its time and size.

    Args:
        soc_version: What is tuned for.
    """
    seen = {}
    for file in _files(soc_version):
        status = file.stat()
        seen[file] = (status.st_mtime_ns, status.st_size)
    return seen


def take_in(soc_version: str, before: Seen, root: Path) -> tuple[WrittenBank, ...]:
    """Return the banks written since `before`; records elsewhere are put below `root`.

    Args:
        soc_version: What was tuned for.
        before: From `look_at_banks`.
        root: Of the operator bank used here.
    """
    now = look_at_banks(soc_version)
    changed = [file for file, status in sorted(now.items()) if before.get(file) != status]
    return tuple(_taken(file, file not in before, root) for file in changed)


def _files(soc_version: str) -> Iterator[Path]:
    answers = resolve(soc=soc_version, writer=True).answers
    for root in dict.fromkeys(answer.root for answer in answers if answer.root is not None):
        for file in Bank(root).iter_files():
            parts = file.relative_to(root).parts
            if len(parts) == 1 or parts[0] == soc_version:  # subgraphs lie directly below
                yield file


def _taken(file: Path, is_new: bool, root: Path) -> WrittenBank:
    written = WrittenBank(file=file, records=0, is_new=is_new)
    try:
        records = list(Bank(file.parent).iter_records(file))
        written = replace(written, records=len(records))
        is_here = file.resolve().is_relative_to(root.resolve())
        if is_here or file.parent.name != _OPERATOR_FOLDER:
            return written
        target = root / file.parent.parent.name / _OPERATOR_FOLDER / file.name
        Bank(root).put(target, records)
    except (BankFormatError, BankPathError) as error:
        return replace(written, problem=str(error))
    return replace(written, taken_to=target)
