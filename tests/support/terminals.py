"""Run a program on a terminal of its own, and say what a person would see there."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_CONTROL = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])")
_READ_BYTES = 65536
_OF_OURS = ("NO_COLOR", "COLUMNS", "LINES")  # would count more than the terminal
SHOW_CURSOR, HIDE_CURSOR = "\x1b[?25h", "\x1b[?25l"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a program wrote to its terminal."""

    text: str  # All of it, escapes too
    exit_code: int  # As a shell has it
    settings_kept: bool  # True if the terminal's own settings are what they were
    width: int  # Columns of the terminal

    @property
    def is_cursor_shown(self) -> bool:
        """True if the cursor is not left hidden."""
        return self.text.rfind(SHOW_CURSOR) >= self.text.rfind(HIDE_CURSOR)

    @property
    def drawn(self) -> list[str]:
        """Every line that was ever drawn, without escapes."""
        return [line for line in re.split(r"[\r\n]+", _CONTROL.sub("", self.text)) if line]

    @property
    def screen(self) -> list[str]:
        """What stands on the screen at the end; knows the escapes a bar needs."""
        rows, row, column = [""], 0, 0
        place = 0
        while place < len(self.text):
            found = _CONTROL.match(self.text, place)
            if found is None:
                char = self.text[place]
                place += 1
                if char == "\r":
                    column = 0
                elif char == "\n":
                    row += 1
                else:
                    if column == self.width:
                        row, column = row + 1, 0
                    rows += [""] * (row + 1 - len(rows))
                    line = rows[row].ljust(column)
                    rows[row] = line[:column] + char + line[column + 1 :]
                    column += 1
                rows += [""] * (row + 1 - len(rows))
                continue
            place = found.end()
            count = int(found[1]) if found[1].isdigit() else 1
            if found[2] == "A":
                row = max(0, row - count)
            elif found[2] == "K":
                rows[row] = "" if found[1] == "2" else rows[row][:column]
        return [line.rstrip() for line in rows]


def run_on_terminal(
    code: str,
    *,
    cwd: Path,
    width: int,
    env: Mapping[str, str] | None = None,
    interrupt_at: str = "",
    answers: Sequence[tuple[str, str]] = (),
    timeout_s: float = 120.0,
) -> Shown:
    """Run Python code with a terminal as its standard streams.

    Args:
        code: The program.
        cwd: Where it runs.
        width: Columns of the terminal.
        env: Variables besides this process's.
        interrupt_at: Ctrl-C is typed once this has been written.
        answers: What is typed, each once its text has been written behind the one before.
        timeout_s: The program is killed then.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    before = termios.tcgetattr(theirs)
    found = {"PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm", **(env or {})}
    inherited = {name: value for name, value in os.environ.items() if name not in _OF_OURS}
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=cwd,
        env={**inherited, **found},
        start_new_session=True,
        preexec_fn=_take_terminal,
    )
    text, is_interrupted = "", False
    waiting, seen = [*answers], 0
    end = time.monotonic() + timeout_s
    os.set_blocking(ours, False)
    while True:
        is_over = process.poll() is not None
        try:
            text += os.read(ours, _READ_BYTES).decode(errors="replace")
        except BlockingIOError:
            if is_over:
                break
            process_is_late = time.monotonic() > end
            if process_is_late:
                os.killpg(process.pid, signal.SIGKILL)
            time.sleep(0.02)
        if waiting and waiting[0][0] in text[seen:]:
            seen = text.index(waiting[0][0], seen) + len(waiting[0][0])
            os.write(ours, waiting.pop(0)[1].encode())
        if interrupt_at and not is_interrupted and interrupt_at in text:
            os.write(ours, b"\x03")
            is_interrupted = True
    kept = termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)
    return Shown(text=text, exit_code=process.returncode, settings_kept=kept, width=width)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
