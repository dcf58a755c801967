"""The charts of pages, as SVG: bars, rooflines, graphs of operators and of nodes, timelines.

Drawings load nothing and take their colours from the stylesheet, light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aoe.report.quantities import SHORTEST_US, time_text, title_of
from aoe.workload import KERNEL_DOMAIN
from aoebank import Markup, element, join, pages, size_text

if TYPE_CHECKING:
    import onnx

    from aoe.gradients.timeline import SegmentTime, Timeline
    from aoe.profiling.comparing import ComparedKind
    from aoe.profiling.figures import KindSummary, OperatorProfile
    from aoe.profiling.peak import MachinePeak

_MOST_BARS = 16
_WIDTH, _HEIGHT = 900.0, 420.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 16.0, 14.0, 44.0
_SMALLEST, _LARGEST = 3.5, 16.0
"""Radius of a point, of no time and of all of it."""
_NEAREST = 1e-3


# ---- bars ----


def kind_bars(kinds: Sequence[KindSummary]) -> Markup:
    """Return a bar for each kind: the least time, and what is lost behind it."""
    most = max((kind.median_us for kind in kinds), default=0.0) or 1.0
    rows = []
    for kind in kinds[:_MOST_BARS]:
        lost = 100 * kind.lost_us / most
        least = max(100 * kind.median_us / most - lost, 0.0)
        words = f"{time_text(kind.median_us)}, {time_text(kind.lost_us)} lost"
        blocks = (("least", 0.0, 0.0, least, 16.0), ("lost", least, 0.0, max(lost, 0.0), 16.0))
        rows.append((f"{kind.kind} ({kind.operators})", words, blocks))
    names = (("least", "at the machine's best, or not known"), ("lost", "lost: more than that"))
    return join([pages.bars(rows), pages.legend(names)])


def compared_bars(kinds: Sequence[ComparedKind]) -> Markup:
    """Return two bars for each kind, before above after."""
    most = max((max(kind.before_us, kind.after_us) for kind in kinds), default=0.0) or 1.0
    rows = []
    for kind in kinds[:_MOST_BARS]:
        words = f"{time_text(kind.before_us)} to {time_text(kind.after_us)}"
        if kind.speedup is not None:
            words += f", {kind.speedup:.2f}x"
        blocks = (
            ("before", 0.0, 0.0, 100 * kind.before_us / most, 7.0),
            ("after", 0.0, 8.0, 100 * kind.after_us / most, 7.0),
        )
        rows.append((f"{kind.kind} ({kind.places})", words, blocks))
    names = (("before", "before"), ("after", "after"))
    return join([pages.bars(rows), pages.legend(names)])


# ---- the roofline ----


@dataclass(frozen=True, slots=True)
class _Axes:
    """Logarithmic axes: operations per byte, and billions of operations per second."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def x(self, intensity: float) -> float:
        share = math.log(intensity / self.x_low) / math.log(self.x_high / self.x_low)
        return _LEFT + min(max(share, 0.0), 1.0) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, rate: float) -> float:
        share = math.log(rate / self.y_low) / math.log(self.y_high / self.y_low)
        return _HEIGHT - _BOTTOM - min(max(share, 0.0), 1.0) * (_HEIGHT - _TOP - _BOTTOM)


def roofline(
    operators: Sequence[OperatorProfile],
    peak: MachinePeak,
    links: Mapping[str, str],
    before: Sequence[OperatorProfile] = (),
) -> Markup:
    """Return the plot: a point for each operator that computes and moves something.

    Args:
        operators: Drawn full, as large as the time they take.
        peak: Its roofs.
        links: Where a point leads, by name of the operator.
        before: Drawn hollow.
    """
    shown = [operator for operator in operators if _is_point(operator)]
    earlier = [operator for operator in before if _is_point(operator)]
    axes = _axes([*shown, *earlier], peak)
    most = max((operator.median_us for operator in (*shown, *earlier)), default=1.0)
    big_first = sorted(shown, key=lambda operator: -operator.median_us)
    parts = [
        *_grid(axes),
        *_roofs(axes, peak),
        *(_point(axes, operator, most, {}, "before") for operator in earlier),
        *(_point(axes, operator, most, links) for operator in big_first),
    ]
    words = f"roofline: {len(shown)} operators under {peak.flops_per_us / 1e3:.0f} GF/s"
    return pages.drawing(_WIDTH, _HEIGHT, *parts, class_="roofline", label=words, role="group")


