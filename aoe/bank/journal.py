"""Journal of a run's bank: its writer, its notes, the records in quarantine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from aoe.measurement import Clock, Measurement, RoundingSteps, SpeedupEstimate
from aoe.target import Target
from aoebank import (
    Bank,
    Drift,
    Event,
    Provenance,
    Record,
    UnionBank,
    compare_fingerprints,
    last_measured,
    load_quarantine,
    old_soc_versions,
    present_facts,
)

ENGINE = "aoe"
KERNEL_SOURCE = "kernel_source"
"""Member of a fingerprint: digest of what turns a strategy into code, see `aoe.bank.sources`."""
MANNERS = ("streams", "shape_range")
"""Members of a line's model: streams beside each other, and the range it was tuned for."""
CHANGES = (Event.ADD, Event.UPDATE)
"""Events after which a record is another one."""


_ONE_STEP_OFF = "one_step_off"
"""Member of a line's `search`: integers that are one step off, and how many were compared."""
VERIFYING = "verify"
"""Method in a line that says what a record was worth when it alone was measured again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A line of the side-car, without what all lines of a run share."""

    key: str  # Record key
    event: Event  # What happened
    op_names: tuple[str, ...] = ()  # Nodes or parameters of the model
    estimate: SpeedupEstimate | None = None  # Speed-up with its interval, if anything was measured
    baseline_us: Sequence[float] = ()  # Samples of the default, microseconds
    tuned_us: Sequence[float] = ()  # Samples of the strategy, pair by pair
    # Which time the samples are of; the line names it unless it is wall time.
    clock: Clock = Clock.WALL
    rounding: RoundingSteps | None = None  # Of results that are integers of 8 bits
    # Surroundings of this measurement beyond the run's fingerprint.
    cluster: Mapping[str, Any] = field(default_factory=dict)
    # Method, seed, trials and whatever else is worth keeping, JSON values.
    search: Mapping[str, Any] = field(default_factory=dict)


def samples_of(measurement: Measurement | None) -> Mapping[str, Any]:
    """Return the arguments of a `Note` that tell the samples of a measurement, if there is one."""
    if measurement is None:
        return {}
    samples = measurement.decisive
    return {
        "baseline_us": samples.baseline_us,
        "tuned_us": samples.tuned_us,
        "clock": measurement.clock,
        "rounding": measurement.rounding,
    }


def rounding_of(entry: Provenance) -> RoundingSteps | None:
    """Return the count of integers one step off in a line, None where it has none."""
    match entry.search.get(_ONE_STEP_OFF):
        case [int(off), int(of)] if 0 <= off <= of:
            return RoundingSteps(off=off, of=of)
    return None


