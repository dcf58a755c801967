"""Which members of a long list run every day, and which with `-m slow` only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def few_every_day(members: Iterable[Any], number: int = 1) -> list[Any]:
    """Return parameters of which all but the first few run with `-m slow` only."""
    return [
        pytest.param(
            *(member if isinstance(member, tuple) else (member,)),
            marks=() if place < number else pytest.mark.slow,
        )
        for place, member in enumerate(members)
    ]
