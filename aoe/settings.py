"""Environment variables of a run, checked once."""

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from aoe.errors import OptionError, OutputError

LARGEST_SEED = 2**32 - 1
"""Source: `random_state` of scikit-learn, a 32-bit unsigned integer."""
_CACHE_SIZE = "10G"
LOCKS = "/tmp/aoe-locks"
"""Not in TMPDIR, which may be another one for other users."""
_TELEMETRY_SWITCH = "ORT_DISABLE_TELEMETRY"


def environment() -> Mapping[str, str]:
    """Return a copy of the process's environment variables."""
    return dict(os.environ)


def turn_off_telemetry() -> bool:
    """Set `ORT_DISABLE_TELEMETRY` for this process and its children, unless the user has set it.

    Returns:
        True if the user has left it to us.
    """
    return os.environ.setdefault(_TELEMETRY_SWITCH, "1") == "1"


def parse_switch(name: str, value: str | None, *, default: bool) -> bool:
    """Return the value of an on/off option or of a True/False variable.

    Raises:
        OptionError: the text is neither.
    """
    if value is None or value == "":
        return default
    words = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}
    if value.lower() not in words:
        words_of = "on or off" if name.startswith("-") else "True or False"
        raise OptionError(name, "not a switch", got=repr(value), expected=words_of)
    return words[value.lower()]


def parse_whole(name: str, value: object, *, least: int = 0, most: int | None = None) -> int:
    """Return a whole number that was given as a number or as its text.

    Args:
        name: Option or parameter.
        value: What was given.
        least: Smallest that is allowed.
        most: Largest that is allowed; None for no bound.

    Raises:
        OptionError: it is none, or out of range.
    """
    expected = f"{least} to {most}" if most is not None else f"{least} or more"
    try:
        if isinstance(value, bool):
            raise TypeError
        number = int(value) if isinstance(value, str) else operator.index(cast(Any, value))
    except (TypeError, ValueError):
        raise OptionError(name, "not a whole number", got=repr(value), expected=expected) from None
    if number < least or (most is not None and number > most):
        raise OptionError(name, "out of range", got=number, expected=expected)
    return number


def parse_seconds(name: str, value: object) -> float:
    """Return a number of seconds that was given as a number or as its text.

    Raises:
        OptionError: it is none, negative, infinite or NaN.
    """
    try:
        number = math.nan if isinstance(value, bool) else float(cast(Any, value))
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise OptionError(name, "not a number of seconds", got=repr(value), expected="0 or more")
    return number


def repeat_tune(env: Mapping[str, str]) -> bool:
    """Return `REPEAT_TUNE`: True to tune workloads which the bank already has."""
    return parse_switch("REPEAT_TUNE", env.get("REPEAT_TUNE"), default=False)


def accept_busy(env: Mapping[str, str]) -> bool:
    """Return `AOE_ACCEPT_BUSY`: True to believe figures taken on a busy machine."""
    return parse_switch("AOE_ACCEPT_BUSY", env.get("AOE_ACCEPT_BUSY"), default=False)


def tensorflow_python(env: Mapping[str, str]) -> str:
    """Return `AOE_TENSORFLOW_PYTHON`: the Python that has TensorFlow, empty for this one."""
    return env.get("AOE_TENSORFLOW_PYTHON", "")


def engine_python(env: Mapping[str, str]) -> str:
    """Return `AOE_ENGINE_PYTHON`: the Python that has the engine, empty for this one."""
    return env.get("AOE_ENGINE_PYTHON", "")


def with_bank(env: Mapping[str, str], bank: Path, *, writes: bool = True) -> Mapping[str, str]:
    """Return an environment that names this bank root, which is made if it is missing.

    Args:
        env: The process's environment.
        bank: The root.
        writes: False for what only looks records up.

    Raises:
        OutputError: it cannot be made, or may not be used.
    """
    place = f"bank={bank}"
    try:
        bank.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(place, f"cannot be created: {error.strerror}") from error
    if not os.access(bank, os.R_OK | os.X_OK | (os.W_OK if writes else 0)):
        needed = "read, write and search" if writes else "read and search"
        raise OutputError(place, "may not be used", expected=f"permission to {needed} it")
    return {**env, "TUNE_BANK_PATH": str(bank.resolve())}


def work_path(env: Mapping[str, str], cwd: Path, output: Path | None = None) -> Path:
    """Return the folder of AOE's result file: `$ASCEND_WORK_PATH/aoe_data`, `output`, or `cwd`.

    Args:
        env: The process's environment.
        cwd: Working directory.
        output: Folder of `--output`, None without it.

    Raises:
        OutputError: the variable names something that is no directory or cannot be created.
    """
    named = env.get("ASCEND_WORK_PATH")
    if not named:
        return cwd if output is None else output
    path = cwd / named / "aoe_data"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            "ASCEND_WORK_PATH",
            f"cannot be used: {error}",
            got=named,
            hint="give a directory you may write to, or unset it",
        ) from error
    return path


def lock_path(env: Mapping[str, str]) -> Path:
    """Return the place of the locks by which runs of all users take turns: `AOE_LOCK_PATH`."""
    return Path(env.get("AOE_LOCK_PATH") or LOCKS)


def cache_path(env: Mapping[str, str]) -> Path | None:
    """Return the folder of unpacked `.om` files, None if there is no home."""
    if env.get("XDG_CACHE_HOME"):
        return Path(env["XDG_CACHE_HOME"]) / "aoe"
    return Path(env["HOME"]) / ".cache" / "aoe" if env.get("HOME") else None


def cache_limit(env: Mapping[str, str]) -> int:
    """Return bytes of unpacked `.om` files that are kept: `AOE_CACHE_SIZE`, 0 for none.

    Raises:
        OptionError: not a size.
    """
    text = env.get("AOE_CACHE_SIZE") or _CACHE_SIZE
    match = re.fullmatch(r"(\d{1,15})([KMGT]?)B?", text.strip().upper())
    if match is None:
        raise OptionError(
            "AOE_CACHE_SIZE", "not a size", got=repr(text), expected="bytes, or 500M, 10G; 0 is off"
        )
    return int(match[1]) << 10 * " KMGT".index(match[2] or " ")
