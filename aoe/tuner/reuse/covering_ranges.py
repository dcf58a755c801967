"""Ranges of shapes the bank has kernels for that hold one shape."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from aoe.bank.journal import BankJournal
from aoe.entry.shape_range import holds, parse_shape_range
from aoe.errors import OptionError
from aoe.om.cases import Shapes, input_shapes


def covering_ranges(journal: BankJournal, proto: onnx.ModelProto) -> tuple[str, ...]:
    """Return the ranges the bank has kernels for that hold the shapes of a model.

    They were tuned for a model of that name, whose extents were open.

    Args:
        journal: Of the run.
        proto: The model, with fixed shapes.
    """
    given = input_shapes(proto)
    return tuple(text for text in sorted(set(_ranges(journal))) if _holds(text, given))


def told_ranges(ranges: tuple[str, ...]) -> Iterator[str]:
    """Yield a line on each range of the bank that holds a shape: how its kernels are used."""
    for one in ranges:
        yield f"the bank has kernels for a range with this shape in it: --input_shape={one!r}"


def _holds(text: str, given: Shapes) -> bool:
    try:
        shapes = parse_shape_range(text)
    except OptionError:  # of another version
        return False
    return holds(shapes, {name: given[name] for name in shapes if name in given})


def _ranges(journal: BankJournal) -> Iterator[str]:
    for file in journal.bank.iter_files():
        for line in journal.bank.iter_provenance(file):
            if line.model.get("name") == journal.model["name"] and "shape_range" in line.model:
                yield str(line.model["shape_range"])