def _is_point(operator: OperatorProfile) -> bool:
    return bool(operator.flops and operator.bytes and operator.median_us > 0)


def _intensity(operator: OperatorProfile) -> float:
    return (operator.flops or 0) / (operator.bytes or 1)


def _axes(operators: Sequence[OperatorProfile], peak: MachinePeak) -> _Axes:
    top = peak.flops_per_us / 1e3
    intensities = [_intensity(operator) for operator in operators] or [1.0]
    rates = [operator.gflops_per_s or top for operator in operators] or [top]
    ridge = peak.flops_per_us / peak.levels[-1].bytes_per_us
    return _Axes(
        x_low=_power(min(*intensities, 1.0), -1),
        x_high=_power(max(*intensities, ridge), 1),
        y_low=max(_power(min(*rates, top), -1), top * _NEAREST),
        y_high=_power(max(*rates, top) * 1.2, 1),
    )


def _power(value: float, side: int) -> float:
    """Return the power of ten below or above."""
    exponent = math.log10(value)
    return float(10.0 ** (math.floor(exponent) if side < 0 else math.ceil(exponent)))


def _grid(axes: _Axes) -> Iterator[Markup]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for value in _decades(axes.x_low, axes.x_high):
        x = axes.x(value)
        yield _line("grid", x, _TOP, x, bottom)
        yield _text(f"{value:g}", x, bottom + 18, "middle")
    for value in _decades(axes.y_low, axes.y_high):
        y = axes.y(value)
        yield _line("grid", _LEFT, y, right, y)
        yield _text(f"{value:g}", _LEFT - 8, y + 4, "end")
    yield _text("operations per byte", (_LEFT + right) / 2, _HEIGHT - 6, "middle")
    yield _text("GF/s", 4, _HEIGHT - _BOTTOM + 18, "start")


def _decades(low: float, high: float) -> Iterator[float]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    yield from (10.0**exponent for exponent in range(first, last + 1))


def _roofs(axes: _Axes, peak: MachinePeak) -> Iterator[Markup]:
    top = peak.flops_per_us / 1e3
    y = axes.y(top)
    fastest = max(level.bytes_per_us for level in peak.levels) / 1e3
    yield _line("roof", axes.x(max(top / fastest, axes.x_low)), y, _WIDTH - _RIGHT, y)
    yield _text(f"{top:.0f} GF/s", _WIDTH - _RIGHT, y - 6, "end")
    for number, level in enumerate(peak.levels, start=1):
        rate = level.bytes_per_us / 1e3
        start = max(axes.x_low, axes.y_low / rate)
        end = min(top / rate, axes.x_high)
        if start < end:
            class_ = "roof" if rate == fastest else "roof side"
            yield _line(
                class_, axes.x(start), axes.y(start * rate), axes.x(end), axes.y(end * rate)
            )
            # each label at another height, or those of like levels lie on each other
            place = start * (end / start) ** (1 - number / (len(peak.levels) + 1))
            x, y = axes.x(place), axes.y(place * rate)
            yield _text(f"{level.name} {rate:.0f} GB/s", x + 8, y + 12, "start")


def _point(
    axes: _Axes,
    operator: OperatorProfile,
    most_us: float,
    links: Mapping[str, str],
    class_: str = "",
) -> Markup:
    """Return a circle, its area the time; one that leads to a row of the table."""
    rate = operator.gflops_per_s or 0.0
    radius = _SMALLEST + (_LARGEST - _SMALLEST) * math.sqrt(operator.median_us / most_us)
    share = operator.peak_share
    colour = class_ or ("least" if share is None or share >= 0.5 else "lost")
    words = (
        f"{title_of(operator)}, {operator.kind}: {time_text(operator.median_us)}, "
        f"{rate:.1f} GF/s, {_intensity(operator):.2g} operations per byte"
    )
    if share is not None:
        words += f", {share:.0%} of the machine's best"
    circle = element(
        "circle",
        element("title", words),
        class_=f"point {colour}",
        cx=axes.x(_intensity(operator)),
        cy=axes.y(max(rate, axes.y_low)),
        r=radius,
    )
    link = links.get(operator.name)
    return circle if link is None else element("a", circle, href=link, aria_label=words)


