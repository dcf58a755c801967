"""What reaches a terminal: no escapes where none are wanted, none from names."""

from __future__ import annotations

import io
import sys

import pytest

from aoebank.errors import AoebankError
from aoebank.report.output import ColorMode, Text, write_error


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("color", "no_color", "has_escapes"),
    [
        (ColorMode.NEVER, False, False),
        (ColorMode.NEVER, True, False),
        (ColorMode.AUTO, True, False),
        (ColorMode.AUTO, False, True),
        (ColorMode.ALWAYS, True, True),
    ],
)
def test_no_color_means_no_escapes_at_all(
    monkeypatch: pytest.MonkeyPatch, color: ColorMode, no_color: bool, has_escapes: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    text = Text(color, no_color=no_color)
    text.line(("bold", "bold"), " ", ("dim", "dim"))
    text.table(("header",), [("cell",)])
    assert ("\x1b" in terminal.getvalue()) is has_escapes


def test_error_text_cannot_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    write_error(AoebankError("bad \x1b[2J name", hint="rm \x1b]0;x\x07"))
    assert capsys.readouterr().err == ("error: bad \\x1b[2J name\nhint: rm \\x1b]0;x\\x07\n")
