"""Order and choice of tests: longest file first, and the slow tier in slices of equal length.

`tests/durations.json` holds the seconds each file took in the everyday and in the slow tier;
`python -m pytest --update-durations` writes the tier that is run.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
UNKNOWN_SLOW_S = 0.1
"""The same in the slow tier: most files have no slow test and are never in its record."""
SLICE_S = 150.0
"""Seconds of tests in a slice: two minutes on two cores of an AMD EPYC (Zen 4)."""
SLICE_LIMIT_S = 600.0
"""Seconds after which a slice begins no further test, by the clock."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One of several equal parts of the tests of a file, counted from 0."""

    file: str
    at: int
    of: int

    def takes(self, index: int, count: int) -> bool:
        """Tell whether the test of this index among `count` tests of the file is in this part."""
        return self.at * count // self.of <= index < (self.at + 1) * count // self.of


def slices_of(
    files: Iterable[str], durations: Durations, slice_s: float = SLICE_S
) -> Sequence[frozenset[Part]]:
    """Divide test files into slices of about `slice_s` seconds each; every test is in one.

    Tests of a file stay together as long as they take no more than half of a slice, for the sake
    of what they share. The longest part goes to the slice with the least to do, and so on.

    Args:
        files: Test files, as the ids of tests name them.
        durations: Seconds of whole files; tests of a file count as equally long.
        slice_s: Seconds of a slice.
    """
    parts = sorted(
        (durations.get(file, UNKNOWN_SLOW_S) / of, file, at, of)
        for file in files
        for of in [max(1, math.ceil(durations.get(file, UNKNOWN_SLOW_S) / (slice_s / 2)))]
        for at in range(of)
    )
    number = max(1, math.ceil(sum(seconds for seconds, *_ in parts) / slice_s))
    chosen: list[set[Part]] = [set() for _ in range(number)]
    heap = [(0.0, at) for at in range(number)]
    for seconds, file, at, of in reversed(parts):
        load, least = heapq.heappop(heap)
        chosen[least].add(Part(file=file, at=at, of=of))
        heapq.heappush(heap, (load + seconds, least))
    return tuple(map(frozenset, chosen))


def tests_of(parts: Iterable[Part], tests: Iterable[str]) -> frozenset[str]:
    """Choose the ids of tests that are in one of the parts; those of a file stand in a row."""
    names_of = {file: list(names) for file, names in groupby(tests, key=file_of)}
    return frozenset(
        name
        for part in parts
        for names in [names_of.get(part.file, [])]
        for index, name in enumerate(names)
        if part.takes(index, len(names))
    )


def files_with_tests() -> Sequence[str]:
    """List all test files, as the ids of tests name them."""
    return sorted(str(file.relative_to(TESTS.parent)) for file in TESTS.rglob("test_*.py"))


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


def chosen_every_day(members: Iterable[Any], chosen: Collection[Any]) -> list[ParameterSet]:
    """Return parameters of a test of which all but the chosen ones are slow.

    Args:
        members: As `pytest.mark.parametrize` takes them; a tuple has a value for each argument.
        chosen: Those that are tried every day.
    """
    known = [*members]
    assert set(chosen) <= set(known)
    found = [pytest.param(*(one if isinstance(one, tuple) else (one,))) for one in known]
    return [
        parameters if one in chosen else _slow(parameters)
        for one, parameters in zip(known, found, strict=True)
    ]


def _slow(parameters: ParameterSet) -> ParameterSet:
    return pytest.param(
        *parameters.values, id=parameters.id, marks=(*parameters.marks, pytest.mark.slow)
    )
