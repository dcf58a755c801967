"""Pages that are one story are run as they stand, in an empty folder, and show what they say.

The first story of docs/walk-through.md tunes; the second one needs git and the sample banks only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# a block, and what is shown of its output
BLOCK = re.compile(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
STORIES = [pytest.param(1, id="team"), pytest.param(0, id="tune", marks=pytest.mark.slow)]
LIMIT_S = 600
_MARK = "=== step"


def _steps(story: int) -> list[tuple[str, str]]:
    """Return the blocks of a story, each with what is shown of its output."""
    page = (ROOT / "docs" / "walk-through.md").read_text(encoding="utf-8")
    text = re.split(r"^## (?!#)", page, flags=re.MULTILINE)[1 + story]
    return [(script, shown or "") for script, shown in BLOCK.findall(text)]


def _programs(folder: Path) -> Path:
    """Make the commands a person would have installed."""
    folder.mkdir()
    calls = {
        "python": '"$@"',
        "aoe": "-c 'from aoe.cli.app import main; main()' \"$@\"",
        "aoebank": "-c 'import sys; from aoebank.cli import main; sys.exit(main())' \"$@\"",
    }
    for name, arguments in calls.items():
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}\n')
        program.chmod(0o755)
    return folder


def _outputs(story: int, root: Path) -> list[str]:
    """Return what each block wrote; the first that fails ends the story."""
    home, work = root / "home", root / "work"
    home.mkdir()
    work.mkdir()
    shutil.copytree(ROOT / "sample_banks", work / "sample_banks")
    (home / ".gitconfig").write_text("[user]\n  name = Ann\n  email = ann@example.org\n")
    script = "".join(f"echo '{_MARK}'\n{block}" for block, _ in _steps(story))
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


@pytest.mark.parametrize("story", STORIES)
def test_every_block_of_a_story_ends_well_and_writes_what_is_shown(
    story: int, tmp_path: Path
) -> None:
    steps, outputs = _steps(story), _outputs(story, tmp_path)
    assert len(outputs) == len(steps) > 5
    missing = [
        f"{line}\nis not in\n{output}"
        for (_, shown), output in zip(steps, outputs, strict=True)
        for line in shown.splitlines()
        if not _is_written(line, output)
    ]
    assert not missing, "\n".join(missing)


def _is_written(line: str, output: str) -> bool:
    """True if a line is in an output; `...` stands for any text."""
    pattern = ".*".join(map(re.escape, line.split("...")))
    # the machine of a test may be busy, which the walk accepts and the last line of a run then says
    busy = re.compile(r", (measured on a busy machine|by CPU time: .*)$")
    written = (busy.sub("", text.rstrip()) for text in output.splitlines())
    return any(re.fullmatch(pattern, text) for text in written)
