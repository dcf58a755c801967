"""The outcome of a comparison, and the figures that sum it up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from aoebank.diffing.fields import FieldChange, told_changes
from aoebank.errors import AoebankError
from aoebank.model.display import RichDisplay
from aoebank.model.timing import is_beyond

SMALLEST_RATIO = 1e-300  # so that means of ratios stay finite


class ChangeKind(StrEnum):
    """Kind of change of a record; the first kind that applies counts."""

    BROKEN = "broken"
    STRATEGY = "strategy"
    SLOWER = "slower"
    FASTER = "faster"
    RETIMED = "retimed"
    ADDED = "added"
    REMOVED = "removed"
    DETAILS = "details"


class TimeVerdict(StrEnum):
    """Verdict on the two times of a record."""

    SLOWER = "slower"
    FASTER = "faster"
    WITHIN_NOISE = "within_noise"
    NOT_COMPARABLE = "not_comparable"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordChange:
    """One record that is not the same in A and B."""

    kind: ChangeKind
    file: str  # Name in B, or in A where B has none; relative to the trees compared
    key: str
    file_a: str | None = None  # Name in A, if it has another one there
    soc_version: str | None = None
    op_type: str | None = None
    workload: str = ""  # One short line for people
    cost_a_us: float | None = None
    cost_b_us: float | None = None
    # What the times say; a record of another kind than slower or faster has one too.
    verdict: TimeVerdict = TimeVerdict.UNKNOWN
    noise_ratio: float = 0.0  # Band the ratio was judged by; 0.03 is from -3 % to +3 %
    weight: float = 1.0  # How often the record is used; 1 where nobody knows
    fields: tuple[FieldChange, ...] = ()  # Members of the strategy that changed
    # Steps of an engine's schedule that changed, in words; empty for any other strategy.
    steps: tuple[FieldChange, ...] = ()
    problem: str = ""  # Why a record could not be read, for `ChangeKind.BROKEN`

    @property
    def told_fields(self) -> tuple[FieldChange, ...]:
        """Return the members that changed as people read them."""
        return told_changes(self.fields, self.steps)

    @property
    def cost_ratio(self) -> float | None:
        """Return time in B / time in A, > 1 being slower, or None unless both are known."""
        if self.cost_a_us is None or self.cost_b_us is None:
            return None
        return ratio_of(self.cost_a_us, self.cost_b_us)

    @property
    def counted_ratio(self) -> float | None:
        """Return the ratio if it counts: times of different environments do not."""
        return None if self.verdict is TimeVerdict.NOT_COMPARABLE else self.cost_ratio

    def is_regression(self, threshold_ratio: float = 0.0) -> bool:
        """True if the record got slower, beyond its noise and by more than a threshold."""
        a_us, b_us = self.cost_a_us, self.cost_b_us
        if self.verdict is not TimeVerdict.SLOWER or a_us is None or b_us is None:
            return False
        return is_beyond(a_us, b_us, threshold_ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMove:
    """A file that has another name in B.

    Attributes:
        equal: Records that are the same in both.
        records_a, records_b: Records that readers use.
        soc_a, soc_b: The targets, if the file was moved to another one.
    """

    a: str
    b: str
    equal: int
    records_a: int
    records_b: int
    soc_a: str | None = None
    soc_b: str | None = None

    @property
    def similarity(self) -> float:
        """Return the share of the smaller file that is in the other: banks grow."""
        return self.equal / min(self.records_a, self.records_b)

    @property
    def closeness(self) -> float:
        """Return the share of the larger file that is in the other; 1 for equal files."""
        return self.equal / max(self.records_a, self.records_b)


def ratio_of(a_us: float, b_us: float) -> float:
    """Return b / a, kept finite and above zero."""
    return min(max(float(b_us) / float(a_us), SMALLEST_RATIO), 1 / SMALLEST_RATIO)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSummary:
    """Summary of comparable times that are not equal byte for byte."""

    records: int  # How many
    mean_ratio: float  # Geometric mean of time in B / time in A
    # The same, each as often as it is used; None if no use is known.
    weighted_mean_ratio: float | None
    worst_ratio: float  # The largest


@dataclass(frozen=True, slots=True, kw_only=True)
class RollupRow:
    """Counts of changes for one operator type on one target."""

    soc_version: str | None  # As the file names in B tell; None where they do not
    op_type: str | None
    counts: Mapping[ChangeKind, int]
    unchanged: int  # The same in a file of the same name
    moved: int  # The same in a file of another name
    slower: int  # Slower beyond noise, whatever else changed; `faster` likewise
    faster: int
    times: TimeSummary | None

    @property
    def is_quiet(self) -> bool:
        """True if no record moved or changed."""
        return not self.moved and not any(self.counts.values())


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DiffResult(RichDisplay):
    """All that changed from A to B.

    Attributes:
        a, b: The sides as they were written.
        changes: Regressions first, the worst of them first; then by kind.
        moves: Files that have another name in B.
        rollup: A row per soc_version and op_type, sorted.
        problems: Files that could not be compared, and why.
        noise_ratio: The band asked for.
    """

    shown_by = "aoebank.diffing.report:DiffReport"
    rows_in = "changes"

    a: str
    b: str
    changes: tuple[RecordChange, ...]
    moves: tuple[FileMove, ...]
    rollup: tuple[RollupRow, ...]
    problems: tuple[AoebankError, ...]
    noise_ratio: float

    @property
    def unchanged(self) -> int:
        """Return the number of records that are the same in a file of the same name."""
        return sum(row.unchanged for row in self.rollup)

    @property
    def moved(self) -> int:
        """Return the number of records that are the same in a file of another name."""
        return sum(row.moved for row in self.rollup)

    def count(self, kind: ChangeKind) -> int:
        """Return the number of records that changed in one way."""
        return sum(row.counts.get(kind, 0) for row in self.rollup)

    def count_verdict(self, verdict: TimeVerdict) -> int:
        """Return the number of changed records with one verdict on their times."""
        return sum(change.verdict is verdict for change in self.changes)

    def regressions(self, threshold_ratio: float = 0.0) -> tuple[RecordChange, ...]:
        """Return the changes that are slower beyond their noise and by more than a threshold."""
        return tuple(change for change in self.changes if change.is_regression(threshold_ratio))

    def times(self) -> TimeSummary | None:
        """Return the summary of all times, None if there are none to compare."""
        return summarize_times(self.changes)


@dataclass(slots=True)
class RollupTally:
    """Counts one row while files are compared."""

    unchanged: int = 0
    moved: int = 0

    def row(
        self, soc_version: str | None, op_type: str | None, changes: list[RecordChange]
    ) -> RollupRow:
        """Return the row, given what changed in it."""
        verdicts = Counter(change.verdict for change in changes)
        return RollupRow(
            soc_version=soc_version,
            op_type=op_type,
            counts=Counter(change.kind for change in changes),
            unchanged=self.unchanged,
            moved=self.moved,
            slower=verdicts[TimeVerdict.SLOWER],
            faster=verdicts[TimeVerdict.FASTER],
            times=summarize_times(changes),
        )


def summarize_times(changes: Iterable[RecordChange]) -> TimeSummary | None:
    """Return the means of the ratios that count, None if there are none."""
    pairs = [(change.counted_ratio, change.weight) for change in changes]
    known = [(math.log(ratio), weight) for ratio, weight in pairs if ratio is not None]
    if not known:
        return None
    return TimeSummary(
        records=len(known),
        mean_ratio=math.exp(math.fsum(log for log, _ in known) / len(known)),
        weighted_mean_ratio=_weighted_mean(known),
        worst_ratio=math.exp(max(log for log, _ in known)),
    )


def _weighted_mean(known: list[tuple[float, float]]) -> float | None:
    total = math.fsum(weight for _, weight in known)
    if total == 0 or all(weight == 1 for _, weight in known):
        return None
    return math.exp(math.fsum(log * weight for log, weight in known) / total)
