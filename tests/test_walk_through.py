"""docs/walk-through.md is run as it stands, in an empty folder, and shows what it says it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "walk-through.md").read_text(encoding="utf-8")
# a block, and what is shown of its output
BLOCK = re.compile(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
STEPS = [(script, shown or "") for script, shown in BLOCK.findall(PAGE)]
LIMIT_S = 600
_MARK = "=== step"


def _programs(folder: Path) -> Path:
    """Make the commands a person would have installed."""
    folder.mkdir()
    calls = {
        "python": '"$@"',
        "aoe": "-c 'from aoe.cli.app import main; main()' \"$@\"",
        "aoebank": "-c 'import sys; from aoebank.cli.app import main; sys.exit(main())' \"$@\"",
    }
    for name, arguments in calls.items():
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}\n')
        program.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return what each block wrote; the first that fails ends the walk."""
    root = tmp_path_factory.mktemp("walk")
    home, work = root / "home", root / "work"
    home.mkdir()
    work.mkdir()
    (home / ".gitconfig").write_text("[user]\n  name = Ann\n  email = ann@example.org\n")
    script = "".join(f"echo '{_MARK}'\n{block}" for block, _ in STEPS)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=work,
        env={
            **os.environ,
            "HOME": str(home),
            "PATH": f"{_programs(root / 'bin')}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "COLUMNS": "200",
            "AOE_ACCEPT_BUSY": "True",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout.split(f"{_MARK}\n")[1:]


def test_blocks_all_end_well(outputs: list[str]) -> None:
    assert len(outputs) == len(STEPS) > 5


@pytest.mark.parametrize("number", [n for n, (_, shown) in enumerate(STEPS) if shown])
def test_block_writes_what_is_shown(number: int, outputs: list[str]) -> None:
    lines = (line.rstrip() for line in outputs[number].splitlines())
    # the machine of a test may be busy, which the walk accepts and the last line of a run then says
    written = [
        re.sub(r", (measured on a busy machine|by CPU time: .*)$", "", line) for line in lines
    ]
    for line in STEPS[number][1].splitlines():
        pattern = ".*".join(map(re.escape, line.split("...")))
        assert any(re.fullmatch(pattern, text) for text in written), (
            f"{line}\nis not in\n" + "\n".join(written)
        )
