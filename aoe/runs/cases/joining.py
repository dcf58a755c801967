"""One tuned model of the runs for several shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from aoe.folders.scratch import ScratchFolder
from aoe.om.cases import OpenModel, join_cases
from aoe.runs.model_mode import ModelTuning
from aoe.tuner.mode import ModeResult

Modes = tuple[ModeResult, ...]


def join_results(cases: Sequence[Modes], model: OpenModel, file: Path | None = None) -> list[Modes]:
    """Put the tuned models of all shapes into one; they go then.

    Args:
        cases: What the modes gave for each shape.
        model: The model with open shapes.
        file: The one tuned model; None for one beside the folders of the shapes.

    Returns:
        The same, with the one tuned model in place of each.

    Raises:
        OutputError: it cannot be written.
    """
    files = [_last_file(modes) for modes in cases]
    joined = file or files[0].parent.parent / files[0].name
    with ScratchFolder("cases") as scratch:
        join_cases(joined, files, model, scratch)
    for file in files:
        file.unlink()
    return [tuple(_moved(mode, joined) for mode in modes) for modes in cases]


def _last_file(modes: Modes) -> Path:
    files = [mode.om_file for mode in modes if mode.om_file is not None]
    assert files, "modes on a model file write one"
    return files[-1]


def _moved(mode: ModeResult, file: Path) -> ModeResult:
    assert isinstance(mode, ModelTuning)
    return replace(mode, places=replace(mode.places, om_file=file))
