"""What the nodes of a page took before tuning and take now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aoe.profiling.comparing import ComparedProfiles
from aoe.report.graphs.alignment import AlignedNodes
from aoe.report.quantities import time_text

Times = tuple[float, float]
"""In us, before and now."""


def times_of(groups: Sequence[AlignedNodes], compared: ComparedProfiles) -> Mapping[int, Times]:
    """Return the time of each group by its place; operators of two groups are the last one's.

    Args:
        groups: All nodes of the model.
        compared: Where its time went before tuning and where it goes now.
    """
    place = {node.name: at for at, group in enumerate(groups) for node in group.after}
    place |= {node.name: at for at, group in enumerate(groups) for node in group.before}
    found: dict[int, Times] = {}
    for one in compared.operators:
        own = [*one.op_names, *(operator.name for operator in (*one.before, *one.after))]
        at = max((place[name] for name in own if name in place), default=None)
        if at is not None:
            before_us, now_us = found.get(at, (0.0, 0.0))
            found[at] = (before_us + one.before_us, now_us + one.after_us)
    return found


def times_text(times: Times) -> str:
    """Return both times in words."""
    before_us, now_us = times
    return f"{time_text(before_us)} \N{RIGHTWARDS ARROW} {time_text(now_us)}"
