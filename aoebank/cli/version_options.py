"""Options the commands about versions share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from aoebank.report.output import say

Root: TypeAlias = Annotated[
    Path | None,
    typer.Argument(
        metavar="[ROOT]",
        show_default=False,
        help="Root of the bank; by default the one you are in, else the environment's.",
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


def say_bank(root: Path | None, meant: Path, *, as_json: bool) -> None:
    """Tell which bank a command is about, when nobody named it; a document says so itself."""
    if root is None and not as_json:
        say(f"bank: {meant}")
