"""Plausibility of stored times: a time that no kernel can take is not believed.

    no shorter than                                            where it is known
    1 ns                                                       always
    its elements at 100 TB/s                                   the workload has two shapes or more
    1/1000 of another answer to the same workload              there is one
    1/1000 of the nearest records, element for element         three of them have a time and shapes

Factors are far beyond what tuning gains: a time on the wrong side of one was not measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from math import prod

from aoebank.errors import RecordError
from aoebank.formats.protocol import ParsedFile
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Record

LEAST_US = 1e-3  # about three cycles of a core: a kernel is not even called in that
# bytes, at one an element: fifty times the memory bandwidth of the fastest targets of banks
MOST_ELEMENTS_PER_US = 1e8
MOST_GAIN = 1000.0  # tuning gains tens; a schedule that is slower by that much is a hang
_PRODUCTS = (("M", "N", "K"), ("token", "inter_dim", "model_dim"))
_NEAREST = 4  # records on either side
_FEWEST = 3  # of them, before they say anything


def find_time_problem(
    record: Record, *, rivals: Iterable[Record] = (), neighbours: Iterable[Record] = ()
) -> str:
    """Return why the time of a record was never measured; empty if it may have been.

    Args:
        rivals: Other answers to the same workload.
        neighbours: Records near it in its file.
    """
    rates = [rate for other in neighbours if (rate := _rate(other)) is not None]
    return _find_problem(record, [rival.cost_us for rival in rivals], rates)


@dataclass(frozen=True, slots=True)
class _Seen:
    """Answers of a record without strategies, kept until its neighbours are known."""

    number: int
    answers: tuple[Record, ...]
    rate: float | None


class TimeCheck:
    """Remembers the times of a file, and tells at its end which nobody can have measured."""

    def __init__(self, parsed: ParsedFile) -> None:
        self._parsed = parsed
        self._suspects: list[_Seen] = []
        self._rates: dict[int, float] = {}

    def add(self, number: int, record: Record) -> None:
        """Remember the record at a position."""
        rate = _rate(record)
        if rate is not None:
            self._rates[number] = rate
        answers = _answers(record)
        if any(answer.cost_us is not None for answer in answers):
            self._suspects.append(_Seen(number, answers, rate))

    def problems(self) -> Iterator[tuple[int, str]]:
        """Yield the position of each record with such a time, and what is odd about it."""
        for seen in self._suspects:
            near = (self._rates.get(place) for place in _nearest(self._parsed, seen.number))
            known = [rate for rate in near if rate is not None]
            for answer in seen.answers:
                others = [other.cost_us for other in seen.answers if other is not answer]
                problem = _find_problem(answer, others, known)
                if problem:
                    yield seen.number, problem


def read_neighbours(parsed: ParsedFile, number: int) -> Sequence[Record]:
    """Return the nearest readable records of other keys in a file."""
    read = (_read(parsed, place) for place in _nearest(parsed, number))
    return [record for record in read if record is not None]


def _find_problem(
    record: Record, rivals_us: Iterable[float | None], neighbour_rates: Sequence[float]
) -> str:
    own_us = record.cost_us
    if own_us is None:
        return ""
    if own_us < LEAST_US:
        return f"{own_us:g} us is shorter than any kernel takes"
    sizes = sorted(_sizes(record.workload))
    # the largest tensor may be a table that is read in part
    if len(sizes) > 1 and sizes[-2] / MOST_ELEMENTS_PER_US > own_us:
        return f"{own_us:g} us is too short for {sizes[-2]} elements"
    others_us = [rival_us for rival_us in rivals_us if rival_us is not None]
    if others_us and own_us * MOST_GAIN < min(others_us):
        return f"{own_us:g} us, another answer to the workload takes {min(others_us):g} us"
    if sizes and len(neighbour_rates) >= _FEWEST:
        least_us = sizes[-1] / max(neighbour_rates)
        if own_us * MOST_GAIN < least_us:
            return f"{own_us:g} us, at the pace of its neighbours it takes {least_us:g} us"
    return ""


def _answers(record: Record) -> tuple[Record, ...]:
    """Return the answers of a record, each as one of its own without its strategy."""
    return tuple(
        Record(key=record.key, workload=answer.workload, strategy=None, cost_us=answer.cost_us)
        for answer in record.answers
    )


def _nearest(parsed: ParsedFile, number: int) -> list[int]:
    first, stop = max(0, number - _NEAREST), min(len(parsed), number + _NEAREST + 1)
    key = parsed.keys[number]
    return [place for place in range(first, stop) if parsed.keys[place] != key]


def _read(parsed: ParsedFile, number: int) -> Record | None:
    with suppress(RecordError):
        return parsed.format.record(parsed, number)
    return None


def _rate(record: Record) -> float | None:
    """Return the elements of the largest tensor per microsecond."""
    largest = max(_sizes(record.workload), default=0)
    return largest / record.cost_us if largest and record.cost_us is not None else None


def _sizes(workload: JsonValue) -> Iterator[int]:
    """Yield the number of elements of each tensor whose shape a workload names."""
    if isinstance(workload, Mapping):
        yield from _matrices(workload)
        for name, value in workload.items():
            if "shape" in name and isinstance(value, list) and all(map(_is_extent, value)):
                yield prod(value)
            else:
                yield from _sizes(value)
    elif isinstance(workload, list):
        for item in workload:
            yield from _sizes(item)


def _matrices(workload: Mapping[str, JsonValue]) -> Iterator[int]:
    """Yield the elements of the three matrices of a product that is named by its extents.

    A MoE layer counts as the product of all tokens with one expert, of which each takes part.
    """
    for names in _PRODUCTS:
        extents = [
            value for name in names if type(value := workload.get(name)) is int and value > 0
        ]
        if len(extents) < len(names):
            continue
        batch = workload.get("B")
        for one, other in combinations(extents, 2):
            yield one * other * (batch if type(batch) is int and batch > 0 else 1)


def _is_extent(value: JsonValue) -> bool:
    return type(value) is int and value > 0
