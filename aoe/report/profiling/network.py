"""The graph of a model from top to bottom, each operator coloured by the time it loses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from aoe.profiling.figures import OperatorProfile
from aoe.report.profiling.text import title_of
from aoe.report.quantities import time_text
from aoebank import Markup, element

_BOX_WIDTH, _BOX_HEIGHT = 172.0, 34.0
_GAP_X, _GAP_Y = 18.0, 18.0
_MARGIN, _BULGE = 14.0, 44.0
_SHADES = 5
_LETTERS = 25
_MOST_LANES = 12


def draw_network(operators: Sequence[OperatorProfile], links: Mapping[str, str]) -> Markup:
    """Return the drawing: operators in rows by how far they are from the inputs.

    Args:
        operators: In the order in which they run.
        links: Where a box leads, by name of the operator.
    """
    places = _places(operators)
    most = max((operator.lost_us or 0.0 for operator in operators), default=0.0)
    lanes = 1 + max((lane for lane, _ in places.values()), default=0)
    rows = 1 + max((row for _, row in places.values()), default=0)
    width = 2 * _MARGIN + lanes * _BOX_WIDTH + (lanes - 1) * _GAP_X + _BULGE
    height = 2 * _MARGIN + rows * _BOX_HEIGHT + (rows - 1) * _GAP_Y
    edges = (
        _edge(places[read], places[operator.name])
        for operator in operators
        for read in operator.reads
        if read in places
    )
    boxes = (
        _box(operator, places[operator.name], heat(operator, most), links.get(operator.name, ""))
        for operator in operators
    )
    return element(
        "svg",
        *edges,
        *boxes,
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        width=width,
        height=height,
        class_="network",
        role="group",
        aria_label=f"graph of {len(operators)} operators, coloured by lost time",
    )


def heat(operator: OperatorProfile, most_us: float) -> str:
    """Return the class of a colour: `h0` loses nothing, `h5` as much as the worst."""
    lost = operator.lost_us or 0.0
    return f"h{math.ceil(_SHADES * math.sqrt(lost / most_us) - 0.4) if most_us > 0 else 0}"


def _places(operators: Sequence[OperatorProfile]) -> dict[str, tuple[int, int]]:
    """Return lane and row of each operator; rows are longest ways from the inputs."""
    places: dict[str, tuple[int, int]] = {}
    used: dict[int, set[int]] = {}
    for operator in operators:
        read = [places[name] for name in operator.reads if name in places]
        row = 1 + max((below for _, below in read), default=-1)
        wanted = min((lane for lane, _ in read), default=0)
        while len(used.setdefault(row, set())) >= _MOST_LANES:
            row += 1  # hundreds of operators beside each other nobody can read
        taken = used[row]
        lane = next(lane for lane in _around(wanted) if lane not in taken)
        taken.add(lane)
        places[operator.name] = (lane, row)
    return places


def _around(wanted: int) -> Sequence[int]:
    """Return lanes to try: the one that is wanted, those to its right, those to its left."""
    return [*range(wanted, wanted + _MOST_LANES), *range(wanted)]


def _corner(place: tuple[int, int]) -> tuple[float, float]:
    lane, row = place
    return _MARGIN + lane * (_BOX_WIDTH + _GAP_X), _MARGIN + row * (_BOX_HEIGHT + _GAP_Y)


def _edge(source: tuple[int, int], target: tuple[int, int]) -> Markup:
    """Return a line from box to box; one that passes rows goes round them."""
    x1, y1 = _corner(source)
    x2, y2 = _corner(target)
    x1, y1, x2 = x1 + _BOX_WIDTH / 2, y1 + _BOX_HEIGHT, x2 + _BOX_WIDTH / 2
    if target[1] - source[1] > 1 and source[0] == target[0]:
        side = x1 + _BOX_WIDTH / 2
        x1, x2, out = side, side, side + _BULGE
        y1, y2 = y1 - _BOX_HEIGHT / 2, y2 + _BOX_HEIGHT / 2
        way = f"M{x1:.0f} {y1:.0f}C{out:.0f} {y1:.0f} {out:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"
    else:
        middle = (y1 + y2) / 2
        way = f"M{x1:.0f} {y1:.0f}C{x1:.0f} {middle:.0f} {x2:.0f} {middle:.0f} {x2:.0f} {y2:.0f}"
    return element("path", class_="edge", d=way)


def _box(operator: OperatorProfile, place: tuple[int, int], shade: str, link: str) -> Markup:
    x, y = _corner(place)
    lost = operator.lost_us
    figures = time_text(operator.median_us)
    if lost is not None:
        figures += f", {time_text(lost)} lost"
    words = f"{title_of(operator)}, {operator.kind}: {figures}"
    on_hot = "on-hot" if shade in ("h4", "h5") else False
    kind = operator.op_types[0] if operator.op_types else operator.op_type.rpartition(":")[2]
    if len(operator.op_types) > 1:
        kind += f" +{len(operator.op_types) - 1}"
    drawn = (
        element("title", words),
        element(
            "rect",
            class_=shade,
            x=x,
            y=y,
            width=_BOX_WIDTH,
            height=_BOX_HEIGHT,
            rx="6",
        ),
        _line(_short(title_of(operator)), x, y + 14, on_hot),
        _line(_short(f"{kind}  {time_text(operator.median_us)}"), x, y + 28, on_hot),
    )
    return element("a", *drawn, href=link, aria_label=words) if link else element("g", *drawn)


def _line(words: str, x: float, y: float, class_: str | bool) -> Markup:
    return element("text", words, class_=class_, x=x + 9, y=y)


def _short(words: str) -> str:
    return words if len(words) <= _LETTERS else f"{words[: _LETTERS - 1]}\u2026"
