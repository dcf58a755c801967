"""A member of a strategy, as the reader of a format takes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aoebank.model.json_value import JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyField:
    """One field a reader knows.

    Attributes:
        expected: What its values are, for people.
        is_required: Whether a record without it is an error for the reader.
        accepts: Tells whether a value reaches the reader as it is.
    """

    name: str
    expected: str
    is_required: bool
    accepts: Callable[[JsonValue], bool]
