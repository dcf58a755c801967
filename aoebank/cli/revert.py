"""`aoebank revert`"""

from __future__ import annotations

from typing import Annotated

import typer

from aoebank.cli.options import AsJson, finish
from aoebank.cli.version_options import (
    DryRun,
    Key,
    Op,
    Root,
    Soc,
    WithQuarantined,
    say_bank,
)


def command(
    context: typer.Context,
    version: Annotated[
        str,
        typer.Argument(metavar="SNAPSHOT", help="Id, start of one, tag, latest~N, or git:COMMIT."),
    ],
    root: Root = None,
    soc: Soc = None,
    op: Op = None,
    key: Key = None,
    with_quarantined: WithQuarantined = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Take back what one version changed, record by record; later changes stay."""
    from aoebank.api.versions import revert
    from aoebank.report.history.restore import RevertReport

    result = revert(
        version,
        root,
        soc=soc or (),
        op=op or (),
        key=key or (),
        with_quarantined=with_quarantined,
        dry_run=dry_run,
    )
    say_bank(root, result.plan.root, as_json=as_json)
    return finish(context, RevertReport(result=result), as_json=as_json)
