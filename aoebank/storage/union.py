"""Several custom banks looked up as one; one of them is written.

The files of all members have the same places below their roots, so a caller asks for the file of
the bank that is written and gets the record, and the lines about it, of the member that answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from aoebank.errors import RecordError
from aoebank.formats.provenance import provenance_path
from aoebank.model.provenance import Event, Provenance
from aoebank.model.record import Record
from aoebank.model.resolution import UnionRule
from aoebank.storage.bank import Bank, Signature, signature_of

_CHANGES = (Event.ADD, Event.UPDATE)
Fits = Callable[[Record, Sequence[Provenance], Path], bool]
"""Tells from a record, the lines about it and the root of its bank whether it may be used here."""


_Answer: TypeAlias = "tuple[Bank | None, Path, Record]"  # None stands for the bank itself
_State: TypeAlias = "tuple[Record, Signature | None]"  # a record, and what its side-car looks like


class UnionBank(Bank):
    """A bank that is written, and others that are looked up with it.

    Args:
        root: Of the bank that is written.
        roots: Of all members in the order of look-up, `root` among them; none for `root` alone.
        union: Which member answers.

    Attributes:
        fits: A record that does not fit leaves the answer to the members behind. Where none fits,
            the first record is the answer, so that whoever asks can tell why it is of no use.
    """

    def __init__(
        self, root: Path, roots: Sequence[Path] = (), union: UnionRule = UnionRule.FIRST
    ) -> None:
        super().__init__(root)
        self.fits: Fits = lambda record, lines, root: True
        self._members = [None if one == root else Bank(one) for one in roots]
        self._union = union
        self._places: dict[Path, Sequence[tuple[Bank | None, Path]]] = {}
        self._written: set[tuple[Path, str]] = set()
        self._last: dict[tuple[Path, str], _Answer | None] = {}
        self._known: dict[tuple[Path, str], tuple[_State, bool]] = {}

    def find(self, file: Path, key: str) -> Record | None:
        """Return the record of the member that answers; see `Bank.find`."""
        if len(self._members) < 2:
            return super().find(file, key)
        found = self._last[file, key] = self._answer(file, key)
        return None if found is None else found[2]

    def iter_records(self, file: Path) -> Iterator[Record]:
        """Yield the records of all members, of each key the one that answers."""
        if len(self._members) < 2:
            yield from super().iter_records(file)
            return
        keys: dict[str, None] = {}
        for bank, place in self._places_of(file):
            records = super().iter_records(place) if bank is None else bank.iter_records(place)
            keys |= dict.fromkeys(record.key for record in records)
        for key in keys:
            record = self.find(file, key)
            if record is not None:
                yield record

    def iter_provenance(self, file: Path, key: str | None = None) -> Iterator[Provenance]:
        """Yield the lines about the record that answers, then what is noted of it here."""
        own = [*super().iter_provenance(file, key)]
        if len(self._members) < 2:
            yield from own
        elif key is None:
            for bank, place in self._places_of(file):
                yield from bank.iter_provenance(place) if bank is not None else ()
            yield from own
        else:
            # a look-up asks for the record first, and several times for the lines about it
            found = self._last[file, key] if (file, key) in self._last else self._answer(file, key)
            if found is not None and found[0] is not None:
                yield from found[0].iter_provenance(found[1], key)
                # lines about another record of this key, which the one that answers hides
                own = [] if any(line.event in _CHANGES for line in own) else own
            yield from own

    def root_of(self, file: Path, key: str) -> Path:
        """Return the root of the member that answers; that of this bank where none does."""
        if len(self._members) < 2:
            return self.root
        found = self._last[file, key] if (file, key) in self._last else self._answer(file, key)
        return self.root if found is None or found[0] is None else found[0].root

    def put(self, file: Path, records: Iterable[Record], lines: Iterable[Provenance] = ()) -> None:
        """Store records in the bank that is written; they answer from now on."""
        records = tuple(records)
        super().put(file, records, lines)
        for record in records:
            self._written.add((file, record.key))
            self._last.pop((file, record.key), None)

    def _answer(self, file: Path, key: str) -> _Answer | None:
        """Return the member that answers, with its file and its record; None for this bank."""
        first = best = None
        is_new = (file, key) in self._written  # what a run has found counts in that run
        for bank, place in [(None, file)] if is_new else self._places_of(file):
            record = self._record(bank, place, key)
            if record is None:
                continue
            found = (bank, place, record)
            first = first or found
            if not self._fits(bank, place, record):
                continue
            if best is None or _time_us(record) < _time_us(best[2]):
                best = found
            if self._union is UnionRule.FIRST:
                break
        return best or first

    def _fits(self, bank: Bank | None, place: Path, record: Record) -> bool:
        """Ask `fits`, once for a record as long as nobody writes a line about it."""
        state = (record, signature_of(provenance_path(place)))
        known = self._known.get((place, record.key))
        if known is None or known[0][0] is not record or known[0][1] != state[1]:
            member = self if bank is None else bank
            noted = super().iter_provenance if bank is None else bank.iter_provenance
            fits = self.fits(record, [*noted(place, record.key)], member.root)
            known = self._known[place, record.key] = (state, fits)
        return known[1]

    def _record(self, bank: Bank | None, place: Path, key: str) -> Record | None:
        if bank is None:
            return super().find(place, key)
        try:
            return bank.find(place, key)
        except RecordError:  # nobody can read it: the members behind are asked
            return None

    def _places_of(self, file: Path) -> Sequence[tuple[Bank | None, Path]]:
        """Return the members with their files in the order of look-up; None is this bank."""
        if file not in self._places:
            is_ours = self._tree_of(file) is not None  # else it is a file of another bank
            self._places[file] = [
                (bank, file if bank is None else self.mirrored(file, bank))
                for bank in (self._members if is_ours else [None])
            ]
        return self._places[file]


def _time_us(record: Record) -> float:
    return math.inf if record.cost_us is None else record.cost_us
