"""The interval of a speed-up, drawn beside the line at 1."""

from __future__ import annotations

from aoe.advice.trying import TrialVerdict
from aoe.measurement import SpeedupEstimate
from aoebank import Markup, element, pages

_WIDTH, _HEIGHT = 160.0, 18.0
_MARGIN = 6.0
_LEAST_WIDEST, _MOST_WIDEST = 0.02, 1.0
"""So that noise does not fill the drawing, and one wild interval does not shrink the others."""


def draw_interval(estimate: SpeedupEstimate, widest: float, verdict: TrialVerdict) -> Markup:
    """Return the drawing.

    Args:
        estimate: What is drawn.
        widest: How far any end that is drawn beside it lies from 1.
        verdict: A gain is drawn in green.
    """
    reach = min(max(widest, _LEAST_WIDEST), _MOST_WIDEST)

    def x(speedup: float) -> float:
        share = (speedup - 1 + reach) / (2 * reach)
        return _MARGIN + min(max(share, 0.0), 1.0) * (_WIDTH - 2 * _MARGIN)

    middle = _HEIGHT / 2
    words = f"{estimate.median:.3f}, between {estimate.low:.3f} and {estimate.high:.3f}"
    parts = (
        element("line", class_="one", x1=x(1.0), x2=x(1.0), y1=0, y2=_HEIGHT),
        element(
            "line", class_="span", x1=x(estimate.low), x2=x(estimate.high), y1=middle, y2=middle
        ),
        element("circle", cx=x(estimate.median), cy=middle, r=4),
    )
    class_ = "interval good" if verdict is TrialVerdict.GAIN else "interval"
    return pages.drawing(_WIDTH, _HEIGHT, *parts, class_=class_, label=words)
