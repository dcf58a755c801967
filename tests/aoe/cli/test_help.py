"""What `aoe --help` says: options by what they are for, examples, places, exit codes."""

from __future__ import annotations

import pytest
import typer
from support.help_texts import missing_examples, parse_example

from aoe.cli.app import app
from aoe.cli.commands import COMMANDS, EXAMPLES, NOTES, OPTION_SECTIONS, SECTIONS
from aoe.cli.errors import run_app


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_example_can_be_meant(line: str) -> None:
    parse_example(app, line)


def test_every_command_has_an_example_and_a_group() -> None:
    assert missing_examples(app, "aoe", EXAMPLES) == []
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(COMMANDS)


def test_every_option_is_in_one_group() -> None:
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="aoe")
    shown = [p.opts[0] for p in command.get_params(context) if not getattr(p, "hidden", False)]
    grouped = [name for names in OPTION_SECTIONS.values() for name in names]
    assert sorted(grouped) == sorted("--help" if name == "-h" else name for name in shown)


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_teaches_the_tool(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(app, [option]) == 0
    text = capsys.readouterr().out
    for heading in (*OPTION_SECTIONS, *SECTIONS, "Examples", *NOTES):
        assert f"\n{heading}:\n" in text
    assert "<str>" not in text and "<path>" not in text
