"""Options shared by commands: same noun, same flag everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output.")
]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")]
Threads = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="Threads; default is what the model was tuned for."),
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of random inputs and of the search.")]
