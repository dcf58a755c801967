"""What can happen to a record, and to a file, on the way from A to B."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from aoebank.diffing.fields import FieldChange
from aoebank.model.timing import is_beyond

SMALLEST_RATIO = 1e-300  # so that means of ratios stay finite


class ChangeKind(StrEnum):
    """What happened to a record; the first that holds."""

    BROKEN = "broken"
    STRATEGY = "strategy"
    SLOWER = "slower"
    FASTER = "faster"
    RETIMED = "retimed"
    ADDED = "added"
    REMOVED = "removed"
    DETAILS = "details"


class TimeVerdict(StrEnum):
    """What the two times of a record say."""

    SLOWER = "slower"
    FASTER = "faster"
    WITHIN_NOISE = "within_noise"
    NOT_COMPARABLE = "not_comparable"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordChange:
    """One record that is not the same in A and B.

    Attributes:
        file: Name in B, or in A where B has none; relative to the trees compared.
        file_a: Name in A, if it has another one there.
        workload: One short line for people.
        verdict: What the times say; a record of another kind than slower or faster has one too.
        noise_ratio: Band the ratio was judged by; 0.03 is from -3 % to +3 %.
        weight: How often the record is used; 1 where nobody knows.
        fields: Members of the strategy that changed.
        problem: Why a record could not be read, for `ChangeKind.BROKEN`.
    """

    kind: ChangeKind
    file: str
    key: str
    file_a: str | None = None
    soc_version: str | None = None
    op_type: str | None = None
    workload: str = ""
    cost_a_us: float | None = None
    cost_b_us: float | None = None
    verdict: TimeVerdict = TimeVerdict.UNKNOWN
    noise_ratio: float = 0.0
    weight: float = 1.0
    fields: tuple[FieldChange, ...] = ()
    problem: str = ""

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
        """Return whether it got slower, beyond its noise and by more than a threshold."""
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
