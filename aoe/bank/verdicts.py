"""What happened to a workload: as a run tells it, as a side-car keeps it, when it is settled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from aoe.bank.journal import Note
from aoe.measurement import Measurement, SpeedupEstimate
from aoebank import Event, Provenance

SETTLED_HALF_WIDTH = 0.01
"""Half-width of the interval, relative to its middle, up to which later runs believe a verdict that
was a matter of time: what is judged are percents."""
_MODEL_SPEEDUP = "model_speedup"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorVerdict:
    """A note to be kept about one workload of one model.

    Attributes:
        event: What happened.
        op_names: Nodes of the model.
        estimate: Speed-up with its interval, if anything was measured.
        measurement: The samples behind it.
        search: Method, seed and trials.
    """

    event: Event
    op_names: tuple[str, ...] = ()
    estimate: SpeedupEstimate | None = None
    measurement: Measurement | None = None
    search: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_model(
        cls,
        event: Event,
        op_names: tuple[str, ...],
        *,
        reason: str,
        estimate: SpeedupEstimate | None,
    ) -> Self:
        """Return what a whole model made of a kernel.

        Args:
            event: `kept` or `dropped`.
            op_names: Nodes of the model.
            reason: In words.
            estimate: Speed-up of the model that decided, None if no time did: what computes
                wrongly is out for good.
        """
        bounds = [round(bound, 4) for bound in (estimate.low, estimate.high)] if estimate else []
        measured = {_MODEL_SPEEDUP: bounds} if bounds else {}
        return cls(event=event, op_names=op_names, search={"reason": reason, **measured})


def is_settled(verdict: Provenance) -> bool:
    """True if what a model made of a kernel was no matter of noise.

    The interval that decided is narrow, or lies further from 1, on the side of the verdict, than
    it is wide.
    """
    match verdict.search.get(_MODEL_SPEEDUP):
        case [float(low), float(high)] if 0 < low <= high:
            beyond = low - 1 if verdict.event is Event.KEPT else 1 - high
            return is_narrow(low, high) or beyond > high - low
        case None:
            return isinstance(verdict.search.get("reason"), str)
    return False


def is_narrow(low: float, high: float) -> bool:
    """Return whether an interval is narrow enough to be believed by later runs."""
    return high - low <= SETTLED_HALF_WIDTH * (low + high)


def note_of(key: str, verdict: OperatorVerdict, cluster: Mapping[str, Any]) -> Note:
    """Return a verdict about a workload as a line of the side-car has it.

    Args:
        key: Of the record.
        verdict: What happened.
        cluster: Further parts of the fingerprint.
    """
    measurement = verdict.measurement
    return Note(
        key=key,
        event=verdict.event,
        op_names=verdict.op_names,
        estimate=verdict.estimate,
        baseline_us=measurement.baseline_us if measurement else (),
        tuned_us=measurement.tuned_us if measurement else (),
        cluster=cluster,
        search=verdict.search,
    )
