"""What `--help` says: every command in a group, with an example that can be called."""

from __future__ import annotations

import pytest
from support.help_texts import missing_examples, parse_example

from aoebank.cli import COMMANDS, app, main
from aoebank.verbs import EXAMPLES, SECTIONS

_LINES = [line for lines in EXAMPLES.values() for line in lines]


@pytest.mark.parametrize("line", _LINES)
def test_example_can_be_meant(line: str) -> None:
    parse_example(app, line)


def test_every_command_has_an_example() -> None:
    assert missing_examples(app, "aoebank", EXAMPLES) == []


def test_every_command_is_in_one_group() -> None:
    grouped = [name for names in SECTIONS.values() for name in names]
    assert sorted(grouped) == sorted(COMMANDS)


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_has_groups_examples_places_and_exit_codes(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([option]) == 0
    text = capsys.readouterr().out
    for heading in ("Options", *SECTIONS, "Examples", "Where banks are", "Exit codes"):
        assert f"\n{heading}:\n" in text
    assert "..." not in text


def test_help_of_a_command_ends_with_its_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["git", "verify-merge", "-h"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.rstrip().splitlines()]
    wanted = EXAMPLES["git verify-merge"]
    assert lines[-len(wanted) - 1 :] == ["Examples:", *wanted]
