"""Order and choice of tests: longest file first, and the slow tier in slices of equal length.

`tests/durations.json` holds the seconds each file took in the everyday and in the slow tier;
`python -m pytest --update-durations` writes the tier that is run.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
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
    tests: Sequence[str], durations: Durations, slice_s: float = SLICE_S
) -> Sequence[frozenset[str]]:
    """Divide tests into slices of about `slice_s` seconds each; every test is in one.

    Tests of a file stay together as long as they take no more than half of a slice, for the sake
    of what they share. The longest piece goes to the slice with the least to do, and so on.

    Args:
        tests: Ids of tests, those of a file in a row.
        durations: Seconds of whole files; tests of a file count as equally long.
        slice_s: Seconds of a slice.
    """
    pieces = sorted(_pieces(tests, durations, slice_s / 2), key=lambda piece: -piece[0])
    number = max(1, math.ceil(sum(seconds for seconds, _ in pieces) / slice_s))
    chosen: list[list[str]] = [[] for _ in range(number)]
    heap = [(0.0, at) for at in range(number)]
    for seconds, names in pieces:
        load, at = heapq.heappop(heap)
        chosen[at] += names
        heapq.heappush(heap, (load + seconds, at))
    return tuple(map(frozenset, chosen))


def _pieces(
    tests: Sequence[str], durations: Durations, most_s: float
) -> Iterator[tuple[float, Sequence[str]]]:
    """Yield seconds and tests of pieces of files."""
    for file, group in groupby(tests, key=file_of):
        names = list(group)
        seconds = durations.get(file, UNKNOWN_S)
        count = min(len(names), max(1, math.ceil(seconds / most_s)))
        for at in range(count):
            piece = names[at * len(names) // count : (at + 1) * len(names) // count]
            yield seconds * len(piece) / len(names), piece


def file_of(test: str) -> str:
    """Return the file of a test, given its id."""
    return test.partition("::")[0]


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
