"""The verb: a bank into one file of rows, or such a file into a bank."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from aoebank.errors import BankFormatError, BankNotFoundError, BankPathError, shell_word
from aoebank.shipping.containers import demand_container, find_container
from aoebank.shipping.rows import files_of, rows_of
from aoebank.storage.sides.side import Side
from aoebank.storage.writing.staged import update_file, write_new_tree


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertResult:
    """What was converted.

    Attributes:
        source: As a person wrote it.
        output: What was written.
        files: Files of the bank, side-cars and the quarantine too.
        records: Records of the bank.
    """

    source: str
    output: Path
    files: int
    records: int


def convert_bank(side: Side, output: Path, *, force: bool) -> ConvertResult:
    """Write a bank as one file of rows, if all of it comes back from there byte for byte.

    Args:
        side: The bank.
        output: `.jsonl`, `.db` or `.sqlite`.
        force: Whether a file that is there may be replaced.

    Raises:
        UsageError: the output is of no known kind.
        BankFormatError: a file is broken, or would not come back as it is.
        BankPathError: the output is there already, or cannot be written.
    """
    container = demand_container(output)
    if os.path.lexists(output) and not force:
        raise BankPathError("is there already", path=output, hint="--force replaces it")
    rows = [*rows_of(side)]
    for name, data in files_of(rows, output).items():
        if data != side.read_bytes(name):
            raise BankFormatError(
                "would not come back byte for byte: it is not as its tuner writes it",
                path=Path(name),
                hint=f"aoebank fmt {shell_word(side.label)} puts it into that form; "
                f"aoebank pack {shell_word(side.label)} -o bank.tar.gz takes it as it is",
            )
    data = container.serialize(rows)
    update_file(output, lambda _: data)
    return ConvertResult(
        source=side.label,
        output=output,
        files=len({row.file for row in rows}),
        records=sum(row.record is not None for row in rows),
    )


def convert_rows(source: Path, root: Path) -> ConvertResult:
    """Make a bank of a file of rows, whole or not at all.

    Args:
        source: What `convert_bank` has written, edited perhaps.
        root: Folder for the bank, which must not be there yet.

    Raises:
        BankNotFoundError: there is no such file.
        BankFormatError: it has rows that are no records, or not of the file they name.
        BankPathError: the folder is there already, or cannot be made.
    """
    container = find_container(source)
    assert container is not None, source
    if not source.is_file():
        raise BankNotFoundError("no such file", path=source)
    if os.path.lexists(root):
        raise BankPathError("is there already, and rows become a bank of their own", path=root)
    rows = [*container.parse(source)]
    files = files_of(rows, source)
    write_new_tree(root, files.items(), verb="convert")
    return ConvertResult(
        source=str(source),
        output=root,
        files=len(files),
        records=sum(row.record is not None for row in rows),
    )
