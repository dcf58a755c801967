"""The command `aoe` as another program: it keeps what it is run with, and ends as it is told."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

_PROGRAM = """#!{python} -SE
import json, os, sys
folder = {folder!r}
arguments = sys.argv[sys.argv.index("aoe") + 1 :]  # -P -m aoe
given = [one.partition("=")[2] for one in arguments]
files = {{}}
for path in given:
    names = [path] if os.path.isfile(path) else [os.path.join(path, n) for n in os.listdir(path)] \\
        if os.path.isdir(path) else []
    for name in names:
        with open(name, encoding="utf-8", errors="replace") as file:
            files[os.path.relpath(name, path) if name != path else name] = file.read()
number = len(os.listdir(folder))
with open(os.path.join(folder, f"{{number:04}}.json"), "w") as file:
    json.dump([arguments, dict(os.environ), os.getcwd(), files], file)
sys.exit({code})
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRun:
    """One call of the command."""

    arguments: list[str]  # Its own
    env: Mapping[str, str]  # Its environment variables
    cwd: Path  # The directory it ran in
    # Text of the files its arguments name, and of those in directories they name.
    files: Mapping[str, str]


class ScriptedCommand:
    """Stands in for `aoe` in processes of this one, through `AOE_ENGINE_PYTHON`.

    Args:
        folder: Where it keeps what it was run with; made here.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._program, self._seen = folder / "python", folder / "seen"
        self._seen.mkdir(parents=True)
        self.ends_with(0)
        patch.setenv("AOE_ENGINE_PYTHON", str(self._program))

    def ends_with(self, code: int) -> None:
        """Let it end with a code from now on."""
        self._program.write_text(
            _PROGRAM.format(python=sys.executable, folder=str(self._seen), code=code)
        )
        self._program.chmod(0o755)

    @property
    def runs(self) -> list[CommandRun]:
        """What it was run with so far, in order."""
        return [
            CommandRun(arguments=arguments, env=env, cwd=Path(cwd), files=files)
            for arguments, env, cwd, files in (
                json.loads(file.read_text()) for file in sorted(self._seen.iterdir())
            )
        ]
