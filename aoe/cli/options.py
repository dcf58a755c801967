"""Options shared by commands: same noun, same flag everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aoe.errors import OptionError
from aoe.settings import environment
from aoebank import Report, emit

if TYPE_CHECKING:
    from aoe.ort.inputs import InputSet

JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output.")
]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")]
Threads = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="Threads; default is what the model was tuned for."),
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of random inputs and of the search.")]
InputFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--input", help="NAME:x.npy, x.npy or random (default); once for each input of the model."
    ),
]
InputSets = Annotated[
    Path | None,
    typer.Option(
        "--inputs", help="Directory of several input sets: SET/NAME.npy or SET.npz.", metavar="DIR"
    ),
]


def given_inputs(files: list[str] | None, directory: Path | None) -> tuple[InputSet, ...]:
    """Return the input sets of `--input` and `--inputs`; none for made-up inputs.

    Raises:
        OptionError: both are given, or one cannot be meant.
    """
    if not files and directory is None:
        return ()
    from aoe.ort.inputs import parse_inputs, read_input_sets

    if directory is None:
        return parse_inputs(files or ())
    if files:
        raise OptionError("--inputs", "given together with --input", got=files[0])
    return read_input_sets(directory)


def finish(report: Report, *, as_json: bool) -> int:
    """Write a report the way this call asked for; return the exit code."""
    no_color = bool(environment().get("NO_COLOR"))
    return emit(report, as_json=as_json, no_color=no_color, indent=None)
