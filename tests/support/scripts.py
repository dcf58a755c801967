"""Scripts of `docs` and `benchmarks`, folders that are no packages."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def load_script(place: str) -> ModuleType:
    """Return a script, by its path below the top folder, as a module; its folder is importable."""
    file = ROOT / place
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    return importlib.import_module(file.stem)
