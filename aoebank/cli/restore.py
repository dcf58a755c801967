"""`aoebank restore`"""

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
        typer.Argument(metavar="SNAPSHOT", help="Id, start of one, tag, latest~N, or git:REV."),
    ],
    root: Root = None,
    soc: Soc = None,
    op: Op = None,
    key: Key = None,
    with_quarantined: WithQuarantined = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Put a bank, or a part of it, back to how a version has it."""
    from aoebank.ops.history.restore import RestoreResult, plan_restore, restore
    from aoebank.report.history.restore import RestoreReport

    place = bank_root(root)
    today = None if with_quarantined else current_day()
    plan = plan_restore(place, version, make_filter(soc, op, key), today=today)
    planned = RestoreResult(plan=plan, kept=None)
    result = planned if dry_run else restore(plan, current_author(place))
    return finish(context, RestoreReport(result=result), as_json=as_json)
