"""`aoebank tag`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aoebank.cli.options import AsJson, finish
from aoebank.cli.version_options import bank_root, current_author
from aoebank.errors import UsageError


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
            help="Root of the bank; by default the one the environment names.",
        ),
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Remove the tag.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Move the tag if another snapshot has it.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Name a snapshot, or list the names."""
    from aoebank.ops.history.tag import add_tag, delete_tag, show_tags
    from aoebank.report.history.tag import TagReport

    place = bank_root(root)
    if name is None:
        if delete or force:
            raise UsageError("needs a NAME", where="--delete" if delete else "--force")
        result = show_tags(place)
    elif delete:
        result = delete_tag(place, name, current_author(place))
    else:
        result = add_tag(place, name, snapshot, current_author(place), force=force)
    return finish(context, TagReport(result=result), as_json=as_json)