def _line(class_: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    return element("line", class_=class_, x1=x1, y1=y1, x2=x2, y2=y2)


def _text(words: str, x: float, y: float, anchor: str) -> Markup:
    return element("text", words, x=x, y=y, text_anchor=anchor)


# ---- graphs of operators, coloured by the time they lose ----

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
        _boxed(operator, places[operator.name], heat(operator, most), links.get(operator.name, ""))
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


def _boxed(operator: OperatorProfile, place: tuple[int, int], shade: str, link: str) -> Markup:
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
        _box_line(_short(title_of(operator)), x, y + 14, on_hot),
        _box_line(_short(f"{kind}  {time_text(operator.median_us)}"), x, y + 28, on_hot),
    )
    return element("a", *drawn, href=link, aria_label=words) if link else element("g", *drawn)


def _box_line(words: str, x: float, y: float, class_: str | bool) -> Markup:
    return element("text", words, class_=class_, x=x + 9, y=y)


def _short(words: str) -> str:
    return words if len(words) <= _LETTERS else f"{words[: _LETTERS - 1]}\u2026"


# ---- timelines: backward above, communication below, the tail marked ----

_TIME_WIDTH, _TIME_HEIGHT = 1060, 158
_LANE_LEFT, _LANE_RIGHT = 112, 12
_TOP_Y, _BACKWARD_Y, _SEND_Y, _BAR, _AXIS_Y = 20, 32, 76, 32, 126
_CHARACTER = 7.0
"""Width of a digit of the page's font, generously."""


def draw_timeline(timeline: Timeline, scale_us: float) -> str:
    """Return an `<svg>` element.

    Args:
        timeline: What to draw.
        scale_us: Time at the right end, the same for all drawings of a page.
    """
    axis = _TimeAxis(scale_us)
    label = f"backward ends at {time_text(timeline.backward_end_us)}, "
    label += f"communication at {time_text(timeline.end_us)}"
    named = f'role="img" aria-label="{pages.escape(label)}"'
    parts = [
        f'<svg class="timeline" viewBox="0 0 {_TIME_WIDTH} {_TIME_HEIGHT}" {named}>',
        *_time_grid(axis),
        *_backward(timeline, axis),
        *_tail(timeline, axis),
        *(
            _send(number, segment, axis)
            for number, segment in enumerate(timeline.segments, start=1)
        ),
        "</svg>",
    ]
    return "\n".join(parts)


class _TimeAxis:
    """Turns times into places; the scale ends at a round number or at the last time."""

    def __init__(self, scale_us: float) -> None:
        self.scale_us = scale_us if scale_us > SHORTEST_US else 1.0

    def x(self, time_us: float) -> float:
        share = min(time_us / self.scale_us, 1.0)
        return round(_LANE_LEFT + share * (_TIME_WIDTH - _LANE_LEFT - _LANE_RIGHT), 2)

    def ticks(self) -> Iterator[float]:
        """Yield round times, five to ten of them."""
        rough = self.scale_us / 8
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
        yield from (number * step for number in range(int(self.scale_us / step) + 1))


def _time_grid(axis: _TimeAxis) -> Iterator[str]:
    in_ms = axis.scale_us >= 10_000
    for tick in axis.ticks():
        x = axis.x(tick)
        shown = f"{tick / 1000 if in_ms else tick:g}"
        yield f'<line class="grid" x1="{x}" y1="{_TOP_Y}" x2="{x}" y2="{_AXIS_Y}"/>'
        yield f'<text x="{x}" y="{_AXIS_Y + 18}" text-anchor="middle">{shown}</text>'
    yield f'<text x="0" y="{_AXIS_Y + 18}">time, {"ms" if in_ms else "us"}</text>'
    yield f'<text x="0" y="{_BACKWARD_Y + 21}">backward</text>'
    yield f'<text x="0" y="{_SEND_Y + 21}">communication</text>'


def _backward(timeline: Timeline, axis: _TimeAxis) -> Iterator[str]:
    start, end = axis.x(0), axis.x(timeline.backward_end_us)
    width = round(end - start, 2)
    yield _bar("backward", start, _BACKWARD_Y, width)
    text = time_text(timeline.backward_end_us)
    if width > _CHARACTER * len(text) + 12:
        yield f'<text class="on-backward" x="{start + 8}" y="{_BACKWARD_Y + 21}">{text}</text>'


