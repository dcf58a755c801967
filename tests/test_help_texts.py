"""Help texts of both programs and all their commands, 80 columns: `tests/golden/help/*.txt`.

`pytest tests/test_help_texts.py --update-golden` writes them anew; review that as a diff.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from support.aoe_contract import call

from aoe.cli.app import app as aoe_app
from aoebank.cli import app as aoebank_app

GOLDEN = Path(__file__).resolve().parent / "golden" / "help"
COLUMNS = 80


def _commands() -> Iterator[str]:
    for program, app in (("aoe", aoe_app), ("aoebank", aoebank_app)):
        command = typer.main.get_command(app)
        yield program
        yield from _members(command, typer.Context(command, info_name=program), program)


def _members(group: object, context: typer.Context, before: str) -> Iterator[str]:
    for name in group.list_commands(context):  # type: ignore[attr-defined]
        command = group.get_command(context, name)  # type: ignore[attr-defined]
        yield f"{before} {name}"
        if hasattr(command, "list_commands"):
            yield from _members(command, context, f"{before} {name}")


COMMANDS = [*_commands()]


def _file(command: str) -> Path:
    return GOLDEN / f"{command.replace(' ', '-')}.txt"


def _help(command: str, folder: Path) -> str:
    done = call(f"COLUMNS={COLUMNS} TERMINAL_WIDTH={COLUMNS} {command} --help", folder)
    assert (done.code, done.err) == (0, "")
    return "".join(f"{line.rstrip()}\n" for line in done.out.splitlines())


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_as_it_was(command: str, tmp_path: Path, update_golden: bool) -> None:
    text = _help(command, tmp_path)
    if update_golden:
        GOLDEN.mkdir(exist_ok=True)
        _file(command).write_text(text)
    assert text == _file(command).read_text(), "see the diff, then pytest --update-golden"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_whole_and_fits(command: str, tmp_path: Path) -> None:
    text = _help(command, tmp_path)
    examples = text.partition("Examples:")[2]
    for line in text.splitlines():
        is_usage = line.startswith("Usage: ") or line.rstrip().endswith("]...")
        assert is_usage or not line.rstrip().endswith("..."), f"cut short: {line}"
        assert len(line) <= COLUMNS or line in examples, f"too wide: {line}"
    assert text == _help(command, tmp_path)


@pytest.mark.parametrize("command", COMMANDS)
def test_short_option_shows_the_same(command: str, tmp_path: Path) -> None:
    done = call(f"COLUMNS={COLUMNS} TERMINAL_WIDTH={COLUMNS} {command} -h", tmp_path)
    assert done.code == 0
    assert done.out.split() == _help(command, tmp_path).split()


@pytest.mark.parametrize("seed", ["0", "1", "3"])
def test_help_is_the_same_in_every_process(seed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from aoe.cli.app import main; main()", "--help"],
        env={**os.environ, "PYTHONHASHSEED": seed, "COLUMNS": str(COLUMNS)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == _file("aoe").read_text().split()


def test_there_is_no_text_of_a_command_that_is_gone(update_golden: bool) -> None:
    gone = {*GOLDEN.glob("*.txt")} - {*map(_file, COMMANDS)}
    for file in gone if update_golden else ():
        file.unlink()
    assert update_golden or not gone


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_terminal(command: str) -> None:
    assert [line for line in _file(command).read_text().splitlines() if len(line) > COLUMNS] == []
