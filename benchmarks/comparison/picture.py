"""One picture: speed-ups over ONNX Runtime with their intervals, float32 apart from the rest."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from comparison.figures import NetworkFigures, PeerFigure, geometric_mean, peer_names, shared_rows

_LEFT, _PANEL, _GAP, _ROW, _TOP, _BOTTOM = 170, 360, 44, 20, 92, 30
_LETTER = 6.4
"""Width of a letter of the legend, which is 11 high, on average."""
_LEAST, _MOST = 0.25, 8.0
_TICKS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
_COLOURS = {
    "engine": "#d1495b",
    "openvino-f32": "#30638e",
    "openvino": "#30638e",
    "torch-compile": "#edae49",
}
_FURTHER = ("#7b2d8b", "#2e8b57", "#b5651d")
_ARROW = "l7 -4v8z"
_NOT_DRAWN = {"ort-again"}


def draw(rows: Sequence[NetworkFigures]) -> str:
    """Return an SVG of the rows with the most threads."""
    most = max((row.threads for row in rows), default=1)
    shown = [row for row in rows if row.threads == most and row.peers]
    panels = [
        (label, {k: v for k, v in names.items() if k not in _NOT_DRAWN})
        for label, names in (
            ("float32", peer_names(shown, is_float32=True)),
            ("other precisions", peer_names(shown, is_float32=False)),
        )
        if names
    ]
    width = _LEFT + max(1, len(panels)) * (_PANEL + _GAP)
    height = _TOP + (len(shown) + 1) * _ROW + _BOTTOM
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="DejaVu Sans, Arial, sans-serif">'
    )
    title = f"Speed-up over ONNX Runtime (float32), {most} thread{'s' * (most > 1)}"
    parts = [
        head,
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(8, 20, title, size=14),
    ]
    labels = [*(row.title for row in shown), "geometric mean"]
    for index, label in enumerate(labels):
        y = _row_y(index)
        if index % 2:
            stripe = f'y="{y - _ROW / 2}" width="{width}" height="{_ROW}" fill="#f4f4f4"'
            parts.append(f"<rect {stripe}/>")
        weight = ' font-weight="bold"' if index == len(shown) else ""
        parts.append(_text(_LEFT - 8, y + 4, label, anchor="end", more=weight))
    for number, (label, names) in enumerate(panels):
        left = _LEFT + number * (_PANEL + _GAP)
        parts += _panel(shown, names, label, left)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(
    rows: Sequence[NetworkFigures], names: dict[str, str], label: str, left: float
) -> Iterator[str]:
    bottom = _row_y(len(rows)) + _ROW / 2
    yield _text(left, 44, label, more=' font-weight="bold"')
    for tick in _TICKS:
        x = left + _x(tick)
        colour = "#444" if tick == 1 else "#ddd"
        yield f'<path d="M{x:.1f} {_TOP - 6}V{bottom:.1f}" stroke="{colour}"/>'
        yield _text(x, bottom + 16, f"{tick:g}x", anchor="middle")
    colours = _colours(names)
    x, y = left, 60
    for name, title in names.items():
        width = 12 + len(title) * _LETTER + 14
        if x > left and x + width > left + _PANEL:
            x, y = left, y + 16
        yield f'<circle cx="{x + 4:.1f}" cy="{y}" r="4" fill="{colours[name]}"/>'
        yield _text(x + 12, y + 4, title, size=11)
        x += width
    for index, row in enumerate(rows):
        for name in reversed(names):  # the first lies on top
            figure = row.peers.get(name)
            if figure is not None and figure.ratio is not None:
                yield from _dot(figure, colours[name], left, _row_y(index))
    shared = shared_rows(rows, names)
    for name in reversed(names):
        mean = geometric_mean(shared, name)
        if mean:
            x, y = left + _x(mean[0]), _row_y(len(rows))
            shape = _ARROW if mean[0] < _LEAST else "l6 -6l6 6l-6 6z"
            start = f"M{x:.1f} {y}" if mean[0] < _LEAST else f"M{x - 6:.1f} {y}"
            yield f'<path d="{start}{shape}" fill="{colours[name]}"/>'


def _dot(figure: PeerFigure, colour: str, left: float, y: float) -> Iterator[str]:
    assert figure.ratio is not None
    ratio = figure.ratio
    low, high, x = (left + _x(value) for value in (ratio.low, ratio.high, ratio.median))
    if ratio.median < _LEAST:  # beyond the scale: an arrow at its edge
        yield f'<path d="M{x:.1f} {y}{_ARROW}" fill="{colour}"/>'
        return
    yield f'<path d="M{low:.1f} {y}H{high:.1f}" stroke="{colour}" stroke-width="2"/>'
    yield f'<circle cx="{x:.1f}" cy="{y}" r="4" fill="{colour}"/>'


def _colours(names: Mapping[str, str]) -> dict[str, str]:
    further = [name for name in names if name not in _COLOURS]
    own = {name: _FURTHER[i % len(_FURTHER)] for i, name in enumerate(further)}
    return {**_COLOURS, **own}


def _x(ratio: float) -> float:
    """Return the distance from the left of the panel: logarithmic, held inside the scale."""
    held = min(max(ratio, _LEAST), _MOST)
    return _PANEL * math.log(held / _LEAST) / math.log(_MOST / _LEAST)


def _row_y(index: int) -> float:
    return _TOP + _ROW / 2 + index * _ROW


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, more: str = ""
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{more}>'
        f"{escape(text)}</text>"
    )
