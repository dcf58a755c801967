"""`aoebank diff`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aoebank.cli.options import AsJson, finish


def command(
    context: typer.Context,
    a: Annotated[Path, typer.Argument(metavar="A", help="Old bank file or tree.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="New bank file or tree.")],
    as_json: AsJson = False,
) -> int:
    """Compare two bank files or trees, record by record."""
    from aoebank.ops.diff import diff
    from aoebank.report.diff import DiffReport

    return finish(context, DiffReport(result=diff(a, b)), as_json=as_json)
