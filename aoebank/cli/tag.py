"""`aoebank tag`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aoebank.cli.options import AsJson, finish
from aoebank.cli.version_options import say_bank


def command(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", show_default=False, help="The tag; without it: list."),
    ] = None,
    snapshot: Annotated[
        str, typer.Argument(metavar="[SNAPSHOT]", help="Id, start of one, tag or latest~N.")
    ] = "latest",
    root: Annotated[
        Path | None,
        typer.Option(
            "--root",
            metavar="ROOT",
            show_default=False,
            help="Root of the bank; by default the one you are in, else the environment's.",
        ),
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Remove the tag.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Move the tag if another snapshot has it.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Name a snapshot, or list the names."""
    from aoebank.api.versions import tag
    from aoebank.report.history.tag import TagReport

    result = tag(name, snapshot, root=root, delete=delete, force=force)
    say_bank(root, result.root, as_json=as_json)
    return finish(context, TagReport(result=result), as_json=as_json)
