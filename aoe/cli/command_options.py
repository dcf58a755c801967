"""The options of the command `aoe`: its own, and those it shares with `aoe.tune`."""

# rows are read at run time, so this file does without `from __future__ import annotations`
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, TypedDict

from aoe.tuning.configuration.option import Group, Option
from aoe.tuning.configuration.options import TUNE_OPTIONS, rows_of


class CommandOptions(TypedDict, total=False):
    """Options of the command `aoe` alone."""

    model: Annotated[
        Path | None,
        Option(
            flags=("--model", "-m"), cli=Path, group=Group.MODEL, metavar="FILE", help="Model file."
        ),
    ]
    model_path: Annotated[
        Path | None,
        Option(
            flags=("--model_path",),
            cli=Path,
            group=Group.MODEL,
            metavar="DIR",
            help="Directory of models, or a dump of aoe.torch.set_aoe: all are tuned.",
        ),
    ]
    om: Annotated[
        Path | None,
        Option(
            flags=("--om",),
            cli=Path,
            group=Group.MODEL,
            metavar="X.om",
            help="Tuned model: the model in it is tuned again.",
        ),
    ]
    dynamic_batch_size: Annotated[
        str | None,
        Option(
            flags=("--dynamic_batch_size",),
            after="input_shape",
            group=Group.MODEL,
            metavar="N,N,...",
            help="Values of first extents that are -1 in --input_shape: 1,2,4.",
        ),
    ]
    dynamic_image_size: Annotated[
        str | None,
        Option(
            flags=("--dynamic_image_size",),
            after="input_shape",
            group=Group.MODEL,
            metavar="H,W;...",
            help='Values of two extents that are -1: "416,416;832,832".',
        ),
    ]
    dynamic_dims: Annotated[
        str | None,
        Option(
            flags=("--dynamic_dims",),
            after="input_shape",
            group=Group.MODEL,
            metavar="N,...;...",
            help='Values of all extents that are -1, in their order: "1,224;8,448".',
        ),
    ]
    input_files: Annotated[
        list[str] | None,
        Option(
            flags=("--input",),
            cli=list[str],
            after="shapes_from",
            group=Group.MODEL,
            metavar="NAME:FILE.npy",
            help="NAME:x.npy, x.npy or random (default); once for each input of the model.",
        ),
    ]
    input_sets: Annotated[
        Path | None,
        Option(
            flags=("--inputs",),
            cli=Path,
            after="shapes_from",
            group=Group.MODEL,
            metavar="DIR",
            help="Directory of several input sets: SET/NAME.npy or SET.npz.",
        ),
    ]
    script: Annotated[
        Path | None,
        Option(
            flags=("--script",),
            cli=Path,
            after="tune_optimization_level",
            group=Group.WHAT,
            metavar="TRAIN.py",
            help="Training script for gradient tuning; all that follows is passed to it.",
        ),
    ]
    script_argument: Annotated[
        list[str] | None, Option(flags=("--script_argument",), cli=list[str], hidden=True)
    ]
    loss_name: Annotated[
        str | None,
        Option(
            flags=("--loss_name",),
            after="tune_optimization_level",
            group=Group.WHAT,
            metavar="NAME",
            help="Output of the model that is its loss, for gradient tuning of a model file.",
        ),
    ]
    world: Annotated[
        int | None,
        Option(
            flags=("--world",),
            cli=int,
            after="tune_optimization_level",
            group=Group.WHAT,
            metavar="N",
            least=2,
            help="Processes a model file is trained in, started on this machine; default is 2.",
        ),
    ]
    progress_bar: Annotated[
        str,
        Option(
            flags=("--progress_bar",),
            after="anonymous",
            group=Group.RESULTS,
            metavar="on|off",
            default="on",
            help="Show how far the run is.",
        ),
    ]
    log: Annotated[
        str | None,
        Option(
            flags=("--log",),
            after="anonymous",
            group=Group.RESULTS,
            metavar="LEVEL",
            help="debug and info tell every rule that is tried, and why not.",
        ),
    ]
    quiet: Annotated[
        bool,
        Option(
            flags=("--quiet", "-q"),
            cli=bool,
            after="anonymous",
            group=Group.RESULTS,
            default=False,
            help="No progress, only the result.",
        ),
    ]
    as_json: Annotated[
        bool,
        Option(
            flags=("--json",),
            cli=bool,
            after="anonymous",
            group=Group.RESULTS,
            default=False,
            help="Print one JSON document on standard output.",
        ),
    ]
    debug: Annotated[
        bool,
        Option(
            flags=("--debug",),
            cli=bool,
            after="anonymous",
            group=Group.RESULTS,
            default=False,
            help="Show tracebacks.",
        ),
    ]
    version: Annotated[
        bool,
        Option(
            flags=("--version",),
            cli=bool,
            after="anonymous",
            group=Group.ABOUT,
            default=False,
            help="Print versions and exit.",
        ),
    ]


def _command_rows() -> Iterator[Option]:
    """Yield the rows of the command in the order of its help."""
    own = rows_of(CommandOptions).values()
    for row in (*(one for one in own if not one.after), *TUNE_OPTIONS.values()):
        if row.flags:
            yield row
        yield from (one for one in own if one.after == row.name)


COMMAND_OPTIONS: Mapping[str, Option] = {row.name: row for row in _command_rows()}
"""Rows of the command `aoe`, by name of the parameter."""
