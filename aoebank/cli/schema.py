"""`aoebank schema`: what releases of the toolkit read from runtime banks"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aoebank.cli.loading import HelpfulGroup
from aoebank.cli.options import AsJson, finish

group = typer.Typer(
    cls=HelpfulGroup,
    help="What releases of the toolkit read from runtime banks.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@group.command("list")
def list_(context: typer.Context, as_json: AsJson = False) -> int:
    """List the releases that `validate --reader` knows by name."""
    from aoebank.api import checking
    from aoebank.report.schema import ReleasesReport

    return finish(context, ReleasesReport(releases=checking.schema_list()), as_json=as_json)


@group.command("import")
def import_(
    context: typer.Context,
    revision: Annotated[
        str, typer.Argument(metavar="git:REV", help="Revision of the operators' source.")
    ],
    name: Annotated[
        str, typer.Option("--name", show_default=False, help="Of the release; default git:REV.")
    ] = "",
    as_json: AsJson = False,
) -> int:
    """Read the tiling headers of a revision; the document is what `validate --reader` takes."""
    from aoebank.api import checking
    from aoebank.report.schema import ReleaseReport

    reader = checking.schema_import(revision, name=name, beside=Path.cwd())
    return finish(context, ReleaseReport(release=reader), as_json=as_json)
