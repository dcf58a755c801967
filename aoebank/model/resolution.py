"""Locations of a bank for each program that looks for one, with every place considered."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from aoebank.errors import BankPathError
from aoebank.model.record import Record


class Tier(StrEnum):
    """Ordered places a reader looks a record up in."""

    CUSTOM = "custom"
    BUILT_IN = "built_in"


class UnionRule(StrEnum):
    """Rule by which one of several custom banks answers."""

    FIRST = "first"  # The first that has a record that fits
    BEST = "best"  # Of all records that fit, the fastest; one without a time comes last


class Reader(StrEnum):
    """A program that looks for banks, each by its own rules."""

    HOST = "host"
    CANN_CPP = "cann-cpp"
    CANN_CPP_WRITER = "cann-cpp-writer"
    UNIFIED = "unified"
    CUBE = "cube"
    VECTOR = "vector"
    GRAPH = "graph"
    GRAPH_WRITER = "graph-writer"
    GRADIENT = "gradient"
    GRADIENT_WRITER = "gradient-writer"


class Failure(StrEnum):
    """Reaction of a program to a place or a file it cannot use."""

    STOP = "stop"  # an error that ends the job
    WARN = "warn"  # goes on without the custom bank, with a warning
    SILENT = "silent"  # goes on without the custom bank, a line in a log at most
    DROP_ALL = "drop_all"  # goes on without any bank, the built-in one included
    NEXT = "next"  # looks at the next place
    UNKNOWN = "unknown"  # closed source, and no document says


class ReaderOutcome(StrEnum):
    """Outcome of the search of a program."""

    CUSTOM = "custom"
    BUILT_IN = "built_in"
    NOTHING = "nothing"
    STOPS = "stops"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Target of a look-up; None means any."""

    soc_version: str | None = None
    core_num: int | None = None
    op_type: str | None = None
    core_type: str | None = None

    @property
    def is_open(self) -> bool:
        """True if nothing narrower than the bank itself is asked for."""
        return self == Query()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One place considered, and why it was taken or passed over."""

    variable: str  # Environment variable or option that names it
    tier: Tier
    path: Path | None
    taken: bool
    reason: str
    # Where below `path` the files would be, `<soc_version>` where that is open.
    directory: Path | None = None
    failed: bool = False  # Whether it was taken and cannot be used


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A place or file that cannot be used, and what the program does then."""

    failure: Failure
    tier: Tier
    error: BankPathError
    cann_code: str = ""  # What CANN calls the error, empty if it has no code


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """A file a reader would open; `soc_version` is whose it is in the order of look-up."""

    path: Path
    tier: Tier
    soc_version: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderAnswer:
    """Place and file that one program would use."""

    reader: Reader
    outcome: ReaderOutcome
    root: Path | None  # Root of the custom bank, also when it is only created on writing
    variable: str | None  # Variable or option that decided, None if nothing did
    expected: tuple[Path, ...]  # Custom files it would open or write, whether they are there or not
    files: tuple[FoundFile, ...]  # Files there are, in the order of look-up
    tried: tuple[Attempt, ...]  # Every place in order, the taken ones included
    troubles: tuple[Trouble, ...]  # What cannot be used, in the order met
    writes: bool = False  # Whether the question is where it would write, so that no file need exist
    # Roots of all custom banks in the order of look-up; `root` is the one that is written.
    roots: tuple[Path, ...] = ()
    union: UnionRule = UnionRule.FIRST  # Which of them answers

    @property
    def ignores_custom(self) -> bool:
        """True if a custom bank was named that the program goes on without."""
        passed = (Failure.STOP, Failure.NEXT)
        return any(trouble.failure not in passed for trouble in self.troubles)

    @property
    def stop(self) -> BankPathError | None:
        """Return the error that ends the job, or None."""
        stops = (trouble.error for trouble in self.troubles if trouble.failure is Failure.STOP)
        return next(stops, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The root directory a reader uses."""

    reader: Reader
    root: Path  # May not exist yet where the rule is to create it when writing
    tier: Tier
    variable: str  # Environment variable that decided (`HOME` for the default)
    exists: bool
    tried: tuple[Attempt, ...]  # Every place in order, the taken one included
    # Roots of all banks that are looked up, in their order; `root` is the one that is written.
    roots: tuple[Path, ...] = ()
    union: UnionRule = UnionRule.FIRST  # Which of them answers


# 1xx variables and permissions, 2xx places readers disagree about, 3xx records
HAZARDS: dict[str, str] = {
    "AR101": "variable or option names a path that cannot be used",
    "AR102": "relative path depends on the working directory",
    "AR103": "HOME is not set",
    "AR104": "ASCEND_OPP_PATH is not set or not there, so no built-in bank is seen",
    "AR105": "permissions of a file make a reader drop its banks, the built-in one included",
    "AR201": "bank below a default directory that one reader never looks at",
    "AR202": "option or variable is not looked at by a reader that is asked about",
    "AR203": "subgraph or gradient bank in a folder its readers never look into",
    "AR204": "op/ and graph/ folders below a root that readers expect to hold <soc_version>/",
    "AR205": "operator bank directly below a root, without its <soc_version> folder",
    "AR206": "built-in gradient bank is in a directory its reader spells differently",
    "AR207": "files only for other core numbers",
    "AR208": "folder of an old layout that readers no longer look into",
    "AR209": "cube bank without its .bin twin, the only file its reader opens",
    "AR210": "bank made under an old name of the soc_version",
    "AR211": "file for another spelling of the soc_version or op_type",
    "AR301": "record hides a faster one",
    "AR302": "record in use is made for another soc_version",
    "AR303": "bank file is broken, so what its reader makes of it is not certain",
    "AR304": "record is in quarantine, so that it answers nothing",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hazard:
    """Something that surprises people about where banks are found."""

    code: str
    message: str
    path: Path | None = None
    readers: tuple[Reader, ...] = ()
    hint: str = ""

    def __post_init__(self) -> None:
        if self.code not in HAZARDS:
            raise ValueError(f"unknown hazard code {self.code}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A record for the workload asked about, in one of the files of a reader."""

    file: FoundFile
    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Record a reader would use, and the records it hides."""

    reader: Reader
    used: Hit | None  # None when no file has one: a miss
    shadowed: tuple[Hit, ...] = ()  # The others, in the order of look-up
    broken: tuple[Path, ...] = ()  # Files that are not what their format says
    kept_out: tuple[Hit, ...] = ()  # Records in quarantine, which the reader passes over
