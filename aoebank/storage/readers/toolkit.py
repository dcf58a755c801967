"""Whether a machine has a CANN toolkit: where its programs and their set-up would be."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

_VARIABLES = ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH", "ASCEND_OPP_PATH")
_PROGRAM = "atc"
_PLACES = ("/usr/local/Ascend/cann", "/usr/local/Ascend/ascend-toolkit/latest")
_BELOW_HOME = ("Ascend/cann", "Ascend/ascend-toolkit/latest")
"""Source: CANN documentation, installation as root and as another user."""


def find_toolkit(env: Mapping[str, str]) -> str:
    """Return what shows that there is a toolkit, the empty string if nothing does.

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


def _is_bank_only(place: Path) -> bool:
    """True for a folder that exists because banks lie below it by default."""
    return [entry.name for entry in place.iterdir()] == ["data"]
