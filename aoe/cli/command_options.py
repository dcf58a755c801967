"""The options of the command `aoe`: its own, and those it shares with `aoe.tune`."""

# rows are read at run time, so this file does without `from __future__ import annotations`
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, TypedDict

from aoe.runs.configuration.option import Group, Option
from aoe.runs.configuration.options import TUNE_OPTIONS, rows_of

_of_shapes = partial(Option, after="input_shape", group=Group.MODEL)
_of_inputs = partial(Option, after="shapes_from", group=Group.MODEL)
_of_gradients = partial(Option, after="tune_optimization_level", group=Group.WHAT)
_result = partial(Option, after="anonymous", group=Group.RESULTS)


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
        _of_shapes(
            flags=("--dynamic_batch_size",),
            metavar="N,N,...",
            help="Batch sizes, for first extents that are -1 in --input_shape: 1,2,4.",
        ),
    ]
    dynamic_image_size: Annotated[
        str | None,
        _of_shapes(
            flags=("--dynamic_image_size",),
            metavar="H,W;...",
            help='Values of two extents that are -1: "416,416;832,832".',
        ),
    ]
    dynamic_dims: Annotated[
        str | None,
        _of_shapes(
            flags=("--dynamic_dims",),
            metavar="N,...;...",
            help='Values of all extents that are -1, in their order: "1,224;8,448".',
        ),
    ]
    input_files: Annotated[
        list[str] | None,
        _of_inputs(
            flags=("--input",),
            cli=list[str],
            metavar="NAME:FILE.npy",
            help="Values of an input: NAME:x.npy, x.npy or random (default); given once for each "
            "input of the model.",
        ),
    ]
    input_sets: Annotated[
        Path | None,
        _of_inputs(
            flags=("--inputs",),
            cli=Path,
            metavar="DIR",
            help="Directory of several input sets: SET/NAME.npy or SET.npz.",
        ),
    ]
    script: Annotated[
        Path | None,
        _of_gradients(
            flags=("--script",),
            cli=Path,
            metavar="TRAIN.py",
            help="Training script for gradient tuning; all that follows is passed to it.",
        ),
    ]
    script_argument: Annotated[
        list[str] | None, Option(flags=("--script_argument",), cli=list[str], hidden=True)
    ]
    loss_name: Annotated[
        str | None,
        _of_gradients(
            flags=("--loss_name",),
            metavar="NAME",
            help="Output of the model that is its loss, for gradient tuning of a model file.",
        ),
    ]
    world: Annotated[
        int | None,
        _of_gradients(
            flags=("--world",),
            cli=int,
            metavar="N",
            least=2,
            help="Processes of a training that are started on this machine.",
            unset="2",
        ),
    ]
    progress_bar: Annotated[
        str,
        _result(
            flags=("--progress_bar",),
            metavar="on|off",
            default="on",
            help="Whether the run shows how far it is.",
        ),
    ]
    log: Annotated[
        str | None,
        _result(
            flags=("--log",),
            metavar="LEVEL",
            help="debug or info: tell every rewrite rule that is tried, and why others are not.",
        ),
    ]
    quiet: Annotated[
        bool,
        _result(
            flags=("--quiet", "-q"), cli=bool, default=False, help="No progress, only the result."
        ),
    ]
    as_json: Annotated[
        bool,
        _result(
            flags=("--json",),
            cli=bool,
            default=False,
            help="Print one JSON document on standard output.",
        ),
    ]
    debug: Annotated[
        bool, _result(flags=("--debug",), cli=bool, default=False, help="Show tracebacks.")
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
