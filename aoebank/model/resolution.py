"""Where a bank lives, and every place that was considered."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Tier(StrEnum):
    """Ordered places a reader looks a record up in."""

    CUSTOM = "custom"
    BUILT_IN = "built_in"


class Reader(StrEnum):
    """A program that looks for banks, each by its own rules."""

    HOST = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One place considered, and why it was taken or passed over."""

    variable: str
    tier: Tier
    path: Path | None
    taken: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The root directory a reader uses.

    Attributes:
        root: May not exist yet where the rule is to create it when writing.
        variable: Environment variable that decided (`HOME` for the default).
        tried: Every place in order, the taken one included.
    """

    reader: Reader
    root: Path
    tier: Tier
    variable: str
    exists: bool
    tried: tuple[Attempt, ...]
