"""Layout of the charts of pages: axes, roofs, places of boxes, lines between them.

The drawings themselves, SVG, are macros in `templates/charts.html`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aoe.report.quantities import SHORTEST_US
from aoebank import Scale

if TYPE_CHECKING:
    import onnx

    from aoe.measurement import SpeedupEstimate
    from aoe.profiling.figures import OperatorProfile
    from aoe.profiling.peak import MachinePeak


def time_scale(end_us: float) -> Scale:
    """Return the axis of timelines; all timelines of a page share one."""
    return Scale(low=0, high=end_us if end_us > SHORTEST_US else 1.0, start=112, end=1048)


_LEAST_REACH, _MOST_REACH = 0.02, 1.0
"""So that noise does not fill the drawing, and one wild interval does not shrink the others."""


def speedup_scale(estimates: Sequence[SpeedupEstimate]) -> Scale:
    """Return the axis of intervals that are drawn below each other, 1 in its middle."""
    ends = [abs(end - 1) for one in estimates for end in (one.low, one.high)]
    reach = min(max([_LEAST_REACH, *ends]), _MOST_REACH)
    return Scale(low=1 - reach, high=1 + reach, start=6, end=154)


# ---- the roofline ----

_NEAREST = 1e-3
"""Lowest rate that is drawn, as a part of the machine's best."""
FRAME_LEFT, FRAME_RIGHT, FRAME_TOP, FRAME_BOTTOM = 56, 884, 14, 376
_LARGEST_POINT = 16
"""Radius of the operator that takes most; axes keep so far from the frame that no point is cut."""
_LETTER, _LINE = 6.8, 15
"""Room of a letter and of a line of a label, rather more than they take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """Words of a drawing: the left end of their base line, and the room they take."""

    words: str
    x: float
    y: float

    @property
    def width(self) -> float:
        """Room the words take."""
        return _LETTER * len(self.words)

    def overlaps(self, other: Label) -> bool:
        """True if they share room."""
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and abs(self.y - other.y) < _LINE
        )

    @property
    def is_inside(self) -> bool:
        """True if the frame has room for the words."""
        is_wide_enough = self.x >= FRAME_LEFT and self.x + self.width <= FRAME_RIGHT
        return is_wide_enough and FRAME_TOP + _LINE <= self.y <= FRAME_BOTTOM - 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """The line of a memory level, and its label."""

    label: Label
    is_fastest: bool
    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Axes and roofs of a roofline."""

    x: Scale  # Operations per byte
    y: Scale  # Billions of operations per second
    top: float  # The machine's best, in GF/s
    top_x: float  # Where its roof begins
    top_label: Label  # Of its roof, at the right end
    roofs: tuple[Roof, ...]  # Of each memory level


def roofline(peak: MachinePeak, operators: Sequence[OperatorProfile]) -> Roofline:
    """Return the axes on which all of the given operators have a place."""
    top = peak.flops_per_us / 1e3
    ridge = peak.flops_per_us / peak.levels[-1].bytes_per_us
    intensities = [1.0, *map(intensity, operators)]
    rates = [top, *(operator.gflops_per_s or top for operator in operators)]
    lowest, highest = _power(min(rates), math.floor), _power(max(rates) * 1.2, math.ceil)
    least = _power(min(intensities), math.floor)
    x = Scale(
        low=least,
        # a power of ten at least, also where nothing is above it
        high=max(_power(max(*intensities, ridge), math.ceil), 10 * least),
        start=FRAME_LEFT + _LARGEST_POINT,
        end=FRAME_RIGHT - _LARGEST_POINT,
        is_log=True,
    )
    y = Scale(
        low=max(lowest, top * _NEAREST),
        high=highest,
        start=FRAME_BOTTOM - _LARGEST_POINT,
        end=FRAME_TOP + _LARGEST_POINT,
        is_log=True,
    )
    fastest = max(level.bytes_per_us for level in peak.levels) / 1e3
    top_x = x.at(max(top / fastest, x.low))
    words = f"{top:.0f} GF/s"
    above = Label(words=words, x=FRAME_RIGHT - _LETTER * len(words), y=y.at(top) - 6)
    roofs = tuple(_roofs(peak, x, y, above))
    return Roofline(x=x, y=y, top=top, top_x=top_x, top_label=above, roofs=roofs)


def intensity(operator: OperatorProfile) -> float:
    """Return the operations of an operator per byte it moves."""
    return (operator.flops or 0) / (operator.bytes or 1)


def points(operators: Sequence[OperatorProfile]) -> list[OperatorProfile]:
    """Return the operators with a place in a roofline, which compute and move something.

    Those that take most are first, so that no small one is hidden.
    """
    shown = (one for one in operators if one.flops and one.bytes and one.median_us > 0)
    return sorted(shown, key=lambda one: -one.median_us)


def _power(value: float, round_to: Callable[[float], int]) -> float:
    return float(10.0 ** round_to(math.log10(value)))


def _roofs(peak: MachinePeak, x: Scale, y: Scale, above: Label) -> Iterator[Roof]:
    top, fastest = peak.flops_per_us, max(level.bytes_per_us for level in peak.levels)
    labels = [above]
    for level in peak.levels:
        rate = level.bytes_per_us / 1e3
        start, end = max(x.low, y.low / rate), min(top / level.bytes_per_us, x.high)
        if start < end:
            x1, y1, x2, y2 = x.at(start), y.at(start * rate), x.at(end), y.at(end * rate)
            labels.append(_free_label(f"{level.name} {rate:.0f} GB/s", (x1, y1, x2, y2), labels))
            yield Roof(
                label=labels[-1],
                is_fastest=level.bytes_per_us == fastest,
                x1=x1,
                y1=y1,
                x2=x2,
                y2=y2,
            )


