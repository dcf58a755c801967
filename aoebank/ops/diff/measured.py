"""What the side-cars of two files say about their times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from aoebank.formats.provenance import ProvenanceLog
from aoebank.model.digest import canonical_text
from aoebank.model.provenance import Event, Provenance
from aoebank.ops.diff.change import Verdict, is_beyond

MIN_SAMPLES = 3
_SIGMA_PER_MAD = 1.4826  # for a normal distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """How the time of one record was measured.

    Attributes:
        fingerprint: Canonical text of the environment; empty if unknown.
        spread_ratio: Standard deviation of a sample / median, estimated robustly; 0 if unknown.
        uses: Pairs of model and node the record was tuned for.
    """

    fingerprint: str = ""
    spread_ratio: float = 0.0
    uses: frozenset[tuple[str, str]] = frozenset()


_UNKNOWN = Measured()


@dataclass(frozen=True)
class MeasuredPair:
    """The side-cars of a file in A and in B, read when the first time has to be judged.

    Attributes:
        weights: Stands in for what the side-cars say about use.
    """

    load_a: Callable[[], ProvenanceLog]
    load_b: Callable[[], ProvenanceLog]
    noise_ratio: float
    weights: Mapping[str, float] | None = None

    @cached_property
    def _a(self) -> Mapping[str, Measured]:
        return measured_by_key(self.load_a())

    @cached_property
    def _b(self) -> Mapping[str, Measured]:
        return measured_by_key(self.load_b())

    def judge(
        self, key: str, cost_a_us: float | None, cost_b_us: float | None
    ) -> tuple[Verdict, float]:
        """Return what two times say, and the noise band that was used."""
        if cost_a_us is None or cost_b_us is None:
            return Verdict.UNKNOWN, 0.0
        a, b = self._a.get(key, _UNKNOWN), self._b.get(key, _UNKNOWN)
        band = max(self.noise_ratio, a.spread_ratio, b.spread_ratio)
        if a.fingerprint and b.fingerprint and a.fingerprint != b.fingerprint:
            return Verdict.NOT_COMPARABLE, band
        if is_beyond(cost_a_us, cost_b_us, band):
            return Verdict.SLOWER, band
        if is_beyond(cost_b_us, cost_a_us, band):
            return Verdict.FASTER, band
        return Verdict.WITHIN_NOISE, band

    def weight(self, key: str) -> float:
        """Return how often a record is used; 1 where nobody knows."""
        if self.weights is not None:
            return self.weights.get(key, 0.0)
        uses = self._b.get(key, _UNKNOWN).uses or self._a.get(key, _UNKNOWN).uses
        return float(len(uses) or 1)


def measured_by_key(log: ProvenanceLog) -> dict[str, Measured]:
    """Return what the newest entries of a side-car say about each key.

    Only an entry that stored a record tells how the stored time was measured.
    """
    stored: dict[str, Provenance] = {}
    uses: dict[str, set[tuple[str, str]]] = {}
    for entry in log.entries:
        if entry.event in (Event.ADD, Event.UPDATE):
            stored[entry.key] = entry
        model = str(entry.model.get("sha256") or entry.model.get("name") or "")
        uses.setdefault(entry.key, set()).update((model, name) for name in entry.op_names)
    return {key: _measured(stored.get(key), frozenset(names)) for key, names in uses.items()}


def spread_ratio(samples_us: tuple[float, ...]) -> float:
    """Return the standard deviation of a sample / median, from the median deviation.

    A mean or a plain deviation would follow the one sample that met another process.
    """
    if len(samples_us) < MIN_SAMPLES:
        return 0.0
    middle = median(samples_us)
    return _SIGMA_PER_MAD * median(abs(each - middle) for each in samples_us) / middle


def _measured(entry: Provenance | None, uses: frozenset[tuple[str, str]]) -> Measured:
    if entry is None:
        return Measured(uses=uses)
    return Measured(
        fingerprint=canonical_text(entry.fingerprint) if entry.fingerprint else "",
        spread_ratio=spread_ratio(entry.tuned_us),
        uses=uses,
    )
