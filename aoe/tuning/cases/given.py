"""The settings of a run that say which shapes a model is tuned for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from aoe.entry.shape_cases import parse_shape_cases
from aoe.entry.tuned_model import SUFFIX
from aoe.om.file import read_manifest
from aoe.tuning.mode import TuneSettings
from aoe.workload import shapes_text


class GivenCases(TypedDict):
    """Members of `TuneSettings`: the text of one shape, or those of several."""

    input_shape: str | None
    shape_cases: tuple[str, ...]


def given_cases(
    texts: Sequence[str],
    *,
    batch_size: str | None = None,
    image_size: str | None = None,
    dims: str | None = None,
) -> GivenCases:
    """Return the settings for what was given, see `parse_shape_cases`.

    Raises:
        OptionError: it cannot be meant.
    """
    cases = parse_shape_cases(texts, batch_size=batch_size, image_size=image_size, dims=dims)
    if len(cases) > 1:
        return {"input_shape": None, "shape_cases": cases}
    return {"input_shape": cases[0] if cases else None, "shape_cases": ()}


def with_stored_cases(settings: TuneSettings) -> TuneSettings:
    """Return settings that tune a tuned model (`--om`) for the shapes it holds, unless told others.

    Raises:
        OfflineModelError: it is no tuned model.
    """
    model = settings.model
    is_told = settings.input_shape is not None or bool(settings.shape_cases)
    if not isinstance(model, Path) or model.suffix != SUFFIX or is_told:
        return settings
    cases = read_manifest(model).cases
    return replace(settings, shape_cases=tuple(shapes_text(case.shapes) for case in cases))
