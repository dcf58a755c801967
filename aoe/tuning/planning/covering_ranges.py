"""Ranges of shapes the bank has kernels for that hold one shape."""

from __future__ import annotations

from collections.abc import Iterator

from aoe.entry.shape_range import holds, parse_shape_range
from aoe.errors import OptionError
from aoe.om.cases import Shapes, input_shapes
from aoe.tuning.tune_context import TuneContext


def covering_ranges(tuning: TuneContext) -> tuple[str, ...]:
    """Return the ranges the bank has kernels for that hold the shapes of a run.

    They were tuned for a model of that name, whose extents were open.
    """
    given = input_shapes(tuning.subject.model.proto)
    found = sorted(set(_ranges(tuning)))
    return tuple(text for text in found if _holds(text, given))


def _holds(text: str, given: Shapes) -> bool:
    try:
        shapes = parse_shape_range(text)
    except OptionError:  # of another version
        return False
    return holds(shapes, {name: given[name] for name in shapes if name in given})


def _ranges(tuning: TuneContext) -> Iterator[str]:
    journal = tuning.banks.journal
    for file in journal.bank.iter_files():
        for line in journal.bank.iter_provenance(file):
            if line.model.get("name") == journal.model["name"] and "shape_range" in line.model:
                yield str(line.model["shape_range"])
