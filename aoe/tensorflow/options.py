"""What a script or `AOE_MODE` asks for, checked; the script counts more."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from aoe.errors import OptionError

MODES = {"1": "subgraph", "2": "operator"}
_DEFAULT_MODE = "2"
_KEYS = ("tune_ops_name", "tune_ops_type", "tune_optimization_level", "feature")
"""Source: CANN, `aoe_config_file` of TensorFlow's adapter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptOptions:
    """How the graphs of a script are tuned.

    Attributes:
        job_type: AOE's number of the mode.
        work_path: Directory for the results; it exists.
    """

    job_type: int
    work_path: Path


def script_options(
    aoe_mode: str | int | None,
    work_path: str | os.PathLike[str] | None,
    aoe_config_file: str | os.PathLike[str] | None,
    *,
    env: Mapping[str, str],
    cwd: Path,
    warn: Callable[[str], None],
) -> ScriptOptions:
    """Return what is asked for.

    Args:
        aoe_mode: Of the script; None for `AOE_MODE`, and operators without it.
        work_path: Of the script; None for the working directory.
        aoe_config_file: JSON file; None for none.
        env: Environment variables.
        cwd: Directory relative paths are taken from.
        warn: Is told what is passed over.

    Raises:
        OptionError: a mode or a path that cannot be meant, or a file that cannot be followed.
    """
    where = "AOE_MODE" if aoe_mode is None else "aoe_mode"
    mode = str(aoe_mode if aoe_mode is not None else env.get("AOE_MODE") or _DEFAULT_MODE)
    if mode == "4":
        raise OptionError(
            where,
            "gradients of TensorFlow are not tuned",
            got=mode,
            expected="1 or 2",
            hint="gradient tuning is for PyTorch: aoe --job_type=4 --script=TRAIN.py",
        )
    if mode not in MODES:
        raise OptionError(where, "no mode", got=repr(mode), expected="1 (subgraphs), 2 (operators)")
    folder = cwd / (work_path or "")
    if not folder.is_dir() or not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise OptionError(
            "work_path", "not a directory that can be read and written", got=str(work_path or cwd)
        )
    if aoe_config_file is not None:
        _follow(cwd / aoe_config_file, warn)
    return ScriptOptions(job_type=int(mode), work_path=folder)


def _follow(file: Path, warn: Callable[[str], None]) -> None:
    """Check a file; what it selects is refused, what makes no difference is passed over."""
    where = f"aoe_config_file={file}"
    try:
        value: Any = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise OptionError(where, f"cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise OptionError(where, "not a JSON object", got=type(value).__name__)
    for name, found in value.items():
        if name not in _KEYS:
            near = get_close_matches(name, _KEYS, n=1)
            expected = f"did you mean {near[0]}?" if near else ", ".join(_KEYS)
            raise OptionError(where, "unknown key", got=name, expected=expected)
        if name.startswith("tune_ops"):
            _refuse_selection(where, name, found)
        else:
            warn(f"{where}: {name} is passed over: there is one level, and all is on")


def _refuse_selection(where: str, name: str, found: Any) -> None:
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise OptionError(f"{where}, {name}", "not a list of names", got=repr(found))
    if found:
        raise OptionError(
            f"{where}, {name}",
            "operators cannot be selected; all that are worth it are tuned",
            got=", ".join(found),
            hint=f"leave {name} out, or bound the time: enable(tuning_time_limit=...)",
        )
