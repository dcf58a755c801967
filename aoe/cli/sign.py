"""`aoe sign`: sign a tuned model, so that others can tell who made it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aoe.cli.options import JsonFlag, finish


def command(
    om: Annotated[Path, typer.Argument(help="Tuned model, an .om file.")],
    key: Annotated[
        Path,
        typer.Option(
            "--key", metavar="KEY", show_default=False, help="SSH key, or the public half of one."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", metavar="FILE", help="The signed model; default is the same file."
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Sign a tuned model with an SSH key; --require_signature checks it before anything is run."""
    from aoe.om.file import sign_offline_model
    from aoe.report.answers import SignReport

    target = om if output is None else output
    head = sign_offline_model(om, key, target)
    finish(SignReport(om=target, parts=len(head.manifest.parts)), as_json=as_json)
