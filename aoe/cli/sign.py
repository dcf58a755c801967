"""`aoe sign`: sign a tuned model, so that others can tell who made it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from aoe.runs.configuration.option import Option

if TYPE_CHECKING:
    from aoebank import Report


def sign(
    om: Annotated[Path, Option(is_argument=True, help="Tuned model, an .om file.")],
    key: Annotated[Path, Option(metavar="KEY", help="SSH key, or the public half of one.")],
    output: Annotated[
        Path | None,
        Option(metavar="FILE", help="The signed model; default is the same file."),
    ] = None,
) -> Report:
    """Sign a tuned model with an SSH key."""
    from aoe.om.file import sign_offline_model
    from aoe.report.answers import SignReport

    target = om if output is None else output
    head = sign_offline_model(om, key, target)
    return SignReport(om=target, parts=len(head.manifest.parts))
