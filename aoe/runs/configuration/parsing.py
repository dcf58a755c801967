"""What a setting may be, wherever it was written: text of an option, or a value of a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from aoe.errors import OptionError
from aoe.settings import cache_limit, parse_seconds, parse_switch, parse_whole
from aoe.tuner.mode import (
    CacheMode,
    JobType,
    OptimizationLevel,
    TargetMetric,
    parse_cache_mode,
    parse_optimization_level,
)
from aoe.tuner.registry import parse_job_types

Parser = Callable[[str, object], object]
"""Takes where a value was written and the value; returns what it means, or raises OptionError."""


def words(where: str, value: object) -> str:
    """Return a text as it is; numbers of a file are taken for what they look like."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise OptionError(where, "neither a text nor a number", got=repr(value))
    if "\0" in str(value):
        raise OptionError(where, "a text with a NUL character", got=repr(value))
    return str(value).strip()


def switch(where: str, value: object) -> bool:
    """Return True for on, true and 1, False for off, false and 0."""
    return value if isinstance(value, bool) else parse_switch(where, str(value), default=False)


def whole(least: int, most: int | None = None) -> Parser:
    """Return a parser of whole numbers from `least` to `most`."""
    return lambda where, value: parse_whole(where, value, least=least, most=most)


def one_of(*known: str) -> Parser:
    """Return a parser of a few words, in any case."""

    def parse(where: str, value: object) -> str:
        word = words(where, value).lower()
        if word not in known:
            raise OptionError(
                where, "not one of its values", got=repr(value), expected=" or ".join(known)
            )
        return word

    return parse


def jobs(where: str, value: object) -> tuple[JobType, ...]:
    """Return the modes of a comma list."""
    return parse_job_types(words(where, value), where)


def stages(where: str, value: object) -> tuple[tuple[JobType, float | None], ...]:
    """Return modes and their seconds, in order; `mode` alone is a stage without a limit."""
    texts = value if isinstance(value, list | tuple) else [value]
    found: list[tuple[JobType, float | None]] = []
    for text in (part.strip() for one in texts for part in words(where, one).split(",")):
        mode, colon, limit = text.partition(":")
        named = parse_job_types(mode, where)
        if named == (JobType.GDAT,):
            raise OptionError(where, "gradient tuning is no stage: it runs alone", got=repr(text))
        if named[0] in (job for job, _ in found):
            raise OptionError(where, "a mode is there twice", got=repr(text))
        found.append((named[0], parse_seconds(where, limit) if colon else None))
    return tuple(found)


def search_name(where: str, value: object) -> object:
    """Return the name of a search algorithm."""
    from aoe.tuner.search.registry import SEARCHES

    return one_of(*SEARCHES)(where, value)


def size(where: str, value: object) -> str:
    """Return a number of bytes as it is written, such as 10G."""
    text = words(where, value)
    cache_limit({where: text})
    return text


def worker_pool(where: str, value: object) -> str:
    """Return a number of worker processes, or the address of a Dask scheduler."""
    from aoe.execute.workers.local import parse_workers

    return str(parse_workers(words(where, value), where))


def metric(where: str, value: object) -> TargetMetric:
    """Return the metric a text names."""
    return TargetMetric(str(one_of(*TargetMetric)(where, value)))


def path(_: str, value: Any) -> Path:
    """Return a path."""
    return Path(value)


def study(where: str, value: Any) -> str:
    """Return the place of studies of Optuna."""
    from aoe.tuner.study import parse_study

    return parse_study(words(where, value))


def cache_mode(where: str, value: Any) -> CacheMode:
    """Return the mode of the cache a text names."""
    return parse_cache_mode(value, where)


def optimization_level(where: str, value: Any) -> OptimizationLevel:
    """Return the level a text names."""
    return parse_optimization_level(value, where)


def compression(where: str, value: Any) -> object:
    """Return the 16-bit type in which gradients may be summed, or the one for none."""
    from aoe.gradients.compression import parse_compression

    return parse_compression(value, where)


def out_nodes(_: str, value: Any) -> tuple[str, ...]:
    """Return the results of nodes a model is cut off at."""
    from aoe.entry.outputs import parse_out_nodes

    return parse_out_nodes(value)


def operators(_: str, value: Any) -> tuple[Path, ...]:
    """Return libraries of operators, given one by one or together."""
    from aoe.om.loading import operator_paths

    return operator_paths(value)


def operator_choice(_: str, value: Any) -> object:
    """Return the operators a file chooses."""
    from aoe.tuner.operator_choice import given_operators

    return given_operators(Path(value))
