"""Order and choice of tests: longest file first, and the slow tier in slices of equal length.

`tests/durations.json` holds the seconds each file took in the everyday and in the slow tier;
`python -m pytest --update-durations` writes the tier that is run.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

TESTS = Path(__file__).resolve().parents[1]
DURATIONS = TESTS / "durations.json"
EVERYDAY, SLOW = "everyday", "slow"
UNKNOWN_S = 2.0
"""Seconds of a file nobody has timed yet."""
SLICE_S = 240.0
"""Seconds of tests in a slice: two minutes on two cores."""

Durations = Mapping[str, float]


def tier_of(mark_expression: str) -> str:
    """Return the tier that pytest's `-m` asks for."""
    return SLOW if "slow" in mark_expression and "not slow" not in mark_expression else EVERYDAY


def load_durations(tier: str, file: Path = DURATIONS) -> Durations:
    """Return the seconds of each test file in a tier; none where nothing is recorded."""
    if not file.exists():
        return {}
    found: Durations = json.loads(file.read_text())[tier]
    return found


def save_durations(tier: str, seconds: Durations, file: Path = DURATIONS) -> None:
    """Record the seconds of the files that were run; others in the record stay."""
    record = {name: dict(load_durations(name, file)) for name in (EVERYDAY, SLOW)}
    record[tier].update({path: round(value, 1) for path, value in seconds.items()})
    kept = {
        name: {path: files[path] for path in sorted(files) if (TESTS.parent / path).exists()}
        for name, files in record.items()
    }
    file.write_text(json.dumps(kept, indent=1) + "\n")


def longest_first(files: Iterable[str], durations: Durations) -> list[str]:
    """Return test files, the longest first, so that no worker is left with one at the end."""
    return sorted(set(files), key=lambda file: (-durations.get(file, UNKNOWN_S), file))


def slices_of(
    files: Iterable[str], durations: Durations, slice_s: float = SLICE_S
) -> Sequence[frozenset[str]]:
    """Divide test files into slices of about `slice_s` seconds each; every file is in one.

    The longest file goes to the slice with the least to do, and so on.
    """
    ordered = longest_first(files, durations)
    total = sum(durations.get(file, UNKNOWN_S) for file in ordered)
    loads: dict[int, float] = dict.fromkeys(range(max(1, math.ceil(total / slice_s))), 0.0)
    chosen: dict[int, list[str]] = defaultdict(list)
    for file in ordered:
        least = min(loads, key=lambda number: (loads[number], number))
        chosen[least].append(file)
        loads[least] += durations.get(file, UNKNOWN_S)
    return tuple(frozenset(chosen[number]) for number in loads)


def few_every_day(members: Iterable[Any], number: int = 1) -> list[ParameterSet]:
    """Return parameters of a test of which all but the first few are slow.

    Args:
        members: As `pytest.mark.parametrize` takes them; a tuple has a value for each argument.
        number: How many are tried every day.
    """
    found = []
    for at, member in enumerate(members):
        values = member if isinstance(member, tuple) else (member,)
        parameters = member if isinstance(member, ParameterSet) else pytest.param(*values)
        found.append(parameters if at < number else _slow(parameters))
    return found


def _slow(parameters: ParameterSet) -> ParameterSet:
    return pytest.param(
        *parameters.values, id=parameters.id, marks=(*parameters.marks, pytest.mark.slow)
    )
