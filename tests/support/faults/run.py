"""Try faults in a copy of the repository: edit one file, run a few tests, put it back."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

from support.faults.table import Fault

TIERS = {"everyday": (), "slow": ("-m", "not gpu")}  # options of pytest; slow: both tiers
_LEFT_OUT = (".git", "__pycache__", "*.egg-info", ".*_cache", "changes")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", re.MULTILINE)
_TIMEOUT_S = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What became of one fault."""

    fault: Fault
    caught_by: str = ""  # Id of the test that failed; empty if all passed
    trouble: str = ""  # Why the tests gave no answer; empty if they did

    def __str__(self) -> str:
        """Return the line about it."""
        if self.trouble:
            return f"{self.fault.name}: NO ANSWER, {self.trouble}"
        found = f"caught by {self.caught_by}" if self.caught_by else "NOT CAUGHT"
        return f"{self.fault.name}: {found}"


def copy_repository(root: Path, tree: Path) -> None:
    """Copy what tests need: they put the folder they lie in first on the path of modules."""
    shutil.copytree(root, tree, ignore=shutil.ignore_patterns(*_LEFT_OUT), symlinks=True)


@contextmanager
def planted(fault: Fault, tree: Path) -> Iterator[None]:
    """Have a fault in a tree."""
    file = tree / fault.file
    text = file.read_text()
    try:
        _write(file, fault.applied(text))
        yield
    finally:
        _write(file, text)


def try_fault(fault: Fault, tree: Path, tier: str = "everyday") -> Trial:
    """Run the tests of a fault, with the fault, until one fails."""
    with planted(fault, tree):
        try:
            ended = _run_tests([*TIERS[tier], *fault.tests], tree)
        except subprocess.TimeoutExpired:
            return Trial(fault=fault, trouble=f"its tests take more than {_TIMEOUT_S} s")
    failed = _FAILED.search(ended.stdout)
    if ended.returncode == 1 and failed:
        return Trial(fault=fault, caught_by=failed[1])
    if ended.returncode == 0:
        return Trial(fault=fault)
    last = (ended.stdout + ended.stderr).strip().rpartition("\n")[2]
    return Trial(fault=fault, trouble=f"pytest ended with {ended.returncode}: {last}")


def _run_tests(options: Sequence[str], tree: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "0",
            "-x",
            "-rfE",
            "-p",
            "no:cacheprovider",
            *options,
        ],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "COLUMNS": "500"},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )


def _write(file: Path, text: str) -> None:
    """Write a module; a compiled one of the same second and size would be taken for its own."""
    file.write_text(text)
    Path(cache_from_source(str(file))).unlink(missing_ok=True)
