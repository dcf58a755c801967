"""`--shapes_from`: shapes a model was asked for, and how often, from a log of whoever serves it.

A line is `count,name:1,3,224,224;other:1,16`, or a JSON object with `count` and `shapes`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aoe.entry.input_shapes import MOST, parse_input_shape
from aoe.errors import OptionError
from aoe.workload import shapes_text
from aoebank import plural

MOST_SHAPES = 16
"""Shapes that are tuned at most: a tuned model for each is made, and all are in one file."""
COVERED = 0.99
"""Share of the calls, by what they cost, at which rarer shapes are left out."""
_FAR = 8
"""Times as many elements as in the usual shape, or as few, from which on one is extreme."""
_OPTION = "--shapes_from"
_EXAMPLE = (
    'for example 900,input:1,3,224,224 or {"count": 900, "shapes": {"input": [1, 3, 224, 224]}}'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedShape:
    """Shapes of all inputs of a call, and the number of such calls."""

    text: str  # As `--input_shape` says them
    count: int  # Calls
    elements: int  # Of all inputs together

    @property
    def weight(self) -> float:
        """Cost of all such calls, as far as time grows with the elements.

        A call without an element counts as one of a single element: it takes time, too.
        """
        return float(self.count * max(1, self.elements))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeLog:
    """Shapes and counts of a log."""

    path: Path  # The file
    shapes: tuple[CountedShape, ...]  # Each shape once, the most frequent first

    @property
    def calls(self) -> int:
        """All of them."""
        return sum(shape.count for shape in self.shapes)

    def chosen(self) -> tuple[CountedShape, ...]:
        """Return the shapes to tune: the most frequent, until 99 % of the cost is covered."""
        total, taken = sum(shape.weight for shape in self.shapes), 0.0
        found: list[CountedShape] = []
        for shape in self.shapes[:MOST_SHAPES]:
            if found and taken >= COVERED * total:
                break
            found.append(shape)
            taken += shape.weight
        return tuple(found)

    def count_of(self, text: str) -> int | None:
        """Return the number of calls with the given shapes, None if there were none."""
        return next((shape.count for shape in self.shapes if shape.text == text), None)

    def weight_of(self, text: str) -> float:
        """Return the cost of the calls with the given shapes, 0 without any."""
        return next((shape.weight for shape in self.shapes if shape.text == text), 0.0)

    def caveats(self) -> tuple[str, ...]:
        """Return warnings on the choice: a tail that is left out, extreme shapes."""
        chosen = self.chosen()
        found = []
        if len(chosen) < len(self.shapes):
            covered = sum(shape.count for shape in chosen)
            found.append(
                f"{_OPTION}: of {plural(len(self.shapes), 'shape')} the {len(chosen)} most "
                f"frequent are tuned, {covered / self.calls:.1%} of the calls; the others run "
                "untuned"
            )
        usual = self._usual()
        for shape in chosen:
            times = max(1, shape.elements) / max(1, usual.elements)
            if times >= _FAR or times <= 1 / _FAR:
                size = f"{times:.0f} times" if times >= 1 else f"1/{1 / times:.0f}"
                found.append(
                    f"{_OPTION}: {shape.text} is extreme: {size} the size of the usual "
                    f"{usual.text}, {shape.count} of {plural(self.calls, 'call')}"
                )
            elif what := _unusual_extent(shape, usual):
                found.append(
                    f"{_OPTION}: {shape.text} represents few calls: {what} of the usual "
                    f"{usual.text}, {shape.count} of {plural(self.calls, 'call')}"
                )
        return tuple(found)

    def _usual(self) -> CountedShape:
        """Return the shape of the call in the middle, by size."""
        by_size = sorted(self.shapes, key=lambda shape: (shape.elements, shape.text))
        seen = 0
        for shape in by_size:
            seen += shape.count
            if 2 * seen >= self.calls:
                return shape
        return by_size[-1]


def _unusual_extent(shape: CountedShape, usual: CountedShape) -> str:
    """Return the extent that is 1, or the batch that is far from the usual one; empty for none.

    Source: AOE's tutorial: shapes to tune are the common ones, without extents of 1, at the batch
    of the service.
    """
    others = parse_input_shape(usual.text)
    for name, extents in parse_input_shape(shape.text).items():
        known = others.get(name, ())
        for axis, (extent, other) in enumerate(zip(extents, known, strict=False)):
            if extent == 1 != other:
                return f"extent 1 of {name} at axis {axis} in place of {other}"
            is_same = extent == other  # also 0, of which nothing is a multiple
            if axis == 0 and not is_same and max(extent, other) >= _FAR * min(extent, other):
                return f"batch {extent} of {name} in place of {other}"
    return ""


def read_shape_log(path: Path) -> ShapeLog:
    """Return the shapes of a log; equal ones are counted together.

    Empty lines, lines that begin with `#` and a first line `count,shapes` say nothing.

    Raises:
        OptionError: it cannot be read, a line cannot be meant, or there is no shape in it.
    """
    where = f"{_OPTION}={path}"
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(where, f"cannot be read: {error}") from error
    counts: Counter[str] = Counter()
    sizes: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        said = line.strip()
        if not said or said.startswith("#") or (number == 1 and said.startswith("count,")):
            continue
        count, shapes = _parsed(said, f"{where}, line {number}")
        text = shapes_text(dict(sorted(shapes.items())))
        counts[text] += count
        sizes[text] = _elements(shapes)
    if not counts:
        raise OptionError(where, "no shape in it", hint=_EXAMPLE)
    found = [
        CountedShape(text=text, count=count, elements=sizes[text]) for text, count in counts.items()
    ]
    found.sort(key=lambda shape: (-shape.count, shape.text))
    return ShapeLog(path=path, shapes=tuple(found))


def _parsed(line: str, where: str) -> tuple[int, dict[str, tuple[int, ...]]]:
    try:
        count, text = _json_line(line) if line.startswith("{") else _text_line(line)
        shapes = parse_input_shape(text)
    except OptionError as error:
        raise OptionError(
            where, "not a name with extents", got=repr(line), hint=_EXAMPLE
        ) from error
    except (
        ValueError,
        TypeError,
        KeyError,
        ArithmeticError,
        AttributeError,
        RecursionError,
    ) as error:
        raise OptionError(where, "no count with shapes", got=repr(line), hint=_EXAMPLE) from error
    if not 1 <= count <= MOST or not shapes or _elements(shapes) > MOST:
        raise OptionError(where, "no count with shapes", got=repr(line), hint=_EXAMPLE)
    return count, shapes


def _elements(shapes: Mapping[str, tuple[int, ...]]) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


def _text_line(line: str) -> tuple[int, str]:
    count, _, text = line.partition(",")
    return int(count), text.strip().strip('"')


def _json_line(line: str) -> tuple[int, str]:
    found: Any = json.loads(line)
    shapes = {str(name): tuple(map(_whole, shape)) for name, shape in found["shapes"].items()}
    return _whole(found["count"]), shapes_text(shapes)


def _whole(value: Any) -> int:
    """Return a number of JSON as an integer.

    Raises:
        ArithmeticError: it is infinite.
        TypeError: it is no number.
        ValueError: it is no whole one.
    """
    found = int(value)
    if not isinstance(value, str) and found != value:
        raise ValueError(f"no whole number (got {value})")
    return found
