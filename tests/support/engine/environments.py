"""Environment variables of a tuning run that is started by a test."""

from __future__ import annotations

import os
from pathlib import Path


def run_environment(bank: Path) -> dict[str, str]:
    """Return the variables of a run with this bank; compiled kernels are shared by all runs."""
    kept = {name: os.environ[name] for name in ("PATH", "XDG_CACHE_HOME")}
    return {**kept, "TUNE_BANK_PATH": str(bank)}
