"""What a side-car knows about the time of a record: the machine, and how it scattered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isclose
from statistics import median

from aoebank.formats.provenance import ProvenanceLog
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
        """Return what is known about the time of a record.

        A side-car holds the history of its key, after a merge that of both sides. The entry
        meant is the last one with this time; without it all of them must agree.
        """
        entries = self._entries(record.key)
        meant = [entry for entry in entries if _is_time_of(entry, record)]
        if meant:
            return timing_of(max(meant, key=lambda entry: entry.time))
        texts = {fingerprint_of(entry) for entry in entries}
        return Timing(fingerprint=texts.pop() if len(texts) == 1 else None)

    def _entries(self, key: str) -> list[Provenance]:
        if self._by_key is None:
            self._by_key = {}
            for entry in self.load().entries:
                if entry.event in _STORED:
                    self._by_key.setdefault(entry.key, []).append(entry)
        return self._by_key.get(key, [])


def _is_time_of(entry: Provenance, record: Record) -> bool:
    if record.cost_us is None or not entry.tuned_us:
        return False
    return isclose(median(entry.tuned_us), record.cost_us, rel_tol=_ROUNDING, abs_tol=_ROUNDING)
