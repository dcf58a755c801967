"""A timeline as SVG: backward above, communication below, the tail marked."""

from __future__ import annotations

import math
from collections.abc import Iterator

from aoe.gradients.timeline import SegmentTime, Timeline
from aoe.report.quantities import SHORTEST_US, time_text
from aoebank import pages, size_text

_WIDTH, _HEIGHT = 1060, 158
_LEFT, _RIGHT = 112, 12
_TOP, _BACKWARD_Y, _SEND_Y, _BAR, _AXIS_Y = 20, 32, 76, 32, 126
_CHARACTER = 7.0
"""Width of a digit of the page's font, generously."""


def draw_timeline(timeline: Timeline, scale_us: float) -> str:
    """Return an `<svg>` element.

    Args:
        timeline: What to draw.
        scale_us: Time at the right end, the same for all drawings of a page.
    """
    axis = _Axis(scale_us)
    label = f"backward ends at {time_text(timeline.backward_end_us)}, "
    label += f"communication at {time_text(timeline.end_us)}"
    named = f'role="img" aria-label="{pages.escape(label)}"'
    parts = [
        f'<svg class="timeline" viewBox="0 0 {_WIDTH} {_HEIGHT}" {named}>',
        *_grid(axis),
        *_backward(timeline, axis),
        *_tail(timeline, axis),
        *(
            _send(number, segment, axis)
            for number, segment in enumerate(timeline.segments, start=1)
        ),
        "</svg>",
    ]
    return "\n".join(parts)


class _Axis:
    """Turns times into places; the scale ends at a round number or at the last time."""

    def __init__(self, scale_us: float) -> None:
        self.scale_us = scale_us if scale_us > SHORTEST_US else 1.0

    def x(self, time_us: float) -> float:
        share = min(time_us / self.scale_us, 1.0)
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 2)

    def ticks(self) -> Iterator[float]:
        """Yield round times, five to ten of them."""
        rough = self.scale_us / 8
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
        yield from (number * step for number in range(int(self.scale_us / step) + 1))


def _grid(axis: _Axis) -> Iterator[str]:
    in_ms = axis.scale_us >= 10_000
    for tick in axis.ticks():
        x = axis.x(tick)
        shown = f"{tick / 1000 if in_ms else tick:g}"
        yield f'<line class="grid" x1="{x}" y1="{_TOP}" x2="{x}" y2="{_AXIS_Y}"/>'
        yield f'<text x="{x}" y="{_AXIS_Y + 18}" text-anchor="middle">{shown}</text>'
    yield f'<text x="0" y="{_AXIS_Y + 18}">time, {"ms" if in_ms else "us"}</text>'
    yield f'<text x="0" y="{_BACKWARD_Y + 21}">backward</text>'
    yield f'<text x="0" y="{_SEND_Y + 21}">communication</text>'


def _backward(timeline: Timeline, axis: _Axis) -> Iterator[str]:
    start, end = axis.x(0), axis.x(timeline.backward_end_us)
    width = round(end - start, 2)
    yield _bar("backward", start, _BACKWARD_Y, width)
    text = time_text(timeline.backward_end_us)
    if width > _CHARACTER * len(text) + 12:
        yield f'<text class="on-backward" x="{start + 8}" y="{_BACKWARD_Y + 21}">{text}</text>'


def _tail(timeline: Timeline, axis: _Axis) -> Iterator[str]:
    if timeline.tail_us <= 0:
        return
    start, end = axis.x(timeline.backward_end_us), axis.x(timeline.end_us)
    width = round(end - start, 2)
    yield f'<rect class="tail" x="{start}" y="{_TOP}" width="{width}" height="{_AXIS_Y - _TOP}"/>'
    yield f'<path class="tail-line" d="M{start} {_TOP}V{_AXIS_Y}M{end} {_TOP}V{_AXIS_Y}"/>'
    text = f"tail {time_text(timeline.tail_us)}"
    yield f'<text class="tail-text" x="{end}" y="{_TOP - 7}" text-anchor="end">{text}</text>'


def _send(number: int, segment: SegmentTime, axis: _Axis) -> str:
    start, end = axis.x(segment.start_us), axis.x(segment.end_us)
    width = max(round(end - start, 2), 1.0)
    size = size_text(segment.bytes)
    title = (
        f"all-reduce {number}: {segment.gradients} gradients, {size}; ready "
        f"{time_text(segment.ready_us)}, {time_text(segment.start_us)} to "
        f"{time_text(segment.end_us)}"
    )
    bar = _bar("ab"[number % 2], start, _SEND_Y, width, title)
    if width < _CHARACTER * len(size) + 8:
        return bar
    x = round(start + width / 2, 2)
    text = f'<text class="on-send" x="{x}" y="{_SEND_Y + 21}" text-anchor="middle">{size}</text>'
    return bar + text


def _bar(kind: str, x: float, y: float, width: float, title: str = "") -> str:
    inside = f"<title>{pages.escape(title)}</title>" if title else ""
    return (
        f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{_BAR}" rx="3">'
        f"{inside}</rect>"
    )
