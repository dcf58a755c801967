"""What a command loads before it does anything: no time is measured, modules are counted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BANKS = Path(__file__).resolve().parents[2] / "sample_banks"
# what takes long to import, or belongs to other commands
HEAVY = (
    "aoe",
    "aoebank.merging",
    "aoebank.storage.git",
    "aoebank.storage.history",
    "aoebank.storage.writing.staged",
    "concurrent.futures",
    "jsonschema",
    "multiprocessing",
    "rich",
    "secrets",
    "sqlite3",
    "sqlite_utils",
)
_PROGRAM = """
import sys
from aoebank.cli import main
code = main(sys.argv[1:])
print(*sorted(sys.modules), file=sys.stderr)
sys.exit(code)
"""


def _loaded(*arguments: str) -> set[str]:
    """Run a command and return the modules it has loaded by its end."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=dict(os.environ),
        check=True,
    )
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("arguments", [("ls", str(BANKS)), ("ls", "--help"), ("--version",)])
def test_command_loads_nothing_of_other_commands(arguments: tuple[str, ...]) -> None:
    assert not _loaded(*arguments) & {*HEAVY}


def test_statistics_are_loaded_only_where_a_side_car_tells_speedups(tmp_path: Path) -> None:
    file = tmp_path / "x86-64-v4" / "unified_bank" / "x86-64-v4_1_AiCore_softmax.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    assert "statistics" not in _loaded("ls", str(tmp_path))
    assert "statistics" in _loaded("ls", str(BANKS))
