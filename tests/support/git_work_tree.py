"""Real git in a folder of its own, with this project's drivers and nobody's settings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from aoebank import JsonValue, Record
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.registry import find_format
from support import golden_harness
from support import sample_bank_files as samples

ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = f"""#!/bin/sh
exec '{sys.executable}' -W ignore -c \
'import sys; sys.path.insert(0, "{ROOT}"); from aoebank.cli import main; sys.exit(main())' "$@"
"""


class WorkTree:
    """A git work tree and what people do in it.

    Attributes:
        env: Environment of git and its drivers: settings of nobody, `aoebank` on PATH.
    """

    def __init__(self, folder: Path) -> None:
        self.top = folder / "clone"
        self.home = folder / "home"
        programs = self.home / "bin"
        self.env: Mapping[str, str] = {
            "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.home),
            "GIT_CONFIG_GLOBAL": str(self.home / ".gitconfig"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "LC_ALL": "C.UTF-8",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_EDITOR": "true",
        }
        if self.top.exists():
            return
        programs.mkdir(parents=True)
        program = programs / "aoebank"
        program.write_text(_PROGRAM)
        program.chmod(0o755)
        (self.home / ".gitconfig").write_text(
            "[user]\nname = a\nemail = a@b\n[init]\ndefaultBranch = main\n"
            "[advice]\ndetachedHead = false\n"
        )
        self.top.mkdir()
        self.git("init", "-q")

    def copy(self, folder: Path) -> WorkTree:
        """Return the same work tree, home included, in another folder."""
        shutil.copytree(self.top.parent, folder, dirs_exist_ok=True, symlinks=True)
        return WorkTree(folder)

    def run(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a program whatever it says."""
        return subprocess.run(
            words,
            cwd=cwd or self.top,
            env=dict(self.env),
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def git(self, *arguments: str, cwd: Path | None = None) -> str:
        """Run git, which must succeed; return what it wrote."""
        result = self.run("git", *arguments, cwd=cwd)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def try_git(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run git whatever it says."""
        return self.run("git", *arguments)

    def aoebank(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run this project's program, in this process: starting it takes longer than it does."""
        folder, environment = Path.cwd(), dict(os.environ)
        os.chdir(cwd or self.top)
        os.environ.clear()
        os.environ.update(self.env)
        try:
            outcome = golden_harness.run("aoebank", arguments)
        finally:
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)
        return subprocess.CompletedProcess(
            arguments, outcome.exit_code, outcome.stdout, outcome.stderr
        )

    def install(self, *options: str) -> None:
        """Register the drivers and commit `.gitattributes`."""
        result = self.aoebank("git", "install", *options)
        assert result.returncode == 0, result.stderr
        self.commit("attributes")

    def write(self, name: str, data: bytes) -> None:
        """Give a file of the work tree its content."""
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def read(self, name: str) -> bytes:
        """Return the content of a file of the work tree."""
        return (self.top / name).read_bytes()

    def commit(self, message: str, files: Mapping[str, bytes | None] | None = None) -> str:
        """Commit everything, after writing `files`; None deletes one."""
        for name, data in (files or {}).items():
            if data is None:
                (self.top / name).unlink()
            else:
                self.write(name, data)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD").strip()

    def fork(
        self,
        base: Mapping[str, bytes],
        ours: Mapping[str, bytes | None],
        theirs: Mapping[str, bytes | None],
    ) -> None:
        """Commit `base`, then `theirs` on the branch of that name and `ours` on main."""
        self.commit("base", base)
        self.git("checkout", "-q", "-b", "theirs")
        self.commit("theirs", theirs)
        self.git("checkout", "-q", "main")
        self.commit("ours", ours)


class SampleBank:
    """A sample bank file and edits of it, whatever its format is."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.data = path.read_bytes()
        self.keys = tuple(self.parse(self.data).keys)

    def parse(self, data: bytes) -> ParsedFile:
        """Return bytes as a file of this name."""
        known = find_format(Path(self.name))
        assert known is not None
        return known.parse(data, Path(self.name))

    def records(self, data: bytes) -> dict[str, Record]:
        """Return the records of bytes by key; there is one of each."""
        parsed = self.parse(data)
        assert len({*parsed.keys}) == len(parsed.keys)
        assert not [finding for finding in parsed.findings if finding.severity == "error"]
        return {record.key: record for record in parsed.iter_records()}

    def without(self, *numbers: int, of: bytes | None = None) -> bytes:
        """Return the file without the records at these positions of the sample."""
        return self.edit(dict.fromkeys((self.keys[number] for number in numbers), None), of=of)

    def retimed(self, number: int, cost_us: float, of: bytes | None = None) -> bytes:
        """Return the file with another time of one record."""
        return self.changed(number, lambda record: replace(record, cost_us=cost_us), of=of)

    def changed(
        self, number: int, change: Callable[[Record], Record], of: bytes | None = None
    ) -> bytes:
        """Return the file with one record changed."""
        key = self.keys[number]
        return self.edit({key: change(self.records(of or self.data)[key])}, of=of)

    def bumped(self, number: int, by: int, of: bytes | None = None) -> bytes:
        """Return the file with the first integer in a strategy changed, or the number of a name."""
        return self.changed(
            number, lambda record: replace(record, strategy=_bump(record.strategy, by)[0]), of=of
        )

    def spoiled(self, number: int, of: bytes | None = None) -> bytes:
        """Return the file with nothing but `0` under one key, as only an object can have it."""
        parsed = self.parse(self.data if of is None else of)
        place = parsed.find(self.keys[number])
        assert place is not None
        member = f'"{self.keys[number]}": 0'.encode()
        return parsed.data[: parsed.starts[place]] + member + parsed.data[parsed.ends[place] :]

    def edit(self, changes: Mapping[str, Record | None], of: bytes | None = None) -> bytes:
        """Return the file with changes."""
        parsed = self.parse(self.data if of is None else of)
        return parsed.format.serialize(parsed, changes)


def _bump(value: JsonValue, by: int) -> tuple[JsonValue, bool]:
    """Return a value with its first integer changed, and whether there was one."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value + by, True
    if isinstance(value, str) and (number := re.search(r"(?<=_)\d+$", value)):
        return f"{value[: number.start()]}{int(number[0]) + by}", True
    members = dict(value) if isinstance(value, Mapping) else None
    items = list(members.values()) if members is not None else value
    if not isinstance(items, list):
        return value, False
    for place, item in enumerate(items):
        items[place], is_done = _bump(item, by)
        if is_done:
            return (dict(zip(members, items, strict=True)) if members else items), True
    return value, False


SAMPLES = {path.parent.name + "-" + path.stem[-12:]: SampleBank(path) for path in samples.ALL}
_EVERYDAY = ("unified_bank-3_runtime_kb", "cube-910B2_matmul")  # one of lines, one of one object
EVERY_FORMAT = pytest.mark.parametrize("bank", SAMPLES.values(), ids=SAMPLES.keys())
SOME_FORMATS = pytest.mark.parametrize(  # every format with `-m slow`: each is a merge by git
    "bank",
    [
        pytest.param(bank, marks=() if name in _EVERYDAY else pytest.mark.slow)
        for name, bank in SAMPLES.items()
    ],
    ids=SAMPLES.keys(),
)
