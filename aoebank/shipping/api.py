"""Ship a bank: pack it into one file, unpack such a file, convert banks to rows and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from aoebank.errors import UsageError
from aoebank.parameters.context import AnyPath, Names, make_filter, open_bank
from aoebank.parameters.param import SOC, Completes, Param

if TYPE_CHECKING:
    from aoebank.shipping.convert import ConvertResult
    from aoebank.shipping.pack import PackResult, UnpackResult


def pack(
    bank: Annotated[
        AnyPath | None,
        Param(
            kind=str,
            metavar="[BANK]",
            is_argument=True,
            help="Root of a bank, git:REV[:PATH] or snapshot:REF[:ROOT].",
            completes=Completes.SIDE,
        ),
    ] = None,
    *,
    output: Annotated[
        AnyPath,
        Param(
            kind=str,
            flags=("--output", "-o"),
            metavar="FILE",
            expected="the archive to write",
            help="Archive, as in bank.tar.gz.",
        ),
    ],
    soc: Annotated[Names, SOC] = (),
    message: Annotated[
        str,
        Param(kind=str, flags=("--message", "-m"), metavar="TEXT", help="What the pack is for."),
    ] = "",
    sign: Annotated[
        AnyPath | None, Param(kind=str, metavar="KEY", help="Sign with this SSH key.")
    ] = None,
    provenance: Annotated[
        bool,
        Param(
            flags=("--provenance/--no-provenance",),
            help="Pack the side-cars, too: they name models and machines.",
        ),
    ] = True,
    force: Annotated[bool, Param(help="Replace an archive that exists.")] = False,
) -> PackResult:
    """Write a bank into one file, with a manifest of what is in it and a digest of every file.

    Args:
        bank: A tree, `git:REV`, `git:REV:PATH`, `snapshot:REF` or `snapshot:REF:ROOT`; by default
            the bank the environment names.

    Returns:
        What was written; the same bank gives the same bytes.

    Raises:
        UsageError: `bank` is a file, or the key cannot sign.
        BankNotFoundError: there is no such bank, key, or nothing of these targets in it.
        BankFormatError: a bank file is broken.
        BankPathError: the archive is there already, or cannot be written.
        HistoryError: there is no such revision or snapshot.
    """
    from aoebank import __version__
    from aoebank.shipping import pack as run

    side = open_bank(bank)
    request = run.PackRequest(
        output=Path(output),
        wanted=make_filter(soc, ()),
        with_provenance=provenance,
        message=message,
        key=Path(sign) if sign is not None else None,
        force=force,
    )
    return run.pack(side, request, made_by=f"aoebank {__version__}")


def unpack(
    pack: Annotated[
        AnyPath, Param(kind=str, metavar="FILE", is_argument=True, help="What pack wrote.")
    ],
    root: Annotated[
        AnyPath | None,
        Param(
            kind=str, metavar="[DIR]", is_argument=True, help="Folder for the bank; not there yet."
        ),
    ] = None,
    *,
    check: Annotated[bool, Param(help="Look at the pack only, write nothing.")] = False,
    allowed_signers: Annotated[
        AnyPath | None,
        Param(
            kind=str,
            metavar="FILE",
            help="Refuse a pack that none of these has signed; ssh-keygen(1) has the form.",
        ),
    ] = None,
) -> UnpackResult:
    """Take a bank out of a pack; every file has to be what the manifest says.

    Raises:
        UsageError: neither `root` nor `check` is given, or both.
        BankNotFoundError: there is no such pack, or no such file of signers.
        BankFormatError: the pack is damaged, or nobody allowed has signed it.
        BankPathError: the folder is there already, or cannot be made.
    """
    from aoebank.shipping import pack as verb

    if (root is None) is not check:
        raise UsageError(
            "where to unpack it" if root is None else "DIR and --check: both given",
            expected="a DIR, or --check to look at it only",
        )
    allowed = Path(allowed_signers) if allowed_signers is not None else None
    return verb.unpack(Path(pack), Path(root) if root is not None else None, allowed=allowed)


def convert(
    source: Annotated[
        AnyPath,
        Param(
            kind=str,
            metavar="BANK|FILE",
            is_argument=True,
            help="A bank, git:REV or snapshot:REF; or .jsonl, .db, .sqlite; or a study of Optuna.",
            completes=Completes.SIDE,
        ),
    ],
    *,
    output: Annotated[
        AnyPath,
        Param(
            kind=str,
            flags=("--output", "-o"),
            metavar="FILE|DIR",
            expected="what to write",
            help="File of rows to write (.jsonl, .db, .sqlite); to turn one back, the folder for "
            "the bank.",
        ),
    ],
    force: Annotated[bool, Param(help="Replace a file that exists.")] = False,
) -> ConvertResult:
    """Turn a bank into a file of rows, or such a file into a bank: lossless, or refused.

    Args:
        source: A bank (tree or file, `git:REV`, `snapshot:REF`), or a `.jsonl`, `.db` or `.sqlite`
            file of an earlier conversion; or a journal or SQLite storage of Optuna, whose studies
            become files in the T4 format.
        force: Replace a file that is there; a folder never is.

    Raises:
        UsageError: the output is of no known kind.
        BankNotFoundError: there is no such source.
        BankFormatError: something would not come back byte for byte, a row is no record, or no
            trial has a result.
        BankPathError: the output is there already, or cannot be written.
    """
    from aoebank.formats.optuna.study import is_study
    from aoebank.shipping import convert as run
    from aoebank.shipping.convert import find_container
    from aoebank.storage.sides.open import is_stored

    if not is_stored(str(source)) and is_study(Path(source)):
        return run.convert_studies(Path(source), Path(output))
    if not is_stored(str(source)) and find_container(Path(source)) is not None:
        return run.convert_rows(Path(source), Path(output))
    return run.convert_bank(open_bank(source), Path(output), force=force)
