"""The interval of a speed-up, drawn beside the line at 1."""

from __future__ import annotations

from aoe.advice.trying import TrialVerdict
from aoe.measurement import SpeedupEstimate
from aoebank import Markup, element

_WIDTH, _HEIGHT = 160.0, 18.0
_MARGIN = 6.0
_LEAST_WIDEST, _MOST_WIDEST = 0.02, 1.0
"""So that noise does not fill the drawing, and one wild interval does not shrink the others."""
INTERVAL_STYLE = """
.interval { width: 160px; height: 18px; display: block; }
.interval line { stroke: var(--soft); stroke-width: 2; }
.interval .one { stroke-width: 1; stroke-dasharray: 3 3; }
.interval circle { fill: var(--soft); }
.interval.good line.span { stroke: var(--after); } .interval.good circle { fill: var(--after); }
.interval-words { white-space: nowrap; } td.words { min-width: 300px; }
details > summary { cursor: pointer; }
main > details { margin-top: 28px; }
main > details > summary { font-size: 17px; font-weight: 600; overflow-wrap: anywhere; }
"""


def draw_interval(estimate: SpeedupEstimate, widest: float, verdict: TrialVerdict) -> Markup:
    """Return the drawing.

    Args:
        estimate: What is drawn.
        widest: How far any end that is drawn beside it lies from 1.
        verdict: A gain is drawn in green.
    """
    reach = min(max(widest, _LEAST_WIDEST), _MOST_WIDEST)

    def x(speedup: float) -> str:
        share = (speedup - 1 + reach) / (2 * reach)
        return f"{_MARGIN + min(max(share, 0.0), 1.0) * (_WIDTH - 2 * _MARGIN):.1f}"

    middle = f"{_HEIGHT / 2:.1f}"
    words = f"{estimate.median:.3f}, between {estimate.low:.3f} and {estimate.high:.3f}"
    parts = (
        element("line", class_="one", x1=x(1.0), x2=x(1.0), y1="0", y2=f"{_HEIGHT:.0f}"),
        element(
            "line", class_="span", x1=x(estimate.low), x2=x(estimate.high), y1=middle, y2=middle
        ),
        element("circle", cx=x(estimate.median), cy=middle, r="4"),
    )
    return element(
        "svg",
        *parts,
        viewBox=f"0 0 {_WIDTH:.0f} {_HEIGHT:.0f}",
        class_="interval good" if verdict is TrialVerdict.GAIN else "interval",
        role="img",
        aria_label=words,
    )
