"""AOE's line about what came of a run, the same for every mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aoe.tuning.mode import ModeResult


def finished_line(result: ModeResult, reason: str = "") -> str:
    """Return AOE's line about what came of it, the same for every mode.

    Args:
        result: Of the mode.
        reason: Why nothing was gained, if nothing was.
    """
    from aoe.results.files import improvement_text

    name = result.tuning_name
    of_what = "" if result.metric == "latency" else f" ({result.metric})"
    if result.speedup == 1.0:
        why = f": {reason}" if reason else ""
        return f"{name} process finished. Performance not improved{why}"
    gain = improvement_text(result.speedup)
    return f"{name} process finished. Performance improved by {gain}{of_what}"
