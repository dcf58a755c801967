"""Extents of tensors, some of which are open: names, what follows from one, sums of these.

A name stands for an extent that is open; equal names are equal extents in every run. A sum is
written one way, `past + length + 1`, so that equal sums are equal names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from aoe.operators.extents import Extent, extent_at, stepped, steps_of

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


class NamedExtents:
    """Tells calls whose extents have the relations that the names of inputs promise.

    ONNX Runtime compares no names: where a call disagrees, it broadcasts.

    Args:
        shapes: Of the inputs, by name; only extents that are texts are looked at.

    >>> named = NamedExtents({"x": ("length", 8), "mask": ("2*length", "rows")})
    >>> named.agree({"x": (3, 8), "mask": (6, 1)}), named.agree({"x": (3, 8), "mask": (1, 1)})
    (True, False)
    """

    def __init__(self, shapes: Mapping[str, Sequence[object]]) -> None:
        places = [
            (extent, name, axis)
            for name, shape in shapes.items()
            for axis, extent in enumerate(shape)
            if isinstance(extent, str)
        ]
        names = [extent for extent, _, _ in places]
        is_bound = len({*names}) < len(names) or any(map(_is_computed, names))
        self._places = places if is_bound else []

    def __bool__(self) -> bool:
        """True if there are relations: else every call agrees."""
        return bool(self._places)

    def agree(self, given: Mapping[str, Sequence[int]]) -> bool:
        """True if the extents of a call have all relations.

        Args:
            given: Shapes by input name. Missing inputs and other ranks are not looked at: ONNX
                Runtime refuses these.
        """
        extents, bases = dict[str, int](), dict[str, int]()
        for name, of, axis in self._places:
            shape = given.get(of, ())
            if axis < len(shape) and extents.setdefault(name, shape[axis]) != shape[axis]:
                return False
        for name, extent in extents.items():
            steps = steps_of(name)
            if steps.over > 1 or _PLUS in name:
                continue
            base, rest = divmod(extent - steps.plus, steps.times)
            if rest or bases.setdefault(str(steps.base), base) != base:
                return False
        return all(_find(name, bases) in (None, extent) for name, extent in extents.items())


def _is_computed(name: str) -> bool:
    return _PLUS in name or steps_of(name).base != name


def base_ranges(ranges: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Return the ranges of the names that extents follow from: what all of these extents allow.

    A sum allows anything where its terms are known. A range whose least is above its largest holds
    nothing.

    Args:
        ranges: Least and largest of each named extent, 1 or more.

    >>> base_ranges({"rows": (1, 8), "2*rows": (1, 9), "rows + past": (2, 16), "past": (1, 8)})
    {'rows': (1, 4), 'past': (1, 8)}
    """
    found: dict[str, tuple[int, int]] = {}
    others = []
    for name, (low, high) in ranges.items():
        steps = steps_of(name)
        if steps.over > 1 or steps.times < 1 or _PLUS in name:
            others.append(name)
            continue
        least, most = -((steps.plus - low) // steps.times), (high - steps.plus) // steps.times
        known = found.setdefault(str(steps.base), (max(0, least), most))
        found[str(steps.base)] = max(known[0], least), min(known[1], most)
    lows = {name: low for name, (low, _) in found.items()}
    return found | {name: ranges[name] for name in others if _find(name, lows) is None}


def sum_of(*extents: Extent) -> Extent | None:
    """Return the sum of extents, None where it has no text.

    >>> sum_of("past", 1, "length"), sum_of(2, 3), sum_of("2*length", -1)
    ('length + past + 1', 5, '(2*length-1)')
    """
    total: Counter[str] = Counter()
    for one in extents:
        total.update(_terms(one))
    return _written(total)


def difference_of(one: Extent, other: Extent) -> Extent | None:
    """Return the difference of two extents, which may be below zero; None where it has no text.

    >>> difference_of("past + 1", "past"), difference_of(200, "length")
    (1, '(-1*length+200)')
    """
    total = Counter(_terms(one))
    total.subtract(_terms(other))
    return _written(total)


def least_of(extent: Extent) -> int | None:
    """Return the least an extent may be where named ones are 1 or more, None if there is none.

    >>> least_of("(2*length-1)"), least_of("(frames+1)//2"), least_of("(-1*length+200)")
    (1, 1, None)
    """
    total = 0
    for name, count in _terms(extent).items():
        least = _least_of_name(name)
        if least is None or (count < 0 and name != _ONE):
            return None
        total += count * least
    return total


def value_at_ones(extent: Extent) -> int | None:
    """Return an extent where every named one is 1, None where that is not certain.

    >>> value_at_ones("(-1*length+200)"), value_at_ones("(-1*length)"), value_at_ones(-5)
    (199, -1, -5)
    """
    found = [(count, _least_of_name(name)) for name, count in _terms(extent).items()]
    known = [count * least for count, least in found if least is not None]
    return sum(known) if len(known) == len(found) else None


def _least_of_name(name: str) -> int | None:
    """Return the least of a term that is counted: a number's 1, a name, a quotient."""
    steps = steps_of(name)
    if steps.base == name and "(" in name:
        return None  # steps of a sum of steps are no name
    if steps.over == 1:
        return 1
    base = least_of(steps.base)
    if base is None or steps.times < 0:
        return None
    return (base * steps.times + steps.plus) // steps.over


def _terms(extent: Extent) -> Counter[str]:
    """Return the count of each name in an extent; a number counts ones."""
    if isinstance(extent, int):
        return Counter({_ONE: extent})
    found: Counter[str] = Counter()
    for part in _parts(extent):
        steps = steps_of(part)
        if part.isdigit():
            found.update({_ONE: int(part)})
        elif steps.over > 1 or steps.base == part:
            found.update({part: 1})
        else:
            inner = {name: steps.times * count for name, count in _terms(steps.base).items()}
            found.update(inner)
            found.update({_ONE: steps.plus})
    return Counter({name: count for name, count in found.items() if count})


def _parts(text: str) -> list[str]:
    """Return the terms of a sum written as text, outside of parentheses."""
    found = [""]
    for piece in text.split(_PLUS):
        is_inside = found[-1].count("(") > found[-1].count(")")
        found[-1:] = [f"{found[-1]}{_PLUS}{piece}"] if is_inside else [found[-1], piece]
    return found[1:]


def _written(terms: Counter[str]) -> Extent | None:
    """Return counts of names as a text: one name in steps, several as a sum."""
    number = terms.pop(_ONE, 0)
    names = {name: count for name, count in terms.items() if count}
    if not names:
        return number
    if len(names) == 1:
        ((name, count),) = names.items()
        if count != 1 or number <= 0 or steps_of(name).over > 1:
            return stepped(name, times=count, plus=number)
    if number < 0 or min(names.values()) < 0:
        return None
    parts = sorted(Counter(names).elements())
    return _PLUS.join([*parts, *([str(number)] if number else [])])
