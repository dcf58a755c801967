"""`aoebank edit`"""

from __future__ import annotations

from typing import Annotated

import typer

from aoebank.cli.options import AsJson, BankPaths, finish
from aoebank.cli.version_options import DryRun


def command(
    context: typer.Context,
    paths: BankPaths,
    op: Annotated[
        str, typer.Option("--op", metavar="OP_TYPE", help="Records of this operator type.")
    ],
    assign: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            show_default=False,
            help="Set this field of their strategies, or add it; may be given again.",
        ),
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="FIELD", show_default=False, help="Take this field out."),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            metavar="FIELD=VALUE",
            show_default=False,
            help="Only records whose strategy or workload has this value; all that are given hold.",
        ),
    ] = None,
    soc: Annotated[
        list[str] | None,
        typer.Option("--soc", metavar="GLOB", show_default=False, help="Only these targets."),
    ] = None,
    reader: Annotated[
        str,
        typer.Option(
            "--reader",
            metavar="NAME|git:REV|FILE",
            show_default=False,
            help="Release whose fields count; by default fields in the files tell.",
        ),
    ] = "",
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="FIELD",
            show_default=False,
            help="Set this field though the reader does not know it, or unset it though it is "
            "needed.",
        ),
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Set or unset fields in all records of an operator, over all files at once."""
    from aoebank.api.editing import edit
    from aoebank.report.changing.edit import EditReport

    result = edit(
        paths,
        op=op,
        assign=assign or (),
        unset=unset or (),
        where=where or (),
        soc=soc or (),
        reader=reader,
        allow=allow or (),
        dry_run=dry_run,
    )
    return finish(context, EditReport(result=result, is_dry_run=dry_run), as_json=as_json)