def _free_label(
    words: str, line: tuple[float, float, float, float], taken: Sequence[Label]
) -> Label:
    """Return a label beside a line, or where there is room: roofs of like levels lie together."""
    x1, y1, x2, y2 = line
    beside = (
        Label(words=words, x=round(x1 + part * (x2 - x1) + 8, 1), y=round(y + 12, 1))
        for part in (0.5, 0.35, 0.65, 0.2, 0.8, 0.05, 0.95)
        for y in (y1 + part * (y2 - y1),)
    )
    elsewhere = (
        Label(words=words, x=FRAME_LEFT + 8, y=FRAME_TOP + number * _LINE)
        for number in range(2, 24)
    )
    free = (
        label
        for label in (*beside, *elsewhere)
        if label.is_inside and not any(map(label.overlaps, taken))
    )
    return next(free, Label(words=words, x=x1, y=y1))


# ---- graphs of operators, coloured by the time they lose ----

BOX_WIDTH, BOX_HEIGHT = 172, 34
_GAP, _MARGIN, _BULGE = 18, 14, 44
_SHADES = 5
_MOST_LANES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Boxes of operators in rows by how far they are from the inputs."""

    width: int  # Of the drawing, as all lengths in its units
    height: int  # Of the drawing
    edges: tuple[str, ...]  # Lines from box to box, as SVG paths
    # Each operator with the x and y of its corner.
    boxes: tuple[tuple[OperatorProfile, int, int], ...]
    most_lost_us: float  # Lost time of the worst operator


def network(operators: Sequence[OperatorProfile]) -> Network:
    """Return the layout of operators, given in the order in which they run."""
    places = _places(operators)
    corners = {
        name: (_MARGIN + lane * (BOX_WIDTH + _GAP), _MARGIN + row * (BOX_HEIGHT + _GAP))
        for name, (lane, row) in places.items()
    }
    edges = (
        _edge(corners[read], corners[operator.name])
        for operator in operators
        for read in operator.reads
        if read in corners
    )
    return Network(
        width=max((x for x, _ in corners.values()), default=_MARGIN) + BOX_WIDTH + _MARGIN + _BULGE,
        height=max((y for _, y in corners.values()), default=_MARGIN) + BOX_HEIGHT + _MARGIN,
        edges=tuple(edges),
        boxes=tuple((operator, *corners[operator.name]) for operator in operators),
        most_lost_us=max((operator.lost_us or 0.0 for operator in operators), default=0.0),
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
        # the lane that is wanted, those to its right, those to its left
        lanes = [*range(wanted, wanted + _MOST_LANES), *range(wanted)]
        lane = next(lane for lane in lanes if lane not in used[row])
        used[row].add(lane)
        places[operator.name] = (lane, row)
    return places


def _edge(source: tuple[int, int], target: tuple[int, int]) -> str:
    """Return a line from box to box; one that passes rows goes round them."""
    (x1, y1), (x2, y2) = source, target
    if x1 == x2 and y2 - y1 > BOX_HEIGHT + _GAP:
        side, start, end = x1 + BOX_WIDTH, y1 + BOX_HEIGHT // 2, y2 + BOX_HEIGHT // 2
        out = side + _BULGE
        return f"M{side} {start}C{out} {start} {out} {end} {side} {end}"
    x1, y1, x2 = x1 + BOX_WIDTH // 2, y1 + BOX_HEIGHT, x2 + BOX_WIDTH // 2
    middle = (y1 + y2) // 2
    return f"M{x1} {y1}C{x1} {middle} {x2} {middle} {x2} {y2}"


# ---- nodes of models: boxes in their order, lines from who makes a tensor to who reads it ----

_NODE_LEFT, _NODE_TOP, _NODE_HEIGHT, _NODE_STEP = 78, 14, 30, 44
_EDGE_GAP, _MOST_EDGES = 11, 6


def node_edges(nodes: Sequence[onnx.NodeProto]) -> Iterator[str]:
    """Yield the lines between nodes in topological order, as SVG paths."""
    makers = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    lane = 0
    for at, node in enumerate(nodes):
        top = _NODE_TOP + at * _NODE_STEP
        sources = {makers[name] for name in node.input if name in makers}
        if at - 1 in sources:
            yield f"M{_NODE_LEFT + 24} {top - _NODE_STEP + _NODE_HEIGHT}V{top}"
        for source in sorted(sources - {at - 1}):
            lane = lane % _MOST_EDGES + 1
            x, middle = _NODE_LEFT - lane * _EDGE_GAP, _NODE_HEIGHT // 2
            start = _NODE_TOP + source * _NODE_STEP + middle
            yield f"M{_NODE_LEFT} {start}H{x}V{top + middle}H{_NODE_LEFT}"


def node_type(node: onnx.NodeProto) -> str:
    """Return the type of a node, behind the end of its domain where that is not ONNX's."""
    return f"{node.domain.rpartition('.')[2]}:{node.op_type}" if node.domain else node.op_type


def end_of(text: str, room: int) -> str:
    """Return the end of a text, which says more than its beginning, where there is no room."""
    return text if len(text) <= room else f"…{text[1 - room :]}"
