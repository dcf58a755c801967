"""Makes `tests/support` importable for benchmarks: models and contracts that tests have, too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
