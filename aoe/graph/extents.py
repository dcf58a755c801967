"""Extents of tensors, some of which are open: names, what follows from one, sums of these.

A name stands for an extent that is open; equal names are equal extents in every run. A sum is
written one way, `past + length + 1`, so that equal sums are equal names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from aoe.operators.extents import Extent, extent_at

OpenShape = tuple[Extent, ...]
"""Extents of a tensor, some of which may be open."""
_PLUS = " + "
_ONE = ""
"""What a number counts, beside names."""


def is_closed(shape: OpenShape) -> bool:
    """True if no extent of a shape is open."""
    return not any(isinstance(extent, str) for extent in shape)


def shape_at(shape: OpenShape, extents: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape where open extents are these; all of its names are among them.

    >>> shape_at(("past + length + 1", "length", 8), {"past": 3, "length": 2})
    (6, 2, 8)
    """
    found = find_shape_at(shape, extents)
    assert found is not None
    return found


def find_shape_at(shape: OpenShape, extents: Mapping[str, int]) -> tuple[int, ...] | None:
    """Return the shape where open extents are these, None where it does not follow from them."""
    found = [_find(one, extents) for one in shape]
    known = tuple(one for one in found if one is not None)
    return known if len(known) == len(shape) else None


def _find(extent: Extent, extents: Mapping[str, int]) -> int | None:
    known = extent_at(extent, extents)
    if known is not None:
        return known
    total = 0
    for name, count in _terms(extent).items():
        term = 1 if name == _ONE else extent_at(name, extents)
        if term is None:
            return None
        total += count * term
    return total


def sum_of(*extents: Extent) -> Extent | None:
    """Return the sum of extents, None for one below zero.

    >>> sum_of("past", 1, "length"), sum_of(2, 3), sum_of("past", -1)
    ('length + past + 1', 5, None)
    """
    total: Counter[str] = Counter()
    for one in extents:
        total.update(_terms(one))
    return _written(total)


def difference_of(one: Extent, other: Extent) -> Extent | None:
    """Return the difference of two extents, None where it is not known to be one.

    >>> difference_of("past + 1", "past"), difference_of("past", 1)
    (1, None)
    """
    total = Counter(_terms(one))
    total.subtract(_terms(other))
    return _written(total)


def _terms(extent: Extent) -> Counter[str]:
    """Return the count of each name in an extent; a number counts ones."""
    if isinstance(extent, int):
        return Counter({_ONE: extent})
    found: Counter[str] = Counter()
    for part in extent.split(_PLUS):
        found.update({_ONE: int(part)} if part.isdigit() else {part: 1})
    return found


def _written(terms: Counter[str]) -> Extent | None:
    if any(count < 0 for count in terms.values()):
        return None
    number = terms.pop(_ONE, 0)
    names = sorted(terms.elements())
    return _PLUS.join([*names, *([str(number)] if number else [])]) if names else number
