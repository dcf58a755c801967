"""Verdicts on a workload: as a run notes them, as a side-car keeps them, and when they hold."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from aoe.bank.journal import Note, samples_of
from aoe.bank.records.operator import configuration_of
from aoe.measurement import Measurement, Scatter, SpeedupEstimate, expected_gain
from aoe.schedule import Configuration
from aoe.workload import Workload, workload_from_json, workload_to_json
from aoebank import Event, Provenance

SETTLED_HALF_WIDTH = 0.01
"""Half-width of the interval, relative to its middle, up to which later runs believe a verdict that
was a matter of time: what is judged are percents."""
_MODEL_SPEEDUP, _MODEL_SCATTER, _SURROUNDINGS = "model_speedup", "model_scatter", "surroundings"
_MODEL_PROMISE, _AS_EXPECTED, _KERNEL = "model_promise", "as_expected", "kernel"
_BEST, _AGAIN, _BUSY = "best", "again", "busy"
_WORKLOAD, _BYTES = "workload", "bytes_around"
_TRUSTED_PROCESSES = 3
"""With fewer, a scatter says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BankNote:
    """One line of the side-car about a workload of a model."""

    event: Event  # What happened
    op_names: tuple[str, ...] = ()  # Nodes of the model
    estimate: SpeedupEstimate | None = None  # Speed-up with its interval, if anything was measured
    measurement: Measurement | None = None  # The samples behind it
    search: Mapping[str, Any] = field(default_factory=dict)  # Method, seed and trials

    @classmethod
    def of_model(
        cls,
        event: Event,
        op_names: tuple[str, ...],
        *,
        reason: str,
        estimate: SpeedupEstimate | None,
        scatter: Scatter | None = None,
        promise: float | None = None,
        is_as_expected: bool = False,
        surroundings: Collection[str] = (),
        kernel: str = "",
    ) -> Self:
        """Return the note on a kernel after a decision about a whole model.

        Args:
            event: `kept` or `dropped`.
            op_names: Nodes of the model.
            reason: In words.
            estimate: Speed-up of the model that decided, None if no time did: what computes
                wrongly is out for good.
            scatter: Of the processes that decided, None if they cannot tell.
            promise: What all kernels that stay had proven alone to save, as a share of the time
                the model takes with them; None where nobody reckoned it.
            is_as_expected: True if that is what a model like this one has shown that they do.
            surroundings: Digests of what stands around its places.
            kernel: Name of what was judged: another schedule is another kernel.
        """
        bounds = [round(bound, 4) for bound in (estimate.low, estimate.high)] if estimate else []
        measured: dict[str, Any] = {_MODEL_SPEEDUP: bounds} if bounds else {}
        if scatter is not None:
            measured[_MODEL_SCATTER] = [round(scatter.deviation, 5), scatter.processes]
        if promise is not None:
            measured[_MODEL_PROMISE] = round(promise, 4)
        if is_as_expected:
            measured[_AS_EXPECTED] = True
        if surroundings:
            measured[_SURROUNDINGS] = sorted(surroundings)
        if kernel:
            measured[_KERNEL] = kernel
        return cls(event=event, op_names=op_names, search={"reason": reason, **measured})


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptKernel:
    """Note of a side-car on a kernel a model has kept."""

    is_settled: bool  # True if that was no matter of noise
    # Digests of what stood around its places; none where nobody noted them.
    surroundings: frozenset[str]
    scatter: Scatter | None  # Of the processes that judged that model, None where it is not known
    # What of their promise the kernels of that model have kept together, None where it is not
    # known.
    kept_share: float | None = None

    @classmethod
    def of(cls, verdict: Provenance) -> Self:
        """Return the note in a side-car line; invalid members are left out."""
        scatter = None
        match verdict.search.get(_MODEL_SCATTER):
            case [float(deviation), int(processes)] if processes >= _TRUSTED_PROCESSES:
                with suppress(ValueError):
                    scatter = Scatter(deviation=deviation, processes=processes)
        return cls(
            is_settled=is_settled(verdict),
            surroundings=surroundings_of(verdict),
            scatter=scatter,
            kept_share=_kept_share(verdict),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedKernel:
    """Note of a side-car on a kernel a model has dropped."""

    reason: str  # In words
    # Digests of what stood around its places; none where nobody noted them.
    surroundings: frozenset[str]


def surroundings_of(verdict: Provenance) -> frozenset[str]:
    """Return the digests of what stood around the places of a kernel; none if nobody noted them."""
    around = verdict.search.get(_SURROUNDINGS)
    return frozenset(map(str, around if isinstance(around, list | tuple) else ()))


def proven_gain_of(verdict: Provenance, kernel: str) -> float | None:
    """Return the least speed-up of a model that has kept a kernel, None if it was another one."""
    match verdict.search.get(_MODEL_SPEEDUP):
        case [float(low), float()] if verdict.search.get(_KERNEL) == kernel:
            return low if verdict.event is Event.KEPT else None
    return None


def _kept_share(verdict: Provenance) -> float | None:
    match verdict.search.get(_MODEL_SPEEDUP), verdict.search.get(_MODEL_PROMISE):
        case [float(low), float(high)], float(promise) if promise > 0 and 0 < low <= high:
            return max(0.0, math.sqrt(low * high) - 1) / promise
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedSearch:
    """A search that found nothing better than the default."""

    is_open: bool  # True if noise has kept from deciding that
    best: Configuration | None = None  # Its best candidate, None where nobody noted it
    expected: float = 0.0  # Share of the operator's time a gain that noise has hidden should save
    # True if the machine was too busy for a decision: the candidate is measured alone, and where it
    # gains nothing, a later run searches again.
    was_busy: bool = False


def left_open_members(best: Configuration, *, is_again: bool) -> Mapping[str, Any]:
    """Return the side-car members of a search without a gain, for a later run.

    Args:
        best: Its best candidate.
        is_again: True if noise has left open once before what a search like it came to.
    """
    return {_BEST: dict(best), **({_AGAIN: True} if is_again else {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class UndecidedOperator:
    """An operator whose search a busy machine has left without a decision."""

    workload: Workload  # What it computes
    best: Configuration  # The candidate that was ahead
    op_names: tuple[str, ...]  # Nodes of the model it was searched in
    bytes_around: int  # What one inference of that model read and wrote besides


def busy_members(workload: Workload, best: Configuration, bytes_around: int) -> Mapping[str, Any]:
    """Return the members of a side-car line for an operator that a busy machine left undecided.

    A limit of 0 trials makes readers that do not know such lines search again.

    Args:
        workload: What was searched: there is no record that has it.
        best: The candidate that was ahead.
        bytes_around: What one inference of the model read and wrote besides.
    """
    return {
        "limit": 0,
        _BEST: dict(best),
        _BUSY: True,
        _WORKLOAD: workload_to_json(workload),
        _BYTES: bytes_around,
    }


def undecided_operator_of(line: Provenance) -> UndecidedOperator | None:
    """Return the operator of a line `busy_members` has made, None for any other line."""
    if line.search.get(_BUSY) is not True:
        return None
    around, workload = line.search.get(_BYTES), line.search.get(_WORKLOAD)
    if not isinstance(workload, Mapping):  # a line of an older version
        return None
    with suppress(ValueError):
        return UndecidedOperator(
            workload=workload_from_json(workload),
            best=configuration_of(line.search.get(_BEST)),
            op_names=line.op_names,
            bytes_around=around if type(around) is int and around >= 0 else 0,
        )
    return None


def busy_search_of(line: Provenance) -> FailedSearch | None:
    """Return the search a busy machine has left without a decision, None for another line."""
    if line.search.get(_BUSY) is not True:
        return None
    with suppress(ValueError):
        best = configuration_of(line.search.get(_BEST))
        return FailedSearch(is_open=True, best=best, expected=math.inf, was_busy=True)
    return None


def failed_search_of(line: Provenance, threshold: float) -> FailedSearch:
    """Return the search without a gain that a side-car line describes.

    Args:
        line: Of the side-car.
        threshold: Speed-up that was asked for; a wide interval around it leaves open whether there
            is none, unless that has happened twice.
    """
    low, high = line.speedup_low, line.speedup_high
    if low is None or high is None or high <= threshold or is_narrow(low, high):
        return FailedSearch(is_open=False)
    if line.search.get(_AGAIN) is True:
        return FailedSearch(is_open=False)
    best: Configuration | None = None
    with suppress(ValueError):
        best = configuration_of(line.search.get(_BEST))
    return FailedSearch(is_open=True, best=best, expected=expected_gain(low, high, threshold))


def is_of_nothing(line: Provenance) -> bool:
    """True for a search whose candidates all failed: it says nothing of them.

    Lines that do not tell how many were measured have figures, unless none was.
    """
    trials, measured = line.search.get("trials"), line.search.get("measured")
    if not trials or line.speedup_low is not None:
        return False
    return not measured


def is_settled(verdict: Provenance) -> bool:
    """True if what a model made of a kernel was no matter of noise.

    The interval that decided is narrow, or lies further from 1, on the side of the verdict, than
    it is wide; or the gain is the one that an earlier model has shown.
    """
    if verdict.event is Event.KEPT and verdict.search.get(_AS_EXPECTED) is True:
        return True
    match verdict.search.get(_MODEL_SPEEDUP):
        case [float(low), float(high)] if 0 < low <= high:
            beyond = low - 1 if verdict.event is Event.KEPT else 1 - high
            return is_narrow(low, high) or beyond > high - low
        case None:
            return isinstance(verdict.search.get("reason"), str)
    return False


def is_narrow(low: float, high: float) -> bool:
    """True if an interval is narrow enough to be believed by later runs."""
    return high - low <= SETTLED_HALF_WIDTH * (low + high)


def note_of(key: str, verdict: BankNote, cluster: Mapping[str, Any]) -> Note:
    """Return a verdict about a workload as a line of the side-car has it.

    Args:
        key: Of the record.
        verdict: What happened.
        cluster: Further parts of the fingerprint.
    """
    return Note(
        key=key,
        event=verdict.event,
        op_names=verdict.op_names,
        estimate=verdict.estimate,
        **samples_of(verdict.measurement),
        cluster=cluster,
        search=verdict.search,
    )
