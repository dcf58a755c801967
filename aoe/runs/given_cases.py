"""The settings of a run that say which shapes a model is tuned for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TypedDict

from aoe.entry.shape_cases import parse_shape_cases
from aoe.entry.shape_log import ShapeLog, read_shape_log
from aoe.entry.shape_range import OPTION, Extents, is_range, parse_shape_range, range_form
from aoe.entry.tuned_model import SUFFIX
from aoe.errors import OptionError
from aoe.om.file import read_manifest
from aoe.tuner.mode import TuneSettings
from aoe.workload import shapes_text


class GivenCases(TypedDict):
    """Members of `TuneSettings`: the text of one shape, those of several, or that of a range."""

    input_shape: str | None
    shape_cases: tuple[str, ...]
    shape_log: ShapeLog | None
    shape_range: str | None


def given_cases(
    texts: Sequence[str] = (),
    *,
    batch_size: str | None = None,
    image_size: str | None = None,
    dims: str | None = None,
    log: str | PathLike[str] | None = None,
) -> GivenCases:
    """Return the settings for what was given, see `parse_shape_cases`.

    Args:
        texts: Shapes.
        batch_size: Values of `--dynamic_batch_size`.
        image_size: Those of `--dynamic_image_size`.
        dims: Those of `--dynamic_dims`.
        log: File of `--shapes_from`, which says the shapes instead, or how often those of a range
            are served.

    Raises:
        OptionError: it cannot be meant.
    """
    ranges = [text for text in texts if _is_open(text)]
    is_filled = (batch_size, image_size, dims) != (None, None, None)
    if ranges:
        if len(texts) > 1 or is_filled:
            raise OptionError(
                OPTION, "a range is given alone, without other shapes", got=" and ".join(texts)
            )
        return {
            "input_shape": None,
            "shape_cases": (),
            "shape_log": read_shape_log(Path(log)) if log is not None else None,
            "shape_range": ranges[0],
        }
    texts = [*map(_closed, texts)]
    if log is not None:
        if texts or is_filled:
            raise OptionError("--shapes_from", "given together with --input_shape", got=log)
        found = read_shape_log(Path(log))
        chosen = tuple(shape.text for shape in found.chosen())
        is_one = len(chosen) == 1
        return {
            "input_shape": chosen[0] if is_one else None,
            "shape_cases": () if is_one else chosen,
            "shape_log": found,
            "shape_range": None,
        }
    cases = parse_shape_cases(texts, batch_size=batch_size, image_size=image_size, dims=dims)
    if len(cases) > 1:
        only = None
    else:
        only, cases = (cases[0] if cases else None), ()
    return {"input_shape": only, "shape_cases": cases, "shape_log": None, "shape_range": None}


def _is_open(text: str) -> bool:
    """True if shapes leave an extent open; a range whose ends are the same does not.

    Raises:
        OptionError: a range cannot be meant.
    """
    shapes = parse_shape_range(text).values() if is_range(text) else ()
    return any(isinstance(one, Extents) for shape in shapes for one in shape)


def _closed(text: str) -> str:
    """Return shapes without an open extent as `--input_shape` takes one shape."""
    if not is_range(text):
        return text
    shapes = parse_shape_range(text)
    return shapes_text({name: [*map(range_form, shape)] for name, shape in shapes.items()})


def with_stored_cases(settings: TuneSettings) -> TuneSettings:
    """Return settings that tune a tuned model (`--om`) for its shapes, unless told others.

    Raises:
        OfflineModelError: it is no tuned model.
    """
    model = settings.model
    if not isinstance(model, Path) or model.suffix != SUFFIX or settings.framework is not None:
        return settings
    if settings.input_shape is not None or settings.shape_cases or settings.shape_range:
        return settings
    manifest = read_manifest(model)
    return replace(
        settings,
        shape_cases=tuple(shapes_text(case.shapes) for case in manifest.cases),
        shape_range=manifest.shape_range or None,
    )
