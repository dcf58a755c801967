"""AOE's line about what came of a run, the same for every mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aoe.tuning.mode import ModeResult


def finished_line(result: ModeResult, reason: str = "", *, note: str = "") -> str:
    """Return AOE's line about what came of it, the same for every mode.

    Args:
        result: Of the mode.
        reason: Why nothing was gained, if nothing was.
        note: What has to be said of the figure of a gain.
    """
    from aoe.results.files import improvement_text

    name = result.tuning_name
    of_what = "" if result.metric == "latency" else f" ({result.metric})"
    if result.speedup == 1.0:
        why = f": {reason}" if reason else ""
        return f"{name} process finished. Performance not improved{why}"
    gain = improvement_text(result.speedup)
    return f"{name} process finished. Performance improved by {gain}{of_what}{note}"


def looked_up_finish(result: ModeResult, parts: str) -> str:
    """Return the line of a run that has placed what the bank had, and measured nothing.

    Args:
        result: Of the mode.
        parts: How many of which, `3 kernels`.
    """
    return f"{result.tuning_name} process finished. From the bank: {parts}, not measured"
