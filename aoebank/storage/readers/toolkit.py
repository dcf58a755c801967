"""Search for a CANN toolkit, and for its own `aoe` and `atc`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_VARIABLES = ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH", "ASCEND_OPP_PATH")
_HOMES = ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH")
_PROGRAM = "atc"
_BELOW = {
    "aoe": ("bin/aoe", "tools/aoe/bin/aoe"),
    "atc": ("bin/atc", "compiler/bin/atc", "atc/bin/atc"),
}
"""Where a program lies in a toolkit; the older places behind the newer ones."""
_SCRIPT_BYTES = 4096
_PLACES = ("/usr/local/Ascend/cann", "/usr/local/Ascend/ascend-toolkit/latest")
_BELOW_HOME = ("Ascend/cann", "Ascend/ascend-toolkit/latest")
"""Source: CANN documentation, installation as root and as another user."""


def find_toolkit(env: Mapping[str, str]) -> str:
    """Return the sign of a toolkit, the empty string if there is none.

    CANN's own `aoe` has the name of this engine's, so it shows nothing.

    Args:
        env: Environment to go by.
    """
    for name in _VARIABLES:
        if env.get(name):
            return name
    home = env.get("HOME")
    below = [Path(home) / place for place in _BELOW_HOME] if home else []
    for place in (*map(Path, _PLACES), *below):
        if place.is_dir() and not _is_bank_only(place):
            return str(place)
    return shutil.which(_PROGRAM, path=env.get("PATH")) or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CannSearch:
    """Result of the search for a program of CANN."""

    program: Path | None  # What was found, None if it was not
    tried: tuple[str, ...]  # Each place in order, with what was there instead


def find_cann_program(env: Mapping[str, str], name: str = "aoe") -> CannSearch:
    """Look for a program of a CANN toolkit; one that starts this engine is passed over.

    Args:
        env: Environment to go by.
        name: `aoe` or `atc`.
    """
    tried = []
    for place, program in _cann_programs(env, name):
        if program is None:
            tried.append(place)
        elif not os.access(program, os.X_OK) or not program.is_file():
            tried.append(f"{place}: none")
        elif _is_this_engine(program):
            tried.append(f"{place}: that is this program")
        else:
            return CannSearch(program=program, tried=tuple(tried))
    return CannSearch(program=None, tried=tuple(dict.fromkeys(tried)))


def _cann_programs(env: Mapping[str, str], name: str) -> Iterator[tuple[str, Path | None]]:
    """Yield each place to look at with the program that would be there, None if there is none."""
    for variable in _HOMES:
        if not env.get(variable):
            yield f"{variable} is not set", None
        for below in _BELOW[name] if env.get(variable) else ():
            yield f"{variable}={env[variable]}", Path(env[variable]) / below
    home = env.get("HOME")
    roots = [*map(Path, _PLACES), *(Path(home) / place for place in _BELOW_HOME if home)]
    for root in roots:
        for below in _BELOW[name]:
            yield str(root), root / below
    folders = [folder for folder in env.get("PATH", "").split(os.pathsep) if folder]
    for folder in folders:
        if (Path(folder) / name).exists():
            yield f"PATH, {folder}", Path(folder) / name
    compiler = shutil.which(_PROGRAM, path=env.get("PATH", ""))
    if compiler is None:
        yield f"no {_PROGRAM} in PATH", None
        return
    for below in _BELOW[name]:
        yield f"beside {compiler}", Path(compiler).resolve().parent.parent / below


def _is_this_engine(program: Path) -> bool:
    """True for a script that starts this engine, wherever pip or somebody else has put it."""
    try:
        with program.open("rb") as file:
            start = file.read(_SCRIPT_BYTES)
    except OSError:
        return False
    return b"aoe.cli" in start or b"-m aoe" in start


def _is_bank_only(place: Path) -> bool:
    """True for a folder that exists because banks lie below it by default."""
    return [entry.name for entry in place.iterdir()] == ["data"]
