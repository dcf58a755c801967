"""Times, speed-ups and names of operators for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aoebank import plural

if TYPE_CHECKING:
    from aoe.measurement import SpeedupEstimate
    from aoe.profiling.figures import OperatorProfile

SHORTEST_US = 1e-6
"""A time below this is drawn as none: a picosecond is an error of rounding."""


def time_text(time_us: float) -> str:
    """Return a time with the unit that suits it, three digits or more.

    >>> time_text(12.34), time_text(4567.8), time_text(12_345_678)
    ('12.3 us', '4.57 ms', '12.35 s')
    """
    if time_us < 1000:
        return f"{time_us:.1f} us"
    if time_us < 1_000_000:
        time_ms = time_us / 1000
        return f"{time_ms:.2f} ms" if time_ms < 100 else f"{time_ms:.1f} ms"
    return f"{time_us / 1e6:.2f} s"


def figure(value: float | None, form: str) -> str:
    """Return a figure as text, a dash where there is none."""
    return "-" if value is None else format(value, form)


def speedup_text(estimate: SpeedupEstimate | None) -> str:
    """Return the median of a speed-up; a dash where nothing was measured."""
    return f"{estimate.median:.3f}x" if estimate is not None else "-"


def interval_text(estimate: SpeedupEstimate | None) -> str:
    """Return the interval of a speed-up; a dash where nothing was measured."""
    return f"{estimate.low:.3f} to {estimate.high:.3f}" if estimate is not None else "-"


def speedup_members(
    estimate: SpeedupEstimate | None, digits: int | None = 4
) -> dict[str, float | None]:
    """Return a speed-up and its interval for a document; None where nothing was measured."""
    names = ("speedup", "speedup_low", "speedup_high")
    if estimate is None:
        return dict.fromkeys(names)
    figures = (estimate.median, estimate.low, estimate.high)
    rounded = figures if digits is None else (round(figure, digits) for figure in figures)
    return dict(zip(names, rounded, strict=True))


def pairs_text(estimate: SpeedupEstimate) -> str:
    """Return a speed-up with its interval and the number of pairs, without the closing bracket."""
    interval = interval_text(estimate)
    return f"{speedup_text(estimate)} (95 % interval {interval}, {plural(estimate.pairs, 'pair')}"


def title_of(operator: OperatorProfile) -> str:
    """Return the title of an operator: its first node, and the number of further ones.

    >>> from aoe.profiling.figures import OperatorProfile
    >>> names = {"name": "r_nchwc", "op_type": "Conv", "op_types": ("Conv", "Relu")}
    >>> title_of(OperatorProfile(op_names=("conv", "relu"), median_us=1.0, min_us=1.0, **names))
    'conv +1'
    """
    if not operator.op_names:
        return operator.name
    more = len(operator.op_names) - 1
    return f"{operator.op_names[0]} +{more}" if more else operator.op_names[0]


def versions_text(versions: Mapping[str, str]) -> str:
    """Return versions by the name of what they are of."""
    return ", ".join(f"{name} {number}" for name, number in sorted(versions.items()))
