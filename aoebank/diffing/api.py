"""Compare two sides, and show one file as git would."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from aoebank.parameters.context import AnyPath, Names, make_filter, make_ratio, open_bank
from aoebank.parameters.param import Completes, Param

if TYPE_CHECKING:
    from aoebank.diffing.result import DiffResult

_SIDE = "a path, git:REV, git:REV:PATH, snapshot:REF or snapshot:REF:ROOT"


def diff(
    a: Annotated[
        AnyPath,
        Param(
            kind=str,
            metavar="[A]",
            is_argument=True,
            help=f"Old side: {_SIDE}.",
            completes=Completes.SIDE,
        ),
    ] = "git:HEAD",
    b: Annotated[
        AnyPath,
        Param(
            kind=str,
            metavar="[B]",
            completes=Completes.SIDE,
            is_argument=True,
            default=None,
            help="New side, likewise; default: where you are.",
        ),
    ] = ".",
    *,
    noise: Annotated[
        float | str,
        Param(
            kind=str,
            metavar="RATIO",
            help="Times this close are the same; where samples scatter more, their spread counts.",
        ),
    ] = "3%",
    soc: Annotated[
        Names,
        Param(
            kind=list[str],
            metavar="GLOB",
            help="Only these targets.",
            completes=Completes.SOC_VERSION,
        ),
    ] = (),
    op: Annotated[
        Names,
        Param(
            kind=list[str], metavar="GLOB", help="Only these op_types.", completes=Completes.OP_TYPE
        ),
    ] = (),
    key: Annotated[
        Names,
        Param(
            kind=list[str],
            metavar="GLOB",
            help="Only these keys, or keys that start like this.",
            completes=Completes.KEY,
        ),
    ] = (),
    weights: Annotated[
        AnyPath | Mapping[str, float] | None,
        Param(kind=Path, metavar="FILE", help="JSON object: how often each key is used."),
    ] = None,
    no_renames: Annotated[
        bool, Param(help="Do not look for files with another name in B.")
    ] = False,
    fields: bool = True,
) -> DiffResult:
    """Compare two bank files or trees, record by record.

    Args:
        b: New side, written likewise; by default the banks below the current directory.
        soc: Only these targets; patterns as in a shell, as for `op` and `key`.
        fields: Whether to tell which members of a strategy changed.

    Raises:
        BankNotFoundError: a path is not there.
        HistoryError: a revision, snapshot or tag is not, or nothing of that path is in it.
        UsageError: `noise` or `weights` is not what it has to be.
    """
    from aoebank.diffing import run
    from aoebank.diffing.run import DiffOptions, load_weights

    options = DiffOptions(
        noise_ratio=make_ratio(noise, "--noise"),
        only=make_filter(soc, op, key),
        weights=load_weights(Path(weights)) if isinstance(weights, str | Path) else weights,
        has_renames=not no_renames,
        has_fields=fields,
    )
    return run.diff(open_bank(a, beside=b), open_bank(b, beside=a), options)


def textconv(
    file: Annotated[
        AnyPath,
        Param(kind=Path, metavar="FILE", is_argument=True, help="A bank file, broken or not."),
    ],
) -> str:
    """Return a bank file as text, one line per member, as git shows it in diffs.

    Raises:
        BankNotFoundError: there is no such file.
        BankFormatError: the file is of no format.
    """
    from aoebank.diffing import textconv as page
    from aoebank.storage.bank import load_file
    from aoebank.storage.tree import demand_bank_file

    demand_bank_file(Path(file))
    return page.textconv(load_file(Path(file)))