class BankJournal:
    """One run's hand in the banks below a root: its side-cars and its quarantine.

    Args:
        root: Bank root; or the bank, where that is more than its root.
        soc_version: Target whose records are used.
        fingerprint: Environment of this run's measurements, see `machine_fingerprint`.
        model: Name of the model being tuned, and what else identifies it.
        engine_version: Written into records and side-cars.
        clock: Returns the present time in UTC.
    """

    def __init__(
        self,
        root: Path | Bank,
        soc_version: str,
        *,
        fingerprint: Mapping[str, Any],
        model: Mapping[str, str],
        engine_version: str,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.bank = root if isinstance(root, Bank) else Bank(root)
        # Digest of what kernels of a family are made by; a bank of operators says it.
        self.source_of: Callable[[str], str | None] = lambda op_type: None
        if isinstance(self.bank, UnionBank):
            self.bank.fits = self.fits
        self.soc_version = soc_version
        self.fingerprint = dict(fingerprint)
        self.model = dict(model)
        self.engine = f"{ENGINE} {engine_version}"
        self.clock = clock

    def fits(self, record: Record, lines: Sequence[Provenance], root: Path) -> bool:
        """True if a record of one of several banks is neither stale nor in its quarantine."""
        source = self.source_of(record.op_type or "")
        is_stale = self.drift_of(last_measured(lines), source).is_stale
        return not is_stale and self.quarantine_reason(record, root=root) is None

    def is_of_this_model(self, entry: Provenance) -> bool:
        """True if a line is about the model of this run, judged as this run judges it."""
        is_same = entry.model.get("sha256") == self.model.get("sha256")
        return is_same and self.is_validated_alike(entry)

    @cached_property
    def knows_model(self) -> bool:
        """True if the bank had a verdict on this model, judged alike, when that was first asked."""
        folder = self.bank.root / self.soc_version
        files = sorted(folder.rglob("*.json")) if folder.is_dir() else []
        return any(
            entry.event in (Event.KEPT, Event.DROPPED) and self.is_of_this_model(entry)
            for file in files
            for entry in self.bank.iter_provenance(file)
        )

    def is_validated_alike(self, entry: Provenance) -> bool:
        """True if a line is about a model validated as that of this run is, see `MANNERS`.

        What helps one stream that has all caches may not help several beside each other, and what
        helps one shape may not help a range of them.
        """
        return all(entry.model.get(name) == self.model.get(name) for name in MANNERS)

    def quarantine_reason(
        self, record: Record, soc_version: str | None = None, *, root: Path | None = None
    ) -> str | None:
        """Return why nobody should use a record, None if everybody may.

        Args:
            record: Whichever target it was made for.
            soc_version: Target to ask for, if it is not the one of this run.
            root: Of the bank whose quarantine counts, if it is not the one that is written.

        Raises:
            BankFormatError: the quarantine is corrupt.
        """
        record = replace(record, soc_version=soc_version or self.soc_version)
        quarantine = load_quarantine(root or self.bank.root)
        entry = quarantine.find(record, today=self.clock().date())
        if entry is None:
            return None
        return f"in quarantine: {entry.reason}" + (f" ({entry.ticket})" if entry.ticket else "")

    def stored_quarantine_reason(self, file: Path, record: Record) -> str | None:
        """Return the reason of the quarantine a stored record is in, None if it is in none.

        Of several banks the quarantine of the one that answers counts: see `quarantine_reason`.
        """
        return self.quarantine_reason(record, root=self.root_of(file, record.key))

    def root_of(self, file: Path, key: str) -> Path:
        """Return the root of the bank whose record answers, the one of this run where none does."""
        return self.bank.root_of(file, key) if isinstance(self.bank, UnionBank) else self.bank.root

    def entries(
        self, file: Path, key: str, *, where: Mapping[str, Any] | None = None
    ) -> Iterator[Provenance]:
        """Yield the side-car lines of a record, oldest first.

        Args:
            file: Bank file.
            key: Record key.
            where: Parts of the fingerprint that have to agree.
        """
        for entry in self.bank.iter_provenance(file, key):
            if all(entry.fingerprint.get(name) == v for name, v in (where or {}).items()):
                yield entry

    def last_change(self, file: Path, key: str) -> Provenance | None:
        """Return the side-car line of the last write of a record."""
        last = None
        for entry in self.entries(file, key):
            if entry.event in CHANGES:
                last = entry
        return last

    def last_figure(self, file: Path, key: str) -> Provenance | None:
        """Return the side-car line of the last measurement of a record's present strategy."""
        last = None
        for entry in self.entries(file, key):
            is_again = entry.event is Event.RESERVED and entry.search.get("method") == VERIFYING
            if entry.event in CHANGES or (is_again and last is not None):
                last = entry
        return last

    def lines_that_count(self, file: Path, key: str) -> tuple[Provenance, ...]:
        """Return the newest line of each kind about the present state of a record, in order."""
        last: dict[Event, Provenance] = {}
        for line in self.entries(file, key):
            if line.event in CHANGES:
                last.clear()
            last.pop(line.event, None)
            last[line.event] = line
        return tuple(last.values())

    def drift(self, file: Path, key: str, source: str | None) -> Drift:
        """Return the changes of the environment since a record was last measured.

        Args:
            file: Bank file.
            key: Record key.
            source: Digest of the sources its strategy is turned into code by, None if unknown.
        """
        return self.drift_of(last_measured(self.entries(file, key)), source)

    def drift_of(self, entry: Provenance | None, source: str | None) -> Drift:
        """Return the changes of the environment since a side-car line; None stands for no line."""
        now = {**self.fingerprint, "soc_version": self.soc_version}
        then = dict(entry.fingerprint) if entry is not None else {}
        if then.get("soc_version") in old_soc_versions(self.soc_version):
            then["soc_version"] = self.soc_version
        return compare_fingerprints(then, now | ({KERNEL_SOURCE: source} if source else {}))

    def last_failure(self, file: Path, key: str, *, where: Mapping[str, Any]) -> Provenance | None:
        """Return the last search there, if it found nothing better than the default."""
        last = None
        for entry in self.entries(file, key, where=where):
            if entry.event in (Event.UNSATISFIED, *CHANGES):
                last = entry
        return last if last is not None and last.event is Event.UNSATISFIED else None

    def append(self, file: Path, notes: Sequence[Note]) -> None:
        """Append lines to the side-car of a bank file; no record is touched."""
        self.bank.append_provenance(file, self._entries(notes))

    def put(self, file: Path, record: Record, notes: Sequence[Note]) -> None:
        """Store a record and append its lines to the side-car, both or neither."""
        self.bank.put(file, [record], self._entries(notes))

    def _entries(self, notes: Sequence[Note]) -> list[Provenance]:
        time = self.clock().strftime("%Y-%m-%dT%H:%M:%SZ")
        return [self._entry(note, time) for note in notes]

    def _entry(self, note: Note, time: str) -> Provenance:
        estimate = note.estimate
        return Provenance(
            key=note.key,
            event=note.event,
            time=time,
            engine=self.engine,
            fingerprint={**self.fingerprint, **note.cluster},
            model=self.model,
            op_names=note.op_names,
            baseline_us=tuple(round(sample, 3) for sample in note.baseline_us),
            tuned_us=tuple(round(sample, 3) for sample in note.tuned_us),
            speedup=round(estimate.median, 4) if estimate else None,
            speedup_low=round(estimate.low, 4) if estimate else None,
            speedup_high=round(estimate.high, 4) if estimate else None,
            search={
                **note.search,
                **({"clock": note.clock.value} if note.clock is Clock.CPU else {}),
                **({_ONE_STEP_OFF: [note.rounding.off, note.rounding.of]} if note.rounding else {}),
            },
        )


def machine_fingerprint(target: Target, **facts: str | int) -> dict[str, str | int]:
    """Return the environment of a measurement: the machine, and versions or other `facts`."""
    return {
        "soc_version": target.soc_version,
        "core_num": target.core_num,
        "cpu_model": target.cpu_model,
        **facts,
    }


def fingerprint(target: Target, versions: Mapping[str, str]) -> dict[str, str | int]:
    """Return the environment of a measurement, for the side-car of the bank."""
    governor = present_facts(()).get("governor")
    return machine_fingerprint(
        target,
        features="-".join(target.features),
        onnxruntime=versions["onnxruntime"],
        halide=versions["halide"],
        **({"governor": governor} if governor else {}),
    )