def _tail(timeline: Timeline, axis: _TimeAxis) -> Iterator[str]:
    if timeline.tail_us <= 0:
        return
    start, end = axis.x(timeline.backward_end_us), axis.x(timeline.end_us)
    width = round(end - start, 2)
    height = _AXIS_Y - _TOP_Y
    yield f'<rect class="tail" x="{start}" y="{_TOP_Y}" width="{width}" height="{height}"/>'
    yield f'<path class="tail-line" d="M{start} {_TOP_Y}V{_AXIS_Y}M{end} {_TOP_Y}V{_AXIS_Y}"/>'
    text = f"tail {time_text(timeline.tail_us)}"
    yield f'<text class="tail-text" x="{end}" y="{_TOP_Y - 7}" text-anchor="end">{text}</text>'


def _send(number: int, segment: SegmentTime, axis: _TimeAxis) -> str:
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


# ---- nodes of models: boxes in their order, lines from who makes a tensor to who reads it ----

_NODES_W = 500
_BOX, _STEP, _NODES_X, _NODES_TOP = 30, 44, 78, 14
_EDGE_GAP, _MOST_EDGES = 11, 6
_CHARACTERS = 44
_SHORTEST = 8


def draw_nodes(nodes: Sequence[onnx.NodeProto], gone: bool, label: str) -> str:
    """Return an `<svg>` element.

    Args:
        nodes: In topological order.
        gone: True if they are not in the tuned model.
        label: What is drawn, for who cannot see it.
    """
    height = _NODES_TOP * 2 + max(0, len(nodes) - 1) * _STEP + _BOX
    size = f'viewBox="0 0 {_NODES_W} {height}" width="{_NODES_W}" height="{height}"'
    parts = [
        f'<svg class="nodes" {size} role="img" aria-label="{pages.escape(label)}">',
        *_node_edges(nodes),
        *(_node_box(node, number, gone=gone) for number, node in enumerate(nodes)),
        "</svg>",
    ]
    return "\n".join(parts)


def _node_edges(nodes: Sequence[onnx.NodeProto]) -> Iterator[str]:
    makers = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    lane = 0
    for at, node in enumerate(nodes):
        sources = {makers[name] for name in node.input if name in makers}
        if at - 1 in sources:
            x = _NODES_X + 24
            yield f'<path class="edge" d="M{x} {_node_y(at - 1) + _BOX}V{_node_y(at)}"/>'
        for source in sorted(sources - {at - 1}):
            lane = lane % _MOST_EDGES + 1
            x, top, bottom = (
                _NODES_X - lane * _EDGE_GAP,
                _node_y(source) + _BOX / 2,
                _node_y(at) + _BOX / 2,
            )
            yield f'<path class="edge" d="M{_NODES_X} {top}H{x}V{bottom}H{_NODES_X}"/>'


def _node_box(node: onnx.NodeProto, number: int, *, gone: bool) -> str:
    kind = "kernel" if node.domain == KERNEL_DOMAIN else "gone" if gone else "new"
    y = _node_y(number)
    operator = f"{node.domain.rpartition('.')[2]}:{node.op_type}" if node.domain else node.op_type
    inputs = ", ".join(filter(None, node.input))
    title = f"{node.name}\n{operator}({inputs}) -> {', '.join(filter(None, node.output))}"
    name = node.name.removesuffix(f"_{node.op_type}")  # as kernels are called after their operator
    shown = _end_of(operator, _CHARACTERS - _SHORTEST)
    name = _end_of(name, _CHARACTERS - len(shown))
    return (
        f'<g class="{kind}"><title>{pages.escape(title)}</title>'
        f'<rect x="{_NODES_X}" y="{y}" width="{_NODES_W - _NODES_X - 8}" height="{_BOX}" rx="5"/>'
        f'<text x="{_NODES_X + 10}" y="{y + 20}"><tspan class="op">{pages.escape(shown)}</tspan>'
        f'<tspan class="of" dx="8">{pages.escape(name)}</tspan></text></g>'
    )


def _end_of(text: str, room: int) -> str:
    """Return the end of a text, which says more than its beginning, where there is no room."""
    return text if len(text) <= room else f"…{text[1 - room :]}"


def _node_y(number: int) -> int:
    return _NODES_TOP + number * _STEP
