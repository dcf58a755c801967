"""`aoebank explain`"""

from __future__ import annotations

from typing import Annotated

import typer

from aoebank.cli.options import AsJson, finish


def command(
    context: typer.Context,
    codes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CODE]...", help="Finding codes, or how they start.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Tell what finding codes mean, why they matter and what to do; without CODE, list them."""
    from aoebank.api.checking import explain
    from aoebank.report.validate.explain import ExplainReport

    report = ExplainReport(explanations=explain(codes or ()), is_list=not codes)
    return finish(context, report, as_json=as_json)
