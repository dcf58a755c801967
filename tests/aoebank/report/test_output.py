"""What reaches a terminal: no escapes where none are wanted, none from names."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import redirect_stdout

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoebank import AoebankError, Text, make_console, say
from aoebank.report.output import ColorMode, write_document, write_error, write_text


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
    with redirect_stdout(terminal):
        text = Text(color, no_color=no_color)
        text.line(("bold", "bold"), " ", ("dim", "dim"))
        text.table(("header",), [("cell",)])
    assert ("\x1b" in terminal.getvalue()) is has_escapes


def test_error_text_cannot_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    write_error(AoebankError("bad \x1b[2J name", hint="rm \x1b]0;x\x07"))
    assert capsys.readouterr().err == ("error: bad \\x1b[2J name\nhint: rm \\x1b]0;x\\x07\n")


HOSTILE = "a\x1b[2J\x9b1m\x07\r\u202ecod\u2066.\ud83d\u2028b"
SAFE = "a\\x1b[2J\\x9b1m\\u202ecod\\u2066.\\ud83d\\u2028b"


@pytest.mark.parametrize(
    "write",
    [
        lambda: say(HOSTILE),
        lambda: write_error(AoebankError(HOSTILE)),
        lambda: write_text(HOSTILE),
        lambda: Text(ColorMode.NEVER, no_color=True).line(HOSTILE, (HOSTILE, "red")),
        lambda: Text(ColorMode.NEVER, no_color=True).table((HOSTILE,), [(HOSTILE,)]),
        lambda: make_console(stderr=True).print(HOSTILE, markup=False),
    ],
)
def test_no_way_out_lets_foreign_text_steer_a_terminal(
    capsys: pytest.CaptureFixture[str], write: Callable[[], None]
) -> None:
    write()
    shown = "".join(capsys.readouterr())
    dropped_by_rich = ("\\x07", "\\r", "\n")
    for gone in dropped_by_rich:
        shown = shown.replace(gone, "")
    assert SAFE in shown
    assert shown.isprintable()


def test_own_styles_still_steer_it() -> None:
    terminal = Terminal()
    with redirect_stdout(terminal):
        text = Text(ColorMode.ALWAYS, no_color=False)
        text.line(("red \x1b[2J", "red"))
    assert "\x1b[31m" in terminal.getvalue()
    assert "\x1b[2J" not in terminal.getvalue()


def test_document_says_what_is_so(capsys: pytest.CaptureFixture[str]) -> None:
    write_document({"name": HOSTILE})
    assert json.loads(capsys.readouterr().out) == {"name": HOSTILE}


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=3), VALUES))
def test_document_is_written_as_json_dumps_does(document: dict[str, object]) -> None:
    for indent in (2, None):
        with redirect_stdout(io.StringIO()) as stream:
            write_document(document, indent=indent)
        assert stream.getvalue() == json.dumps(document, indent=indent) + "\n"
