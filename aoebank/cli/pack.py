"""`aoebank pack`"""

from __future__ import annotations

from typing import Annotated

import typer

from aoebank.cli.options import AsJson, BankSide, finish
from aoebank.cli.version_options import Soc


def command(
    context: typer.Context,
    bank: BankSide = None,
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FILE", show_default=False, help="Archive, as in bank.tar.gz."
        ),
    ] = "",
    soc: Soc = None,
    message: Annotated[
        str, typer.Option("--message", "-m", metavar="TEXT", help="What the pack is for.")
    ] = "",
    sign: Annotated[
        str | None,
        typer.Option("--sign", metavar="KEY", show_default=False, help="Sign with this SSH key."),
    ] = None,
    provenance: Annotated[
        bool,
        typer.Option(
            "--provenance/--no-provenance", help="With the side-cars, which tell models, machines."
        ),
    ] = True,
    force: Annotated[bool, typer.Option("--force", help="Replace an archive there is.")] = False,
    as_json: AsJson = False,
) -> int:
    """Put a bank into one file, with a manifest and a digest of everything in it."""
    from aoebank.api.shipping import pack
    from aoebank.errors import UsageError
    from aoebank.report.shipping.pack import PackReport

    if not output:
        raise UsageError("--output: not given", expected="the archive to write")
    result = pack(
        bank,
        output=output,
        soc=soc or (),
        message=message,
        sign=sign,
        provenance=provenance,
        force=force,
    )
    return finish(context, PackReport(result=result), as_json=as_json)
