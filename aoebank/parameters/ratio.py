"""Ratios as a person writes them: 3%, or 0.03."""

from __future__ import annotations

import math
import re

from aoebank.errors import UsageError

_NUMBER = re.compile(r"\s*(?P<number>\d+(?:\.\d*)?|\.\d+)\s*(?P<percent>%?)\s*", re.ASCII)


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
