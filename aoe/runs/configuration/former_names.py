"""Parameters of `aoe.tune` under the names they had before those of options and settings."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from aoe.errors import OptionError

P = ParamSpec("P")
R = TypeVar("R")

_FORMER = {
    "batch": "tuning_parallel_num",
    "cache_dir": "op_compiler_cache_dir",
    "cache_mode": "op_compiler_cache_mode",
    "core_num": "aicore_num",
    "device_id": "device",
    "kernel_memory_mib": "kernel_memory",
    "stages": "stage",
    "tuning_time_limit_s": "tuning_time_limit",
}
"""Deprecated name and present name."""


def with_former_names(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that takes parameters under their former names, too.

    Raises:
        OptionError: one is given under both names.
    """

    @wraps(function)
    def called(*args: P.args, **given: P.kwargs) -> R:
        for old in _FORMER.keys() & given.keys():
            new = _FORMER[old]
            if new in given:
                raise OptionError(old, f"given together with {new}", got=given[old])
            given[new] = given.pop(old)
        return function(*args, **given)

    return called
