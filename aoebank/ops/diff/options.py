"""What a comparison looks at, and how it judges."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from aoebank.errors import UsageError
from aoebank.model.timing import NOISE_RATIO
from aoebank.ops.selection import RecordFilter

RENAME_SIMILARITY = 0.5  # as git diff -M has it
_NUMBER = re.compile(r"\s*(?P<number>\d+(?:\.\d*)?|\.\d+)\s*(?P<percent>%?)\s*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    """What a comparison looks at, and how it judges.

    Attributes:
        noise_ratio: Times this close are the same; a wider recorded spread of the samples
            counts instead.
        weights: How often each key is used; a key it does not name is not. None: as often as
            the side-cars tell, else once.
        has_renames: Whether to look for files that have another name in B.
        has_fields: Whether to tell which members of a strategy changed.
    """

    noise_ratio: float = NOISE_RATIO
    only: RecordFilter = field(default_factory=RecordFilter)
    weights: Mapping[str, float] | None = None
    has_renames: bool = True
    has_fields: bool = True

    def __post_init__(self) -> None:
        if not (0 <= self.noise_ratio < math.inf):
            raise ValueError(f"noise_ratio must not be negative, not {self.noise_ratio}")


def parse_ratio(text: str, *, option: str) -> float:
    """Return the ratio a person wrote, as a percentage or as a number below 1.

    Raises:
        UsageError: it is neither.

    >>> parse_ratio("3%", option="--noise"), parse_ratio("0.03", option="--noise")
    (0.03, 0.03)
    """
    match = _NUMBER.fullmatch(text)
    number = float(match["number"]) if match else math.inf
    is_percent = bool(match and match["percent"])
    if not math.isfinite(number) or (number >= 1 and not is_percent):
        raise UsageError(
            "is no ratio", where=option, got=text, expected="a percentage as 3%, or 0.03"
        )
    return number / 100 if is_percent else number
