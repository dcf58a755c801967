"""What a script or `AOE_MODE` asks for, checked; the script counts more."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aoe.errors import OptionError, unknown_name
from aoe.tuner.mode import parse_optimization_level
from aoe.tuner.operator_choice import NAMES, TYPES, OperatorChoice, operator_choice

MODES = {"1": "subgraph", "2": "operator"}
_DEFAULT_MODE = "2"
_LEVEL, _FEATURE = "tune_optimization_level", "feature"
_UNEVEN = "nonhomo_split"
_FEATURES = {"deeper_opat": 2, _UNEVEN: 1}
"""By name, the mode it is for."""
_KEYS = (NAMES, TYPES, _LEVEL, _FEATURE)
"""Source: CANN, `aoe_config_file` of TensorFlow's adapter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptOptions:
    """How the graphs of a script are tuned: options of `aoe` by their names in `TuneSettings`."""

    job_type: int
    """AOE's number of the mode."""
    work_path: Path
    """Directory for the results; it exists."""
    tune_ops: OperatorChoice | None = None
    nonhomo_split: bool = False


def script_options(
    aoe_mode: str | int | None,
    work_path: str | os.PathLike[str] | None,
    aoe_config_file: str | os.PathLike[str] | None,
    *,
    env: Mapping[str, str],
    cwd: Path,
    warn: Callable[[str], None],
) -> ScriptOptions:
    """Return the options of a script.

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
    options = ScriptOptions(job_type=int(mode), work_path=folder)
    if aoe_config_file is None:
        return options
    return _following(cwd / aoe_config_file, options, warn)


def _following(file: Path, options: ScriptOptions, warn: Callable[[str], None]) -> ScriptOptions:
    """Return options with what a file says; what makes no difference is told."""
    where = f"aoe_config_file={file}"
    try:
        value: Any = json.loads(file.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise OptionError(where, f"cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise OptionError(where, "not a JSON object", got=type(value).__name__)
    for name in value:
        if name not in _KEYS:
            raise unknown_name(where, "unknown key", name, _KEYS)
    tune_ops = operator_choice(where, value)
    if tune_ops is not None and MODES[str(options.job_type)] != "operator":
        raise OptionError(
            where,
            "operators are chosen for operator tuning only",
            got=f"aoe_mode={options.job_type}",
        )
    _check_level(where, value.get(_LEVEL), warn)
    features = _features(where, value.get(_FEATURE, []), options.job_type, warn)
    return replace(options, tune_ops=tune_ops, nonhomo_split=_UNEVEN in features)


def _check_level(where: str, level: Any, warn: Callable[[str], None]) -> None:
    if level is not None:
        parse_optimization_level(level, f"{where}, {_LEVEL}")
        warn(f"{where}: {_LEVEL} is passed over: time goes where gains are expected")


def _features(
    where: str, features: Any, job_type: int, warn: Callable[[str], None]
) -> tuple[str, ...]:
    """Return the features a file asks for; one that changes nothing in a mode is told."""
    if not isinstance(features, list) or not all(one in _FEATURES for one in features):
        raise OptionError(
            f"{where}, {_FEATURE}",
            "no list of features",
            got=repr(features),
            expected=" or ".join(_FEATURES),
        )
    for one in features:
        if _FEATURES[one] != job_type:
            warn(f"{where}: {one} is passed over: it is for aoe_mode={_FEATURES[one]}")
        elif one != _UNEVEN:
            warn(f"{where}: {one} is passed over: searches are as deep as trials= says")
    return tuple(one for one in features if _FEATURES[one] == job_type)
