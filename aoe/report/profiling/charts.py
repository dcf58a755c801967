"""Bars of time by kind, and the roofline with a point for each operator."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from aoe.profiling.comparing import ComparedKind
from aoe.profiling.figures import KindSummary, OperatorProfile
from aoe.profiling.peak import MachinePeak
from aoe.report.profiling.text import title_of
from aoe.report.quantities import time_text
from aoebank import Markup, element, join, pages

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
