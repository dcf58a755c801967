"""What the side-cars of two files say about their times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from aoebank.diffing.result import TimeVerdict
from aoebank.formats.provenance import ProvenanceLog
from aoebank.model.provenance import Event
from aoebank.model.timing import Timing, contradict, is_beyond, noise_band, timing_of

_UNKNOWN = Timing()
_NOBODY: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class SideCarFacts:
    """What the newest entries of a side-car say about each key.

    Attributes:
        timings: Of the stored times: only an entry that stored a record tells of it.
        uses: Pairs of model and node a record was tuned for.
    """

    timings: Mapping[str, Timing]
    uses: Mapping[str, frozenset[tuple[str, str]]]


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
    def _a(self) -> SideCarFacts:
        return facts_of(self.load_a())

    @cached_property
    def _b(self) -> SideCarFacts:
        return facts_of(self.load_b())

    def judge(
        self, key: str, cost_a_us: float | None, cost_b_us: float | None
    ) -> tuple[TimeVerdict, float]:
        """Return the verdict on two times, and the noise band that was used."""
        if cost_a_us is None or cost_b_us is None:
            return TimeVerdict.UNKNOWN, 0.0
        a, b = self._a.timings.get(key, _UNKNOWN), self._b.timings.get(key, _UNKNOWN)
        band = noise_band(self.noise_ratio, a, b)
        if contradict(a, b):
            return TimeVerdict.NOT_COMPARABLE, band
        if is_beyond(cost_a_us, cost_b_us, band):
            return TimeVerdict.SLOWER, band
        if is_beyond(cost_b_us, cost_a_us, band):
            return TimeVerdict.FASTER, band
        return TimeVerdict.WITHIN_NOISE, band

    def weight(self, key: str) -> float:
        """Return the number of uses of a record; 1 where it is unknown."""
        if self.weights is not None:
            return self.weights.get(key, 0.0)
        uses = self._b.uses.get(key, _NOBODY) or self._a.uses.get(key, _NOBODY)
        return float(len(uses) or 1)


def facts_of(log: ProvenanceLog) -> SideCarFacts:
    """Return the times and uses of records in a side-car."""
    stored = {entry.key: entry for entry in log.entries if entry.event in (Event.ADD, Event.UPDATE)}
    uses: dict[str, set[tuple[str, str]]] = {}
    for entry in log.entries:
        model = str(entry.model.get("sha256") or entry.model.get("name") or "")
        uses.setdefault(entry.key, set()).update((model, name) for name in entry.op_names)
    return SideCarFacts(
        timings={key: timing_of(entry) for key, entry in stored.items()},
        uses={key: frozenset(names) for key, names in uses.items()},
    )
