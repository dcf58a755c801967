"""A bank of a long run: what it can no longer take goes into a second one, and is found there.

A disk gets full, a file system read-only, a folder loses its permissions. Hours of measuring must
not end with that: from the first write that fails on, all writes go into a bank beside the results.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from aoebank.errors import BankPathError, shell_word
from aoebank.model.provenance import Provenance
from aoebank.model.record import Record
from aoebank.model.resolution import UnionRule
from aoebank.storage.bank import Bank
from aoebank.storage.union import UnionBank


class SpareBank:
    """Takes what the bank of a run cannot; all banks of the run share it.

    Attributes:
        failure: The first write that failed, with the place of the records and the way out; None
            as long as the bank of the run takes everything.
    """

    def __init__(self) -> None:
        self.failure: BankPathError | None = None
        self._bank: Bank | None = None
        self._keys: dict[Path, set[str]] = defaultdict(set)
        self._earlier_lines: dict[Path, int] = {}

    @property
    def bank(self) -> Bank | None:
        """The second bank, None before anything failed."""
        return self._bank

    def open(self, error: BankPathError, own: Bank, root: Path) -> Bank:
        """Send all later writes to a bank.

        Args:
            error: Why the bank of the run cannot be written.
            own: That bank.
            root: Of the second one, made if need be; what it has already is not looked up.
        """
        self.failure = BankPathError(
            f"{error.problem}; what the run found from then on is in {root}",
            variable=error.variable,
            path=error.path,
            got=error.got,
            expected=error.expected,
            hint=f"{error.hint or 'make the bank writable again'}, then: aoebank merge "
            f"{shell_word(own.root)} {shell_word(root)} -o {shell_word(own.root)}",
        )
        self._bank = Bank(root)
        return self._bank

    def close(self) -> None:
        """Forget the second bank, which takes nothing either."""
        self._bank = self.failure = None

    def put(self, file: Path, records: Iterable[Record], lines: Iterable[Provenance]) -> None:
        """Store records and lines in the second bank, in which `file` lies."""
        assert self._bank is not None
        records, lines = tuple(records), tuple(lines)
        if file not in self._earlier_lines:
            self._earlier_lines[file] = len([*self._bank.iter_provenance(file)])
        self._bank.put(file, records, lines)
        self._keys[file].update(record.key for record in records)

    def has(self, file: Path, key: str) -> bool:
        """True if the run has put a record of this key here."""
        return key in self._keys[file]

    def lines(self, file: Path, key: str | None) -> Iterator[Provenance]:
        """Yield the lines the run has put here."""
        if self._bank is None or file not in self._earlier_lines:
            return
        for line in [*self._bank.iter_provenance(file)][self._earlier_lines[file] :]:
            if key is None or line.key == key:
                yield line


class BankWithSpare(UnionBank):
    """A bank that can fail in the middle of a run without losing what the run finds.

    Args:
        root: The directory.
        spare: Shared by all banks of the run.
        place: Root of the second bank, should it be needed.
        tell: Is told of the failure, in words.
        roots: Of all banks that are looked up, as `UnionBank` takes them; so is `union`.
    """

    def __init__(
        self,
        root: Path,
        spare: SpareBank,
        place: Path,
        tell: Callable[[str], None],
        roots: Sequence[Path] = (),
        union: UnionRule = UnionRule.FIRST,
    ) -> None:
        super().__init__(root, roots, union)
        self._spare = spare
        self._place = place
        self._tell = tell

    def find(self, file: Path, key: str) -> Record | None:
        """Return the record of the run, or that of the bank; see `Bank.find`."""
        second = self._second(file)
        if second is not None and self._spare.has(second[1], key):
            return second[0].find(second[1], key)
        return super().find(file, key)

    def iter_records(self, file: Path) -> Iterator[Record]:
        """Yield the records of the bank the run has not replaced, then the records of the run."""
        second = self._second(file)
        if second is None:
            yield from super().iter_records(file)
            return
        bank, place = second
        for record in super().iter_records(file):
            if not self._spare.has(place, record.key):
                yield record
        for record in bank.iter_records(place):
            if self._spare.has(place, record.key):
                yield record

    def iter_provenance(self, file: Path, key: str | None = None) -> Iterator[Provenance]:
        """Yield the lines of the bank, then the lines of the run."""
        yield from super().iter_provenance(file, key)
        second = self._second(file)
        if second is not None:
            yield from self._spare.lines(second[1], key)

    def put(self, file: Path, records: Iterable[Record], lines: Iterable[Provenance] = ()) -> None:
        """Store records and lines in the bank, or in the second one; see `Bank.put`.

        Raises:
            BankPathError: neither takes them.
        """
        records, lines = tuple(records), tuple(lines)
        second = self._second(file)
        if second is not None:
            self._spare.put(second[1], records, lines)
            return
        try:
            super().put(file, records, lines)
        except BankPathError as error:
            if self._tree_of(file) is None:
                raise
            self._begin_second(error, file, records, lines)

    def _begin_second(
        self,
        error: BankPathError,
        file: Path,
        records: Sequence[Record],
        lines: Sequence[Provenance],
    ) -> None:
        second = self._spare.open(error, self, self._place)
        try:
            self._spare.put(self.mirrored(file, second), records, lines)
        except BankPathError as second_error:
            self._spare.close()
            error.hint = f"no other place takes the records: {second_error.headline}"
            raise error from second_error
        self._tell(f"{error.headline}; records go to {self._place} from now on")

    def append_provenance(self, file: Path, entries: Iterable[Provenance]) -> None:
        """Add lines to the side-car in the bank, or in the second one."""
        self.put(file, (), entries)

    def _second(self, file: Path) -> tuple[Bank, Path] | None:
        """Return the second bank, once it is used, and the place of a file in it."""
        bank = self._spare.bank
        return None if bank is None else (bank, self.mirrored(file, bank))
