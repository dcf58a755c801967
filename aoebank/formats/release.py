"""Which release of a toolkit reads a bank: the fields its operators know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TilingRow = tuple[str, str] | tuple[str, str, int]  # name, C type, default if there is one


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One release as the reader of banks.

    Attributes:
        name: As in `cann-9.1.0`.
        source: Where its facts are from.
        tilings: Rows of the tiling struct by operator, in the order of the struct. What an
            operator that is not here reads is that of the newest release known.
    """

    name: str
    source: str = ""
    tilings: Mapping[str, tuple[TilingRow, ...]] = field(default_factory=dict)


NEWEST = Release(name="newest", source="aoebank/schemas/runtime_kb/operators")
