"""What a comparison looks at, and how it judges."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from aoebank.model.timing import NOISE_RATIO
from aoebank.selection import RecordFilter

RENAME_SIMILARITY = 0.5  # as git diff -M has it


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
