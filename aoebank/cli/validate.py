"""`aoebank validate`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aoebank.cli.options import AsJson, finish


def command(
    context: typer.Context,
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Bank files or trees.")],
    as_json: AsJson = False,
) -> int:
    """Check bank files and trees; tell everything that is wrong in one run."""
    from aoebank.ops.validate import validate
    from aoebank.report.validate import ValidateReport

    return finish(context, ValidateReport(result=validate(paths)), as_json=as_json)
