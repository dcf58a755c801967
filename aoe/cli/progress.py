"""Progress on standard error: a bar on a terminal, one line per step otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from aoe.settings import environment
from aoe.tuning.progress import Progress, SilentProgress
from aoebank import make_console, say


class QuietProgress(SilentProgress):
    """Warnings only, a line each."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def warn(self, text: str) -> None:
        """Print a warning with the seconds since the start."""
        self._print(f"warning: {text}")

    def _print(self, text: str) -> None:
        say(f"[aoe {time.monotonic() - self._start:6.1f}s] {text}")


class LineProgress(QuietProgress):
    """One line per finished step, for logs and pipes."""

    def __init__(self) -> None:
        super().__init__()
        self._done = 0
        self._total = 0

    def step(self, text: str) -> None:
        """Print the step with the seconds since the start."""
        self._print(text)

    def plan(self, operators: int) -> None:
        """Print how much there is to do."""
        self._total = operators
        self._print(f"{operators} operators to look up or tune")

    def operator(self, op_name: str, text: str) -> None:
        """Print what became of an operator."""
        self._done += 1
        self._print(f"[{self._done}/{self._total}] {op_name}: {text}")


class BarProgress:
    """A bar that moves with every trial, on a terminal."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Display

        self._done = 0
        self._total = 0
        self.display = Display(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[note]}", markup=False),
            TimeElapsedColumn(),
            console=make_console(stderr=True),
            transient=True,
        )
        self._task = self.display.add_task("starting", total=1, note="")

    def step(self, text: str) -> None:
        """Show the step beside the bar."""
        self.display.update(self._task, description=text, note="")

    def plan(self, operators: int) -> None:
        """Set the length of the bar; judging the whole model is its last unit."""
        self._total = operators
        self.display.update(
            self._task, description="tuning", total=operators + 1, completed=self._done
        )

    def trial(self, op_name: str, done: int, budget: int, best: float | None) -> None:
        """Move the bar by a part of an operator."""
        note = f"{self._done + 1}/{self._total}, trial {done}"
        note += f", best {best:.2f}x" if best else ""
        self.display.update(
            self._task,
            description=f"tuning {op_name}",
            completed=self._done + done / max(budget, 1),
            note=note,
        )

    def operator(self, op_name: str, text: str) -> None:
        """Print what became of an operator above the bar, and move on."""
        self._done += 1
        self.display.console.print(f"[{self._done}/{self._total}] {op_name}: {text}", markup=False)
        self.display.update(self._task, completed=self._done, note="")

    def warn(self, text: str) -> None:
        """Print a warning above the bar."""
        self.display.console.print(f"warning: {text}", markup=False, style="yellow")


@contextmanager
def shown_progress(*, shown: bool) -> Iterator[Progress]:
    """Give the progress display that fits standard error; a bar is made of escapes."""
    if not shown:
        yield QuietProgress()
    elif not sys.stderr.isatty() or environment().get("NO_COLOR"):
        yield LineProgress()
    else:
        bar = BarProgress()
        with bar.display:
            yield bar
