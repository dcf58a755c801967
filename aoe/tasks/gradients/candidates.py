"""Groupings gradient tuning measures: computed ones, and the sizes people try by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from aoe.bank.records.gradient import StoredGradients
from aoe.gradients.choose import Origin, choose_candidates
from aoe.gradients.compression import Compression
from aoe.gradients.cost import CostModel
from aoe.gradients.segmentation import Segmentation, finish_us, from_bucket_caps
from aoe.gradients.trace import GradientTrace
from aoe.measurement import Measurement, SpeedupEstimate
from aoe.results.gradients import CandidateReport

_COMPUTED = 6
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GdatCandidate:
    """A grouping to be measured."""

    name: str  # For people
    segmentation: Segmentation  # The grouping
    origin: Origin | None = None  # Why it was computed, None for others
    inflation: float = 1.0  # Factor on the cost it is optimal for


@dataclass(frozen=True, slots=True, kw_only=True)
class GdatTrial:
    """A grouping and its training steps beside those of the default."""

    candidate: GdatCandidate  # The grouping
    measurement: Measurement  # Its steps and the default's, pair by pair
    estimate: SpeedupEstimate  # Speed-up of a training step over the default's


def gdat_candidates(
    trace: GradientTrace,
    cost: CostModel,
    default: Segmentation | None,
    *,
    stored: StoredGradients | None,
    grid_mib: Sequence[float],
    compression: Compression | None = None,
) -> tuple[GdatCandidate, ...]:
    """Return everything to be measured, each grouping once, computed ones and sizes in turn.

    Time may run out: by then something of both kinds has been measured, the best guesses first.

    Args:
        trace: When gradients become ready.
        cost: Of all-reduce in this cluster.
        default: What the others are measured against; None if that is no segmentation.
        stored: What the bank has; its grouping is tried if it is about this order of gradients.
        grid_mib: Bucket sizes.
        compression: What groupings other than the default are summed in: its groups are one, then.
    """
    found: list[GdatCandidate] = []
    if compression is not None and default is not None:
        found.append(GdatCandidate(name="the same groups", segmentation=default))
    seen: set[Segmentation | None] = {default}
    sizes = sorted(
        _grid(trace, grid_mib), key=lambda size: finish_us(trace, size.segmentation, cost)
    )
    turns = zip_longest(_computed(trace, cost, default), sizes)
    for candidate in (*_known(stored, trace), *filter(None, chain.from_iterable(turns))):
        if candidate.segmentation not in seen:
            seen.add(candidate.segmentation)
            found.append(candidate)
    return tuple(found)


def most_candidates(
    sizes_bytes: Sequence[int], grid_mib: Sequence[float], *, is_known: bool
) -> int:
    """Return the most groupings `gdat_candidates` gives, in whatever order gradients get ready.

    That is without compression, whose first candidate is one more.

    Args:
        sizes_bytes: Of the gradients, one or more.
        grid_mib: Bucket sizes; those that hold all gradients are one grouping.
        is_known: True if the bank has a grouping.
    """
    caps = {min(_cap_bytes(mib), sum(sizes_bytes)) for mib in grid_mib}
    others = (1 << (len(sizes_bytes) - 1)) - 1  # a border behind each gradient or not; the default
    return min(others, is_known + _COMPUTED + len(caps))


def report_trial(trial: GdatTrial, trace: GradientTrace, cost: CostModel) -> CandidateReport:
    """Return the row of a trial in the result file."""
    segmentation = trial.candidate.segmentation
    return CandidateReport(
        name=trial.candidate.name,
        segments=len(segmentation),
        predicted_us=finish_us(trace, segmentation, cost),
        estimate=trial.estimate,
    )


def _known(stored: StoredGradients | None, trace: GradientTrace) -> Iterator[GdatCandidate]:
    if stored is None or stored.segmentation is None or stored.trace.names != trace.names:
        return
    yield GdatCandidate(name="from the bank", segmentation=stored.segmentation)


def _computed(
    trace: GradientTrace, cost: CostModel, default: Segmentation | None
) -> Iterator[GdatCandidate]:
    excluded = () if default is None else (default,)
    for chosen in choose_candidates(trace, cost, limit=_COMPUTED, exclude=excluded):
        inflated = f" x{chosen.inflation:g}" if chosen.inflation != 1 else ""
        yield GdatCandidate(
            name=f"{chosen.origin.value}{inflated}",
            segmentation=chosen.segmentation,
            origin=chosen.origin,
            inflation=chosen.inflation,
        )


def _grid(trace: GradientTrace, grid_mib: Sequence[float]) -> Iterator[GdatCandidate]:
    for mib in grid_mib:
        cap = _cap_bytes(mib)
        yield GdatCandidate(
            name=f"bucket_cap_mb={mib:g}",
            segmentation=from_bucket_caps(trace.sizes_bytes, cap, cap),
        )


def _cap_bytes(mib: float) -> int:
    return int(mib * _MIB)
