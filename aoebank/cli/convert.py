"""`aoebank convert`"""

from __future__ import annotations

from typing import Annotated

import typer

from aoebank.cli.options import AsJson, finish


def command(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="BANK|FILE", help="A bank, git:REV or snapshot:REF; or .jsonl, .db, .sqlite."
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE|DIR",
            show_default=False,
            help="File of rows (.jsonl, .db, .sqlite); of such a file, the folder for the bank.",
        ),
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace a file there is.")] = False,
    as_json: AsJson = False,
) -> int:
    """Turn a bank into JSON lines or an SQLite table, or back: byte for byte, or not at all."""
    from aoebank.api.shipping import convert
    from aoebank.errors import UsageError
    from aoebank.report.shipping.convert import ConvertReport

    if not output:
        raise UsageError("--output: not given", expected="what to write")
    result = convert(source, output=output, force=force)
    return finish(context, ConvertReport(result=result), as_json=as_json)
