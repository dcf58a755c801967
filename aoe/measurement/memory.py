"""Memory of sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import fmean, median


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Memory that opening a session and running it once takes."""

    # What stays: its weights, mapped ones too, what is packed of them, and what it keeps between
    # runs.
    resident_bytes: float
    # The most it took meanwhile, None where the system does not say.
    peak_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMemory:
    """The memory of a session of the untuned model and of one of the tuned model."""

    baseline: MemoryUse
    tuned: MemoryUse


def mean_memory(orders: Iterable[ModelMemory | None]) -> ModelMemory | None:
    """Return the mean of both orders of loading, None where one of them is not known.

    A session finds memory at hand that another one has left, and code that it has loaded.
    """
    return _joined(orders, fmean)


def median_memory(processes: Iterable[ModelMemory | None]) -> ModelMemory | None:
    """Return the median over processes, None where one of them does not know."""
    return _joined(processes, median)


def _joined(
    found: Iterable[ModelMemory | None], middle: Callable[[list[float]], float]
) -> ModelMemory | None:
    known: list[ModelMemory] = []
    for memory in found:
        if memory is None:
            return None
        known.append(memory)
    if not known:
        return None
    return ModelMemory(
        baseline=_middle([memory.baseline for memory in known], middle),
        tuned=_middle([memory.tuned for memory in known], middle),
    )


def _middle(uses: list[MemoryUse], middle: Callable[[list[float]], float]) -> MemoryUse:
    peaks = [use.peak_bytes for use in uses if use.peak_bytes is not None]
    return MemoryUse(
        resident_bytes=middle([use.resident_bytes for use in uses]),
        peak_bytes=middle(peaks) if len(peaks) == len(uses) else None,
    )
