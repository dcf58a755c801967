"""Golden tests of commands: `tests/golden/<program>/<command>/<case>.txt`.

A case is one file: `$ ` and the command (one line as typed into a shell, variables in front
allowed), `exit code: N`, then what it writes behind the lines `--- stdout` and `--- stderr`; a
stream that stays empty has no line. It runs in a copy of `tests/golden/<program>/inputs/`, so
paths in the output are relative. Absolute ones become `$WORK` and `$HOME`. A refusal and a dry run
leave every file as it was. `pytest --update-golden` rewrites what is expected; review the diff.
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

from support.documents import check_output

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
REFUSED = (2, 3)
"""Exit codes of a command that did nothing: a wrong call, and an error."""
Substitution = tuple[re.Pattern[str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a command wrote and returned, paths made stable."""

    stdout: str
    stderr: str
    exit_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A command and what it is to write and return."""

    command: str
    expected: Outcome


_CASE = re.compile(
    r"\$ (?P<command>[^\n]*)\n(exit code: (?P<exit_code>\d+)\n)?"
    r"(--- stdout\n(?P<stdout>.*?))?(--- stderr\n(?P<stderr>.*))?",
    re.DOTALL,
)


def cases(program: str) -> list[str]:
    """Return the cases of a program as `command/case`, for parametrize."""
    folder = GOLDEN / program
    found = sorted(path for path in folder.glob("*/*.txt") if path.parent.name != "inputs")
    return [path.relative_to(folder).with_suffix("").as_posix() for path in found]


def read_case(program: str, case: str) -> Case:
    """Return a case; one that was never run expects nothing."""
    text = _place(program, case).read_text()
    found = _CASE.fullmatch(text)
    assert found is not None, f"{case}: no golden case"
    expected = Outcome(
        stdout=found["stdout"] or "",
        stderr=found["stderr"] or "",
        exit_code=int(found["exit_code"] or 0),
    )
    return Case(command=found["command"], expected=expected)


def _place(program: str, case: str) -> Path:
    return GOLDEN / program / f"{case}.txt"


def _text(case: Case) -> str:
    expected = case.expected
    streams = (("stdout", expected.stdout), ("stderr", expected.stderr))
    written = "".join(f"--- {name}\n{text}" for name, text in streams if text)
    return f"$ {case.command}\nexit code: {expected.exit_code}\n{written}"


def check_case(
    program: str,
    case: str,
    work: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    update: bool,
    substitutions: Sequence[Substitution] = (),
) -> None:
    """Run a case in `work` and compare, or rewrite what is expected."""
    known = read_case(program, case)
    outcome, is_untouched = _run(known.command, program, work, monkeypatch, substitutions)
    if update:
        text = _text(Case(command=known.command, expected=outcome))
        _place(program, case).write_text(text)
        assert read_case(program, case).expected == outcome, "a marker line is in the output"
        return
    assert outcome.stdout == known.expected.stdout
    assert outcome.stderr == known.expected.stderr
    assert outcome.exit_code == known.expected.exit_code
    if outcome.exit_code in REFUSED or {"--dry-run", "--check"} & {*known.command.split()}:
        assert is_untouched, "a refusal or a dry run changed a file"


def _content(work: Path) -> Mapping[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in work.rglob("*")}


def run(program: str, arguments: Sequence[str]) -> Outcome:
    """Run a program of this project in this process."""
    module = {"aoe": "aoe.cli.app", "aoebank": "aoebank.cli"}[program]
    main: Callable[[Sequence[str]], int] = importlib.import_module(module).main
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        try:
            code: object = main(list(arguments))
        except SystemExit as stop:
            code = stop.code
    exit_code = code if isinstance(code, int) else int(bool(code))
    check_output(stdout.getvalue())  # whatever a test asks for, it is in its published shape
    return Outcome(stdout=stdout.getvalue(), stderr=stderr.getvalue(), exit_code=exit_code)


def answer(*arguments: str, exit_code: int = 0) -> str:
    """Run `aoebank`, which ends with an exit code and no word on standard error."""
    outcome = run("aoebank", arguments)
    assert (outcome.exit_code, outcome.stderr) == (exit_code, "")
    return outcome.stdout


def _run(
    command: str,
    program: str,
    work: Path,
    monkeypatch: pytest.MonkeyPatch,
    substitutions: Sequence[Substitution],
) -> tuple[Outcome, bool]:
    """Return what a command did, and whether every file is as it was."""
    inputs = GOLDEN / program / "inputs"
    if inputs.is_dir():
        shutil.copytree(inputs, work, dirs_exist_ok=True)
    home = work / "home"
    home.mkdir(exist_ok=True)
    variables, words = _split(command)
    assert words[0] == program
    own = {"HOME": str(home), "COLUMNS": "80", "AOE_BUILT_IN_BANK": "off"}
    for name, value in {**own, **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(work)
    before = _content(work)
    outcome = run(program, words[1:])
    stable = Outcome(
        stdout=_stable(outcome.stdout, work, home, substitutions),
        stderr=_stable(outcome.stderr, work, home, substitutions),
        exit_code=outcome.exit_code,
    )
    return stable, _content(work) == before


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
