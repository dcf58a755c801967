"""Golden tests of commands: `tests/golden/<program>/<command>/<case>/`.

A case holds `cmd` (one line as typed into a shell, variables in front allowed), `stdout`,
`stderr` and `exit_code`. It runs in a copy of `tests/golden/<program>/inputs/`, so paths in
the output are relative. Absolute ones become `$WORK` and `$HOME`.
`pytest --update-golden` rewrites what is expected; review that as a diff.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

GOLDEN = Path(__file__).resolve().parent / "golden"
Substitution = tuple[re.Pattern[str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a command wrote and returned, paths made stable."""

    stdout: str
    stderr: str
    exit_code: int


def cases(program: str) -> list[str]:
    """Return the cases of a program as `command/case`, for parametrize."""
    found = sorted((GOLDEN / program).glob("*/*/cmd"))
    return [path.parent.relative_to(GOLDEN / program).as_posix() for path in found]


def check_case(
    program: str, case: str, work: Path, monkeypatch: pytest.MonkeyPatch, *,
    update: bool, substitutions: Sequence[Substitution] = (),
) -> None:  # fmt: skip
    """Run a case in `work` and compare, or rewrite what is expected."""
    folder = GOLDEN / program / case
    outcome = _run((folder / "cmd").read_text(), program, work, monkeypatch, substitutions)
    if update:
        (folder / "stdout").write_text(outcome.stdout)
        (folder / "stderr").write_text(outcome.stderr)
        (folder / "exit_code").write_text(f"{outcome.exit_code}\n")
        return
    expected = Outcome(
        stdout=(folder / "stdout").read_text(),
        stderr=(folder / "stderr").read_text(),
        exit_code=int((folder / "exit_code").read_text()),
    )
    assert outcome.stdout == expected.stdout
    assert outcome.stderr == expected.stderr
    assert outcome.exit_code == expected.exit_code


def run(program: str, arguments: Sequence[str]) -> Outcome:
    """Run a program of this project in this process."""
    main: Callable[[Sequence[str]], int] = importlib.import_module(f"{program}.cli.app").main
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        try:
            code: object = main(list(arguments))
        except SystemExit as stop:
            code = stop.code
    exit_code = code if isinstance(code, int) else int(bool(code))
    return Outcome(stdout=stdout.getvalue(), stderr=stderr.getvalue(), exit_code=exit_code)


def _run(
    command: str, program: str, work: Path, monkeypatch: pytest.MonkeyPatch,
    substitutions: Sequence[Substitution],
) -> Outcome:  # fmt: skip
    inputs = GOLDEN / program / "inputs"
    if inputs.is_dir():
        shutil.copytree(inputs, work, dirs_exist_ok=True)
    home = work / "home"
    home.mkdir(exist_ok=True)
    variables, words = _split(command)
    assert words[0] == program
    for name, value in {"HOME": str(home), "COLUMNS": "80", **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(work)
    outcome = run(program, words[1:])
    return Outcome(
        stdout=_stable(outcome.stdout, work, home, substitutions),
        stderr=_stable(outcome.stderr, work, home, substitutions),
        exit_code=outcome.exit_code,
    )


def _split(command: str) -> tuple[Mapping[str, str], list[str]]:
    words = shlex.split(command, comments=True)
    variables: dict[str, str] = {}
    while re.fullmatch(r"[A-Z_]+=.*", words[0]):
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    return variables, words


def _stable(text: str, work: Path, home: Path, substitutions: Sequence[Substitution]) -> str:
    text = text.replace(str(home), "$HOME").replace(str(work), "$WORK")
    for pattern, replacement in substitutions:
        text = pattern.sub(replacement, text)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())
