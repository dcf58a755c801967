"""Whether a stored time can be what a strategy takes, whatever wrote it.

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
from dataclasses import replace
from math import prod

from aoebank.errors import RecordError
from aoebank.formats.protocol import ParsedFile
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Record

LEAST_US = 1e-3  # about three cycles of a core: a kernel is not even called in that
# bytes, at one an element: fifty times the memory bandwidth of the fastest targets of banks
MOST_ELEMENTS_PER_US = 1e8
MOST_GAIN = 1000.0  # tuning gains tens; a schedule that is slower by that much is a hang
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


def iter_time_problems(parsed: ParsedFile) -> Iterator[tuple[int, str]]:
    """Yield the position of each record with a time nobody measured, and what is odd about it."""
    if not parsed.format.keeps_times:
        return
    read = [_read(parsed, number) for number in range(len(parsed))]
    rates = [None if record is None else _rate(record) for record in read]
    for number, record in enumerate(read):
        if record is None:
            continue
        near = [rates[place] for place in _nearest(parsed, number)]
        known = [rate for rate in near if rate is not None]
        answers = _answers(record)
        for answer in answers:
            others = [other.cost_us for other in answers if other is not answer]
            problem = _find_problem(answer, others, known)
            if problem:
                yield number, problem


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


def _answers(record: Record) -> list[Record]:
    """Return the answers of a record, each as one of its own."""
    return [
        record,
        *(
            replace(record, workload=other.workload, cost_us=other.cost_us, alternatives=())
            for other in record.alternatives
        ),
    ]


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
        for name, value in workload.items():
            if "shape" in name and isinstance(value, list) and all(map(_is_extent, value)):
                yield prod(value)
            else:
                yield from _sizes(value)
    elif isinstance(workload, list):
        for item in workload:
            yield from _sizes(item)


def _is_extent(value: JsonValue) -> bool:
    return type(value) is int and value > 0
