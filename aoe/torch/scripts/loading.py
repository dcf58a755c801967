"""Loads what an earlier run has tuned of a training: `set_option` with its directory of results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoe.errors import OptionError

if TYPE_CHECKING:
    from aoe.torch.scripts.compiling import ScriptTraining

SCHEMA = "aoe.training/1"
TRAINING_FILE = "training.json"
"""In a directory of results: what a script's training was tuned to."""
_loading: list[ScriptTraining] = []
"""What watches this process; at most one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedTraining:
    """A directory of results that has a training."""

    bank: Path | None  # Root of its bank, None where that is not there any more
    is_slower: bool  # True if whole steps were slower as tuned: nothing is to be loaded


def training_of_results(directory: Path) -> TunedTraining | None:
    """Return the tuned training of a directory of results; None if it has none.

    Raises:
        OptionError: its file is damaged, or of another version.
    """
    file = directory / TRAINING_FILE
    if not file.is_file():
        return None
    try:
        document = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise OptionError(str(file), f"cannot be read: {error}") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise OptionError(str(file), "unknown version of a training", expected=SCHEMA)
    bank = document.get("bank")
    is_there = isinstance(bank, str) and Path(bank).is_dir()
    steps = document.get("steps")
    return TunedTraining(
        bank=Path(str(bank)) if is_there else None,
        is_slower=isinstance(steps, dict) and steps.get("outcome") == "slower",
    )


def load_training(options: Mapping[str, Any], **how: Any) -> ScriptTraining:
    """Compute what is trained from here on as it was tuned.

    Args:
        options: Of `torch.compile(..., backend="aoe")`; they only look up.
        how: More of `ScriptTraining`.

    Returns:
        What watches this process.
    """
    from aoe.torch.scripts.compiling import ScriptTraining

    end_loading()
    watching = ScriptTraining(options, **how)
    watching.start()
    _loading.append(watching)
    return watching


def end_loading() -> None:
    """Load no further modules; those that are compiled stay so."""
    for watching in _loading:
        watching.close()
    _loading.clear()
