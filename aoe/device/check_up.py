"""What was found out about a machine, or anything else a run needs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Soundness(StrEnum):
    """How bad it is."""

    GOOD = "good"
    DOUBTFUL = "doubtful"
    STOPS = "stops"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckUp:
    """One thing that was looked at.

    Attributes:
        name: Of the thing.
        found: What it is, in words.
        verdict: Whether a run would go well, may suffer, or would stop.
        advice: What to do; empty if nothing.
    """

    name: str
    found: str
    verdict: Soundness = Soundness.GOOD
    advice: str = ""
