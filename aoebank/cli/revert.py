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
    bank_root,
    current_author,
    current_day,
    make_filter,
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
    from aoebank.ops.history.revert import RevertResult, plan_revert, revert
    from aoebank.report.history.restore import RevertReport

    place = bank_root(root)
    today = None if with_quarantined else current_day()
    plan = plan_revert(place, version, make_filter(soc, op, key), today=today)
    planned = RevertResult(plan=plan, kept=None)
    result = planned if dry_run else revert(plan, current_author(place))
    return finish(context, RevertReport(result=result), as_json=as_json)
