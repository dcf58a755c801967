"""The files settings are read from: `sgat_config.json` of `--config`, and `aoe.ini`.

Source: AOE documentation, aoe.ini (section COMMON) and where it lies in a toolkit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as IniError
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from aoe.errors import OptionError
from aoe.runs.configuration.options import SETTINGS

INI_NAME = "aoe.ini"
_SECTION = "COMMON"
_IN_TOOLKIT = (f"tools/aoe/conf/{INI_NAME}", f"conf/{INI_NAME}")
_TOOLKITS = ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH")
_TEXT_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*')
_KEYS = {row.key: row.name for row in SETTINGS.values() if row.key}
_INI_KEYS = {row.ini_key: row.name for row in SETTINGS.values() if row.ini_key}


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsFile:
    """What a file says."""

    path: Path
    """The file."""
    values: Mapping[str, object]
    """By name of the setting, as the file has them."""
    keys: Mapping[str, str]
    """By name of the setting, what the file calls it."""


def read_config(path: Path) -> SettingsFile:
    """Return the settings of a `--config` file: JSON with `//` comments, or an `.ini`.

    Raises:
        OptionError: it cannot be read, or has a key nobody knows.
    """
    if path.suffix == ".ini":
        return _read_ini(path, strict=True)
    place = f"--config {path}"
    try:
        text = path.read_text(encoding="utf-8-sig")
        members = json.loads(_TEXT_OR_COMMENT.sub(r"\1", text), object_pairs_hook=_each_once)
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(place, error, '{"tuning_time_limit": 600}') from error
    if not isinstance(members, dict):
        raise OptionError(place, "not an object", expected='{"tuning_time_limit": 600}')
    return _settings_file(path, place, members, _KEYS, strict=True)


def find_ini(env: Mapping[str, str], cwd: Path) -> SettingsFile | None:
    """Return the first `aoe.ini`: of this directory, the user's, of a toolkit; None without one.

    Keys only CANN knows are passed over in a toolkit's.

    Raises:
        OptionError: it cannot be read, or has a key nobody knows.
    """
    for path, is_ours in ini_places(env, cwd):
        if path.is_file():
            return _read_ini(path, strict=is_ours)
    return None


def ini_places(env: Mapping[str, str], cwd: Path) -> Iterator[tuple[Path, bool]]:
    """Yield where an `aoe.ini` may lie, in order, and whether it would be for this program."""
    yield cwd / INI_NAME, True
    if env.get("XDG_CONFIG_HOME"):
        yield Path(env["XDG_CONFIG_HOME"]) / "aoe" / INI_NAME, True
    elif env.get("HOME"):
        yield Path(env["HOME"]) / ".config" / "aoe" / INI_NAME, True
    for variable in _TOOLKITS:
        if env.get(variable):
            yield from ((Path(env[variable]) / place, False) for place in _IN_TOOLKIT)


def _read_ini(path: Path, *, strict: bool) -> SettingsFile:
    parser = ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#", ";", "//"))
    parser.optionxform = str.upper  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, IniError) as error:
        raise _unreadable(str(path), error, "[COMMON] and lines such as RUN_LOOP=10") from error
    unknown = next((name for name in parser.sections() if name != _SECTION), None)
    if strict and unknown is not None:
        raise OptionError(str(path), "no such section", got=f"[{unknown}]", expected="[COMMON]")
    found = dict(parser[_SECTION]) if parser.has_section(_SECTION) else {}
    return _settings_file(path, str(path), found, _INI_KEYS, strict=strict)


def _settings_file(
    path: Path, place: str, members: Mapping[str, object], known: Mapping[str, str], *, strict: bool
) -> SettingsFile:
    if strict:
        for key in members.keys() - known.keys():
            raise OptionError(
                place,
                "no such setting",
                got=repr(key),
                expected=" or ".join(known),
                hint=_nearest(key, list(known)),
            )
    given = {known[key]: (key, value) for key, value in members.items() if key in known}
    return SettingsFile(
        path=path,
        values={name: value for name, (_, value) in given.items()},
        keys={name: key for name, (key, _) in given.items()},
    )


def _nearest(key: str, known: Sequence[str]) -> str | None:
    close = get_close_matches(key.lower(), [one.lower() for one in known], n=1, cutoff=0.5)
    return next((f"did you mean {one}?" for one in known if one.lower() in close), None)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(n for n in names if names.count(n) > 1)!r} is there twice")
    return found


def _unreadable(place: str, error: Exception, form: str) -> OptionError:
    what = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
    return OptionError(place, f"cannot be read: {what}", expected=form)
