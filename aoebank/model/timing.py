"""Two measured times of a record: whether they can be compared, and whether one is longer.

    what is told of the machines    strict  alike  any   a diff asks: contradict?
    both, and the same              yes     yes    yes   no
    both, and they differ           no      no     yes   yes
    of one time alone               no      no     yes   no
    nothing                         no      yes    yes   no

Two times that can be compared differ beyond the noise band: the wider of what people set and
what the samples of either time scatter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from aoebank.model.digest import canonical_text
from aoebank.model.fingerprint import KERNEL_SOURCE
from aoebank.model.provenance import Event, Provenance
from aoebank.model.record import Record

# 38 % of 8,080 changes of the winner in a public history of tuned tables are re-measurements
# within this band, its own threshold. Source: AITER, --min_improvement_pct.
NOISE_RATIO = 0.03
MIN_SAMPLES = 3
_STORED = (Event.ADD, Event.UPDATE)  # the events that put a time into the bank
_BANK_ROUNDING = 1e-3  # banks keep times rounded
_SIGMA_PER_MAD = 1.4826  # for a normal distribution
_ROUNDING = 1e-9  # 10 us -> 10.3 us is a band of 3 %, whatever the logarithms round to


class Times(StrEnum):
    """Rule for comparing two measured times.

    STRICT: both fingerprints known and equal. ALIKE: that, or neither known. ANY: all.
    """

    STRICT = "strict"
    ALIKE = "alike"
    ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Circumstances of a measured time."""

    fingerprint: str | None = None  # Canonical text of the environment; None when nothing tells it
    spread_ratio: float = 0.0  # How far its samples scatter / their median; 0 if that is not known


def timing_of(entry: Provenance) -> Timing:
    """Return the conditions of the time in a side-car line."""
    return Timing(spread_ratio=spread_ratio(entry.tuned_us), fingerprint=fingerprint_of(entry))


def fingerprint_of(entry: Provenance) -> str | None:
    """Return the canonical text of the environment of a measurement, None if it is not told.

    What a kernel was made by is no part of it: times of two kernels compare.
    """
    facts = {name: value for name, value in entry.fingerprint.items() if name != KERNEL_SOURCE}
    return canonical_text(facts) if facts else None


def spread_ratio(samples_us: tuple[float, ...]) -> float:
    """Return the standard deviation of a sample / median, from the median deviation.

    A mean or a plain deviation would follow the one sample that met another process.
    """
    if len(samples_us) < MIN_SAMPLES:
        return 0.0
    from statistics import median  # slow to import, and a command line needs NOISE_RATIO alone

    middle = median(samples_us)
    deviations = (abs(sample_us - middle) for sample_us in samples_us)
    return _SIGMA_PER_MAD * median(deviations) / middle


def contradict(a: Timing, b: Timing) -> bool:
    """True if two times are known to come from different environments."""
    return None not in (a.fingerprint, b.fingerprint) and a.fingerprint != b.fingerprint


def are_comparable(a: Timing, b: Timing, times: Times) -> bool:
    """True if two times may be compared by one of the rules of the table above."""
    if times is Times.ANY:
        return True
    return a.fingerprint == b.fingerprint and not (times is Times.STRICT and a.fingerprint is None)


def noise_band(noise_ratio: float, a: Timing, b: Timing) -> float:
    """Return the ratio up to which two times are the same: 0.03 is from -3 % to +3 %."""
    return max(noise_ratio, a.spread_ratio, b.spread_ratio)


def is_beyond(a_us: float, b_us: float, band_ratio: float) -> bool:
    """True if `b_us` is longer than `a_us` by more than a band; exactly antisymmetric."""
    return math.log(b_us) - math.log(a_us) > math.log1p(band_ratio) + _ROUNDING


@dataclass(slots=True)
class Measurements:
    """Looks up how the times of one side's bank file were measured."""

    # Gives the side-car's entries; called when first needed, which is rarely.
    load: Callable[[], Iterable[Provenance]]
    _by_key: dict[str, list[Provenance]] | None = field(default=None, init=False)

    def find(self, record: Record) -> Timing:
        """Return the timing of a record.

        A side-car holds the history of its key, after a merge that of both sides. The entry
        meant is the last one with this time; without it all of them must agree.
        """
        if self._by_key is None:
            self._by_key = {}
            for entry in self.load():
                if entry.event in _STORED:
                    self._by_key.setdefault(entry.key, []).append(entry)
        entries = self._by_key.get(record.key, [])
        meant = [entry for entry in entries if _is_time_of(entry, record)]
        if meant:
            return timing_of(max(meant, key=lambda entry: entry.time))
        texts = {fingerprint_of(entry) for entry in entries}
        return Timing(fingerprint=texts.pop() if len(texts) == 1 else None)


def _is_time_of(entry: Provenance, record: Record) -> bool:
    if record.cost_us is None or not entry.tuned_us:
        return False
    from statistics import median

    return math.isclose(
        median(entry.tuned_us), record.cost_us, rel_tol=_BANK_ROUNDING, abs_tol=_BANK_ROUNDING
    )
