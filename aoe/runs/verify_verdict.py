"""Whether a record still holds, by fresh pairs of its answer and of the default.

The default of a kernel is ONNX Runtime's own, that of a grouping of gradients DDP's buckets.

candidate                                                -> verdict
cannot be compiled, dies, or computes something else        lost
was kept from it by the clock, the harness or the worker    undecided
was measured on a busy machine                              undecided
is of gradients, and all-reduce or a step takes another
time than the record says                                   undecided
surely no faster than the default (high <= 1)               lost
surely less than was recorded, by more than 3 %             weaker
may be no faster (low <= 1; of a whole model the end of
the interval by which tuning accepts a gain)                undecided
else                                                        holds
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from aoe.measurement import Measurement, SpeedupEstimate, estimate_speedup
from aoe.tasks.operators.lookup import ACCEPT_SPEEDUP
from aoebank import Provenance


class Holding(StrEnum):
    """What has become of a recorded gain."""

    HOLDS = "holds"
    WEAKER = "weaker"
    LOST = "lost"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedGain:
    """What a bank says a record is worth.

    Attributes:
        speedup: Over the default, as it was last measured.
        low: Lower end of its interval; the speed-up itself where none was noted.
        time: When, RFC 3339 in UTC.
        engine: By what.
        bytes_around: What one inference of the model read and wrote besides, None if unknown.
    """

    speedup: float
    low: float
    time: str
    engine: str
    bytes_around: int | None = None


def recorded_gain(last: Provenance | None) -> RecordedGain | None:
    """Return the gain in the line of a record's last figure, None if the line has none.

    Args:
        last: The line, None where there is none.
    """
    if last is None or last.speedup is None:
        return None
    around = last.search.get("bytes_around")
    return RecordedGain(
        speedup=last.speedup,
        low=last.speedup_low or last.speedup,
        time=last.time,
        engine=last.engine,
        bytes_around=around if type(around) is int and around >= 0 else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A verdict with what it stands on.

    Attributes:
        verdict: What has become of the gain.
        reason: In words, where the figures do not say it.
        measurement: Fresh pairs, None if the kernel does not work.
        estimate: What the kernel is worth now, None if it does not work.
    """

    verdict: Holding
    reason: str = ""
    measurement: Measurement | None = None
    estimate: SpeedupEstimate | None = None

    def __str__(self) -> str:
        figure = f"{self.estimate.median:.2f}x" if self.estimate is not None else ""
        words = ", ".join(filter(None, (figure, self.reason)))
        return f"{self.verdict} ({words})" if words else str(self.verdict)

    @property
    def is_decided(self) -> bool:
        """True if its figures may take the place of the recorded ones."""
        return self.estimate is not None and self.verdict is not Holding.UNDECIDED


def verdict_on(
    recorded: RecordedGain | None,
    found: Measurement,
    *,
    estimate: SpeedupEstimate | None = None,
    surely: float | None = None,
    default: str = "ONNX Runtime's own",
) -> Verified:
    """Return the verdict of a measurement on a record.

    Args:
        recorded: What the bank says it is worth; None if nobody noted it, then it has to be faster.
        found: Fresh pairs, or why there are none.
        estimate: What they prove; None for what the pairs of this run prove alone.
        surely: Speed-up that is exceeded as surely as a tuning has to know it; None for the lower
            end of the estimate.
        default: What the answer is compared with, in words.
    """
    if found.is_of_machine:
        return Verified(
            verdict=Holding.UNDECIDED, reason=f"{found.outcome.value}: {_line(found.detail)}"
        )
    if not found.is_correct:
        return Verified(
            verdict=Holding.LOST, reason=f"{found.outcome.value}: {_line(found.detail)}"
        )
    estimate = estimate or estimate_speedup(found)
    if not found.counts:
        verdict, reason = Holding.UNDECIDED, f"the machine was busy: {found.busy_words}"
    elif estimate.high <= 1:
        verdict, reason = Holding.LOST, f"no faster than {default}"
    elif recorded is not None and estimate.high * ACCEPT_SPEEDUP < recorded.low:
        verdict, reason = Holding.WEAKER, ""
    elif estimate.low <= 1:
        verdict, reason = Holding.UNDECIDED, "its interval reaches below 1"
    elif surely is not None and surely <= 1:
        verdict, reason = Holding.UNDECIDED, f"its 99 % interval reaches to {surely:.3f}"
    else:
        verdict, reason = Holding.HOLDS, ""
    return Verified(verdict=verdict, reason=reason, measurement=found, estimate=estimate)


def _line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason was given"])[0]
