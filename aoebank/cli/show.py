"""`aoebank show`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aoebank.cli.options import AsJson, default_root, finish


def command(
    context: typer.Context,
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY|FILE[:KEY]... [PATH]",
            help="Records by key (4 digits will do) or file, and trees to look for keys in.",
        ),
    ],
    as_json: AsJson = False,
) -> int:
    """Print records with their workload, strategy, time and provenance."""
    from aoebank.ops.show import show
    from aoebank.report.show import ShowReport

    trees = [Path(target) for target in targets if Path(target).is_dir()]
    selectors = [target for target in targets if not Path(target).is_dir()]
    if not selectors:
        raise typer.BadParameter("give at least one KEY, FILE or FILE:KEY")
    needs_tree = not trees and any(
        ":" not in each and not Path(each).is_file() for each in selectors
    )
    result = show(selectors, trees or ([default_root()] if needs_tree else []))
    return finish(context, ShowReport(result=result), as_json=as_json)
