"""What single choices brought: `tune_performance` of AOE's result files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from aoe.results.files import RepoOutcome, improvement_text


class GainKind(StrEnum):
    """Which choice brought a gain. Source: AOE, keys of `tune_performance`."""

    FORMAT = "Format"
    """Another layout of what it reads and writes, so that nothing is reordered."""
    IMPL = "Impl"
    """Another way to compute the operator, as its first guess has it."""
    SCHEDULE = "Schedule"
    """Tiles, loops and threads of that way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What one choice brought, the others staying as they are.

    Attributes:
        kind: The choice.
        before_us: Time of the operator without it, us.
        after_us: Time with it.
    """

    kind: GainKind
    before_us: float
    after_us: float


def gains_to_json(gains: Iterable[Gain], outcome: RepoOutcome) -> dict[str, Any]:
    """Return gains as AOE's files have them, by kind."""
    return {
        gain.kind.value: {
            "performance_after_tune(us)": round(gain.after_us, 3),
            "performance_before_tune(us)": round(gain.before_us, 3),
            "performance_improvement": improvement_text(gain.before_us / gain.after_us),
            "update_mode": outcome.value,
        }
        for gain in gains
    }
