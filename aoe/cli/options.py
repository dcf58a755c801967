"""Options shared by commands: same noun, same flag everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

from aoe.settings import environment
from aoebank import Report, emit

JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output.")
]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")]
Threads = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="Threads; default is what the model was tuned for."),
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of random inputs and of the search.")]


def finish(report: Report, *, as_json: bool) -> int:
    """Write a report the way this call asked for; return the exit code."""
    no_color = bool(environment().get("NO_COLOR"))
    return emit(report, as_json=as_json, no_color=no_color, indent=None)
