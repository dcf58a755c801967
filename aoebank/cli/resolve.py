"""`aoebank resolve`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aoebank.cli.options import AsJson, finish
from aoebank.model.resolution import Reader


def command(
    context: typer.Context,
    soc: Annotated[
        str | None, typer.Option("--soc", help="Only files of this soc_version.", metavar="SOC")
    ] = None,
    core_num: Annotated[
        int | None,
        typer.Option(
            "--core-num",
            min=0,
            max=999_999_999,
            metavar="N",
            help="Only files for this number of cores.",
        ),
    ] = None,
    op: Annotated[
        str | None, typer.Option("--op", help="Only files of this op_type.", metavar="OP_TYPE")
    ] = None,
    reader: Annotated[
        list[Reader] | None,
        typer.Option(
            "--reader",
            metavar="READER",
            help=f"Whose rules to follow: {', '.join(Reader)}. May be given again.",
        ),
    ] = None,
    writer: Annotated[
        bool, typer.Option("--writer", help="Ask all writers instead of all readers.")
    ] = False,
    op_bank_path: Annotated[
        str | None, typer.Option("--op-bank-path", help="As --op_bank_path of a conversion.")
    ] = None,
    mdl_bank_path: Annotated[
        str | None, typer.Option("--mdl-bank-path", help="As --mdl_bank_path of a conversion.")
    ] = None,
    opp_path: Annotated[
        str | None, typer.Option("--opp-path", help="Instead of ASCEND_OPP_PATH.")
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option("--shape", metavar="JSON", help="Which record this info_dict would get."),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="FILE", help="The same for the record in a file."),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Tell every place tried, and why.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Print which bank directories and files each reader would use."""
    from aoebank.api.reading import resolve
    from aoebank.report.resolve import ResolveReport

    asks_cann = writer or soc or shape or record or op_bank_path or mdl_bank_path or opp_path
    if not reader and not asks_cann and not _has_toolkit():
        reader = [Reader.HOST]
    result = resolve(
        soc=soc,
        core_num=core_num,
        op=op,
        reader=reader or (),
        writer=writer,
        op_bank_path=op_bank_path,
        mdl_bank_path=mdl_bank_path,
        opp_path=opp_path,
        shape=shape,
        record=record,
    )
    return finish(context, ResolveReport(result=result, explain=explain), as_json=as_json)


def _has_toolkit() -> bool:
    """Tell whether CANN's readers can be meant; if not, say so: nobody asked for less."""
    from aoebank.report.output import say
    from aoebank.storage.readers.environment import current_environment
    from aoebank.storage.readers.toolkit import find_toolkit

    if find_toolkit(current_environment()):
        return True
    say("no CANN toolkit here: this is what aoe would use; --soc or --reader asks CANN's readers")
    return False
