"""`aoebank unpack`"""

from __future__ import annotations

from typing import Annotated

import typer

from aoebank.cli.options import AsJson, finish
from aoebank.errors import UsageError


def command(
    context: typer.Context,
    pack: Annotated[
        str, typer.Argument(metavar="FILE", help="What pack wrote.", show_default=False)
    ],
    root: Annotated[
        str | None,
        typer.Argument(
            metavar="[DIR]", help="Folder for the bank; not there yet.", show_default=False
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="DIR", show_default=False, help="The same as DIR."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Look at the pack only, write nothing.")
    ] = False,
    allowed_signers: Annotated[
        str | None,
        typer.Option(
            "--allowed-signers",
            metavar="FILE",
            show_default=False,
            help="Refuse a pack that none of these has signed; ssh-keygen(1) has the form.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Take a bank out of a pack, after every byte of it was checked."""
    from aoebank.api.shipping import unpack
    from aoebank.report.shipping.pack import UnpackReport

    if root is not None and output is not None:
        raise UsageError("given twice: DIR and --output", where="unpack", got=f"{root}, {output}")
    result = unpack(
        pack, root if output is None else output, check=check, allowed_signers=allowed_signers
    )
    return finish(context, UnpackReport(result=result), as_json=as_json)
