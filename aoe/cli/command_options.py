"""The options of the command `aoe` and of its commands: their own, and those of `aoe.tune`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from aoe.runs.configuration.option import Group, Option
from aoe.runs.configuration.options import TUNE_OPTIONS
from aoebank import DOCUMENTS

_of_shapes = partial(Option, after="input_shape", group=Group.MODEL)
_of_inputs = partial(Option, after="shapes_from", group=Group.MODEL)
_of_gradients = partial(Option, after="tune_optimization_level", group=Group.WHAT)
_result = partial(Option, after="anonymous", group=Group.RESULTS)


_PRINTABLE = [name for name in DOCUMENTS if name != "document_file"]
"""Documents that tuning makes as well: its `--output` names the result, and it has no `-o`."""


def _document(name: str, **of_table: Any) -> Option:
    """Return the row of a document, which both programs ask for by the same words."""
    known = DOCUMENTS[name]
    members = {one.name: getattr(known, one.name) for one in fields(known)}
    return Option(name=name, **members, **of_table)


_OF_COMMAND = (
    Option(
        name="model",
        flags=("--model", "-m"),
        kind=Path,
        group=Group.MODEL,
        metavar="FILE",
        help="Model file.",
    ),
    Option(
        name="model_path",
        kind=Path,
        group=Group.MODEL,
        metavar="DIR",
        help="Directory of models, or a dump of aoe.torch.set_aoe: all are tuned.",
    ),
    Option(
        name="om",
        kind=Path,
        group=Group.MODEL,
        metavar="X.om",
        help="Tuned model: the model in it is tuned again.",
    ),
    _of_shapes(
        name="dynamic_batch_size",
        metavar="N,N,...",
        help="Batch sizes, for first extents that are -1 in --input_shape: 1,2,4.",
    ),
    _of_shapes(
        name="dynamic_image_size",
        metavar="H,W;...",
        help='Values of two extents that are -1: "416,416;832,832".',
    ),
    _of_shapes(
        name="dynamic_dims",
        metavar="N,...;...",
        help='Values of all extents that are -1, in their order: "1,224;8,448".',
    ),
    _of_inputs(
        name="input_files",
        flags=("--input",),
        kind=list[str],
        metavar="NAME:FILE.npy",
        help="Values of an input: NAME:x.npy, x.npy or random (default); given once for each "
        "input of the model.",
    ),
    _of_inputs(
        name="input_sets",
        flags=("--inputs",),
        kind=Path,
        metavar="DIR",
        help="Directory of several input sets: SET/NAME.npy or SET.npz.",
    ),
    _of_gradients(
        name="script",
        kind=Path,
        metavar="TRAIN.py",
        help="Training script: --job_type=2 tunes the operators of both its passes, 4 its "
        "gradients, 2,4 both; all that follows is passed to it.",
    ),
    Option(name="script_argument", flags=("--script_argument",), kind=list[str], hidden=True),
    _of_gradients(
        name="loss_name",
        metavar="NAME",
        help="Output of the model that is its loss, for gradient tuning of a model file.",
    ),
    _of_gradients(
        name="world",
        kind=int,
        metavar="N",
        least=2,
        help="Processes of a training that are started on this machine.",
        unset="2",
    ),
    _result(
        name="progress_bar",
        metavar="on|off",
        default="on",
        help="Whether the run shows how far it is.",
    ),
    _result(
        name="log",
        metavar="LEVEL",
        help="debug or info: tell every rewrite rule that is tried, and why others are not.",
    ),
    _result(
        name="quiet",
        flags=("--quiet", "-q"),
        kind=bool,
        default=False,
        help="No progress, only the result.",
    ),
    *(_document(name, after="anonymous", group=Group.RESULTS) for name in _PRINTABLE),
    _result(name="debug", kind=bool, default=False, help="Show tracebacks."),
    Option(
        name="version",
        kind=bool,
        after="anonymous",
        group=Group.ABOUT,
        default=False,
        help="Print versions and exit.",
    ),
)


_OF_OTHERS = (
    Option(
        name="one_shape",
        flags=("--input_shape",),
        metavar="SHAPES",
        help="Shapes of inputs the model leaves open, or those of one case an .om holds.",
    ),
    Option(
        name="require_signature",
        flags=("--require_signature",),
        kind=Path,
        metavar="SIGNERS",
        help="Refuse an .om that none of these has signed; ssh-keygen(1) has the form of the file.",
    ),
    _document("document_file"),
)
"""Options that several commands take, and tuning does not."""


def _command_rows() -> Iterator[Option]:
    """Yield the rows of the command in the order of its help."""
    own = [row.named(row.name) for row in _OF_COMMAND]
    for row in (*(one for one in own if not one.after), *TUNE_OPTIONS.values()):
        if row.flags:
            yield row
        yield from (one for one in own if one.after == row.name)


COMMAND_OPTIONS: Mapping[str, Option] = {row.name: row for row in _command_rows()}
"""Rows of the command `aoe`, by name of the parameter."""
OPTIONS: Mapping[str, Option] = {
    **COMMAND_OPTIONS,
    **{row.name: row.named(row.name) for row in _OF_OTHERS},
}
"""Rows that a command may have, by name of its parameter."""
