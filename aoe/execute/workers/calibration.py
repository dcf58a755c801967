"""Whether a worker can be believed: the same code, timed against itself, now and then."""

from __future__ import annotations

from aoe.measurement import Measurement, estimate_speedup

MOST_BIAS = 0.03
"""Distance from 1 nothing may prove of two equal things. Source: `ACCEPT_SPEEDUP`, what a kernel
has to prove to be kept."""
MOST_WIDTH = 0.05
"""Half-width of an interval in which the gain of a kernel is lost."""
MOST_SLOWER = 1.15
"""Times as long as at its first calibration: a machine that heats up, or got a neighbour."""


def drift_of(now: Measurement, first: Measurement | None) -> str:
    """Return why a worker is not to be believed any more, empty if it is.

    Args:
        now: The same code against itself, as both sides of a measurement.
        first: The worker's first such measurement, None if this is it.
    """
    if not now.is_correct:
        return f"the same code twice: {now.outcome}: {now.detail}"
    if not now.counts:
        return f"it is busy: {now.load}"
    estimate = estimate_speedup(now)
    read = f"{estimate.median:.3f}x ({estimate.low:.3f} to {estimate.high:.3f})"
    if estimate.low > 1 + MOST_BIAS or estimate.high < 1 - MOST_BIAS:
        return f"the same code twice reads {read}"
    if estimate.half_width > MOST_WIDTH:
        return f"the same code twice reads {read}, too wide to tell anything"
    if first is None:
        return ""
    pace = now.baseline_latency_us / first.baseline_latency_us
    if pace > MOST_SLOWER:
        return f"the same code takes {pace:.2f} times as long as at its start"
    return ""
