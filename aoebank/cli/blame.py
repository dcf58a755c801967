"""`aoebank blame`"""

from __future__ import annotations

from typing import Annotated

import typer

from aoebank.cli.log import Source
from aoebank.cli.options import AsJson, finish
from aoebank.cli.version_options import Op, Root, Soc, say_bank
from aoebank.model.snapshot import HistorySource


def command(
    context: typer.Context,
    key: Annotated[str, typer.Argument(metavar="KEY", help="A key, or the start of one.")],
    root: Root = None,
    soc: Soc = None,
    op: Op = None,
    source: Source = HistorySource.AUTO,
    as_json: AsJson = False,
) -> int:
    """Tell which version brought a record, who made it, and what was there before."""
    from aoebank.api.versions import blame
    from aoebank.report.history.blame import BlameReport

    result = blame(key, root, soc=soc or (), op=op or (), source=source)
    say_bank(root, result.root, as_json=as_json)
    return finish(context, BlameReport(result=result), as_json=as_json)
