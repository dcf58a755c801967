"""What decides about the keys of a file besides its records: rules, a person, times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isclose
from statistics import median

from aoebank.formats.provenance import ProvenanceLog
from aoebank.merging.decisions import MergeRules
from aoebank.merging.exclusions import Exclusions
from aoebank.merging.saved import PersonalVerdict
from aoebank.model.provenance import Event, Provenance
from aoebank.model.record import Record
from aoebank.model.timing import Timing, fingerprint_of, timing_of

_STORED = (Event.ADD, Event.UPDATE)  # the events that put a time into the bank
_ROUNDING = 1e-3  # banks keep times rounded


@dataclass(slots=True)
class Measurements:
    """Looks up how the times of one side's bank file were measured.

    Attributes:
        load: Gives the side-car; called when first needed, which is rarely.
    """

    load: Callable[[], ProvenanceLog]
    _by_key: dict[str, list[Provenance]] | None = field(default=None, init=False)

    def find(self, record: Record) -> Timing:
        """Return the timing of a record.

        A side-car holds the history of its key, after a merge that of both sides. The entry
        meant is the last one with this time; without it all of them must agree.
        """
        if self._by_key is None:
            self._by_key = {}
            for entry in self.load().entries:
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
    return isclose(median(entry.tuned_us), record.cost_us, rel_tol=_ROUNDING, abs_tol=_ROUNDING)


def _no_log() -> ProvenanceLog:
    return ProvenanceLog(entries=(), findings=())


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeContext:
    """What decides about the keys of one file, besides the records themselves.

    Attributes:
        is_two_way: There is no base at all: an absent record was never there.
        exclusions: Records that stay out.
        verdicts: What a person decided, by key.
        times_of_ours: How ours was measured; asked only if two times are compared.
        takes_base: Whether a conflict ends in the record of the base; else in that of ours.
        verbose: Whether every decision becomes a value; else conflicts do, and what keeps a
            record out, and the rest is counted.
        tells_reasons: Whether the plan has the reason of each key, for merges of several steps.
    """

    rules: MergeRules = field(default_factory=MergeRules)
    is_two_way: bool = False
    exclusions: Exclusions = field(default_factory=Exclusions)
    verdicts: Mapping[str, PersonalVerdict] = field(default_factory=dict)
    times_of_ours: Measurements = field(default_factory=lambda: Measurements(_no_log))
    times_of_theirs: Measurements = field(default_factory=lambda: Measurements(_no_log))
    takes_base: bool = False
    verbose: bool = False
    tells_reasons: bool = False
