"""`aoebank resolve`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aoebank.cli.options import AsJson, finish
from aoebank.errors import UsageError
from aoebank.model.resolution import Query, Reader
from aoebank.storage.readers.environment import current_environment, surroundings


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
        typer.Option("--reader", help="Whose rules to follow; may be given again."),
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
    from aoebank.ops.resolve.records import workload_from_file, workload_from_text
    from aoebank.ops.resolve.run import resolve
    from aoebank.report.resolve import ResolveReport

    _demand_names(soc=soc, op=op)
    if shape is not None and record is not None:
        raise UsageError("--shape and --record: both given", expected="one of them")
    if writer and reader:
        raise UsageError("--writer and --reader: both given", expected="one of them")
    workload = workload_from_text(shape, op_type=op) if shape is not None else None
    if record is not None:
        workload = workload_from_file(record)
    around = surroundings(
        env=current_environment(),
        cwd=Path.cwd(),
        op_bank_path=op_bank_path,
        mdl_bank_path=mdl_bank_path,
        opp_path=opp_path,
    )
    query = Query(soc_version=soc, core_num=core_num, op_type=op)
    result = resolve(
        around=around, query=query, readers=reader or (), writers=writer, workload=workload
    )
    return finish(context, ResolveReport(result=result, explain=explain), as_json=as_json)


def _demand_names(**names: str | None) -> None:
    for option, name in names.items():
        if name is not None and (not name or "/" in name or name.startswith(".")):
            raise UsageError(f"--{option}: no part of a file name", got=repr(name))
