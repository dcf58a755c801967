"""The parts of an overview."""

from __future__ import annotations

from dataclasses import dataclass

from aoebank.errors import BankPathError


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The records of one operator on one target in one bank.

    Attributes:
        measured: How many have a speed-up in the side-car.
        lowest: Smallest speed-up; None where nothing was measured, as for the next two.
        median: Median speed-up.
        highest: Largest speed-up.
    """

    bank: str
    soc_version: str
    op_type: str
    format: str
    records: int
    measured: int
    lowest: float | None
    median: float | None
    highest: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Age:
    """The records of a bank one program measured on one CPU.

    Attributes:
        engine: Program and version; empty for records nobody noted anything about.
        oldest: Time of the first change, RFC 3339; empty as above.
        newest: Time of the last one.
    """

    bank: str
    engine: str
    cpu_model: str
    records: int
    oldest: str
    newest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Staleness:
    """How far the records of a bank are from what is here, as `aoebank stale` tells it.

    Attributes:
        fresh: Records measured in an environment like the present one.
        to_check: Records of another CPU, or of other versions; they may be used meanwhile.
        stale: Records that must not be used: another target, kernels made another way.
        unknown: Records nobody noted an environment of.
    """

    bank: str
    fresh: int
    to_check: int
    stale: int
    unknown: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """A record whose figure deserves a second look.

    Attributes:
        why: In words.
    """

    bank: str
    file: str
    key: str
    op_type: str
    speedup: float
    low: float | None
    high: float | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """What one side says about a record.

    Attributes:
        where: Bank, program, CPU: whatever tells the sides apart.
        strategy_sha256: Of the strategy; empty for an earlier measurement of the same one.
    """

    where: str
    time: str
    speedup: float | None
    low: float | None
    high: float | None
    cost_us: float | None = None
    strategy_sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A record about which people, or banks, say different things."""

    soc_version: str
    op_type: str
    key: str
    what: str
    opinions: tuple[Opinion, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicates:
    """Records that stand alike, key and strategy, in two files of a bank."""

    bank: str
    files: tuple[str, str]
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What a bank takes.

    Attributes:
        broken: Files readers cannot use.
        in_quarantine: Records that are kept out.
    """

    bank: str
    files: int
    records: int
    size_bytes: int
    broken: int
    in_quarantine: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewResult:
    """Everything an overview tells, each part with what matters most first.

    Attributes:
        closed: Files and folders that cannot be read, so that records may be missing.
    """

    sizes: tuple[Size, ...]
    coverage: tuple[Coverage, ...]
    ages: tuple[Age, ...]
    staleness: tuple[Staleness, ...]
    outliers: tuple[Outlier, ...]
    disagreements: tuple[Disagreement, ...]
    duplicates: tuple[Duplicates, ...]
    closed: tuple[BankPathError, ...] = ()
