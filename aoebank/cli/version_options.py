"""Options the commands about versions share."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from aoebank.cli.options import default_root

if TYPE_CHECKING:
    from aoebank.ops.history.snapshot import Author
    from aoebank.ops.record_filter import RecordFilter

Root: TypeAlias = Annotated[
    Path | None,
    typer.Argument(
        metavar="[ROOT]",
        show_default=False,
        help="Root of the bank; by default the one the environment names.",
    ),
]
Soc: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--soc",
        metavar="SOC",
        show_default=False,
        help="Only this soc_version; * and ? are wild; may be given again.",
    ),
]
Op: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--op",
        metavar="OP_TYPE",
        show_default=False,
        help="Only this op_type; * and ? are wild; may be given again.",
    ),
]
Key: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--key",
        metavar="KEY",
        show_default=False,
        help="Only records of this key, or whose key starts so; may be given again.",
    ),
]
DryRun: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done, write nothing.")
]

WithQuarantined: TypeAlias = Annotated[
    bool,
    typer.Option("--with-quarantined", help="Bring records back that are in quarantine too."),
]


def bank_root(root: Path | None) -> Path:
    """Return the root a command is about."""
    return root if root is not None else default_root()


def make_filter(
    soc: list[str] | None, op: list[str] | None, key: list[str] | None = None
) -> RecordFilter:
    """Return the filter of a command line."""
    from aoebank.ops.record_filter import RecordFilter

    return RecordFilter(soc=tuple(soc or ()), op=tuple(op or ()), key=tuple(key or ()))


def current_day() -> date:
    """Return the day by which entries of a quarantine expire, in UTC."""
    return datetime.now(UTC).date()


def current_author(root: Path) -> Author:
    """Return who runs this command, now, on this machine."""
    from aoebank.ops.history.snapshot import Author
    from aoebank.storage.git.identity import current_identity, current_machine

    who = current_identity(root if root.is_dir() else Path.cwd())
    return Author(who=who, now=datetime.now(UTC), machine=current_machine())
