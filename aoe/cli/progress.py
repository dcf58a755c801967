"""Progress on standard error: a bar on a terminal, one line per step otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from aoe.settings import environment
from aoe.tuner.progress import Progress, SilentProgress
from aoebank import make_console, note_warning, plural, say

_WIDE = 70
"""Columns from which on there is room for words."""
_ECHO = 3


class QuietProgress(SilentProgress):
    """Warnings only, a line each."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def warn(self, text: str) -> None:
        """Print a warning with the seconds since the start."""
        note_warning(text)
        self._print(f"warning: {text}")

    def _print(self, text: str) -> None:
        say(f"[aoe {time.monotonic() - self._start:6.1f}s] {text}")


class DetailProgress(QuietProgress):
    """Warnings and every detail, a line each."""

    def detail(self, text: str) -> None:
        """Print it."""
        self._print(text)


class LineProgress(QuietProgress):
    """One line per finished step, for logs and pipes.

    Args:
        looks_up: True if nothing is tuned.
    """

    def __init__(self, *, looks_up: bool = False) -> None:
        super().__init__()
        self._verb = "look up" if looks_up else "look up or tune"
        self._done = 0
        self._total = 0

    def step(self, text: str) -> None:
        """Print the step with the seconds since the start."""
        self._print(text)

    def plan(self, operators: int) -> None:
        """Print how much there is to do."""
        self._total = operators
        self._print(f"{plural(operators, 'operator')} to {self._verb}")

    def operator(self, op_name: str, text: str) -> None:
        """Print what became of an operator."""
        self._done += 1
        self._print(f"[{self._done}/{self._total}] {op_name}: {text}")


class LogProgress(DetailProgress, LineProgress):
    """Lines, and every detail."""


class BarProgress:
    """A bar that moves with every trial, on a terminal; on a narrow one it says less.

    Args:
        limit_s: Seconds the run may take, None for as many as it needs.
        looks_up: True if nothing is tuned.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        limit_s: float | None = None,
        *,
        looks_up: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        from rich.constrain import Constrain
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Display
        from rich.table import Column

        console = make_console(stderr=True)

        class RoomyDisplay(Display):
            """Leaves room for the `^C` a terminal echoes: it must not make a line of its own."""

            def get_renderables(self) -> Iterator[Constrain]:
                width = max(1, console.width - _ECHO)
                yield Constrain(self.make_tasks_table(self.tasks), width)

        self._verb = "looking up" if looks_up else "tuning"
        self._now = clock
        self._start = clock()
        self._limit_s = limit_s
        self._planned_at = self._start
        self._total = 0
        self._done = 0
        self._trials: _Trials | None = None
        self._is_wide = console.width >= _WIDE
        self.display = RoomyDisplay(
            TextColumn(
                "{task.description}",
                markup=False,
                table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
            ),
            BarColumn(bar_width=20 if self._is_wide else 6),
            *(
                TextColumn(
                    f"{{task.fields[{name}]}}", markup=False, table_column=Column(no_wrap=True)
                )
                for name in ("note", "end")
            ),
            console=console,
            transient=True,
            expand=True,
        )
        self._task = self.display.add_task(
            "starting", total=1, note=_LateText(self._note), end=_LateText(self.end_text)
        )

    def step(self, text: str) -> None:
        """Show the step beside the bar."""
        self._trials = None
        self.display.update(self._task, description=text)

    def detail(self, text: str) -> None:
        """Ignore: there is no room for it beside a bar."""

    def plan(self, operators: int) -> None:
        """Set the length of the bar; judging the whole model is its last unit."""
        if not self._total:
            self._planned_at = self._now()
        self._total = operators
        self.display.update(
            self._task, description=self._verb, total=operators + 1, completed=self._done
        )

    def trial(self, op_name: str, done: int, budget: int, best: float | None) -> None:
        """Move the bar by a part of an operator."""
        self._trials = _Trials(done=done, budget=budget, best=best)
        self.display.update(
            self._task,
            description=f"tuning {op_name}",
            completed=self._done + min(1.0, done / max(budget, 1)),
        )

    def operator(self, op_name: str, text: str) -> None:
        """Print what became of an operator above the bar, and move on."""
        self._done += 1
        self._trials = None
        self.display.console.print(f"[{self._done}/{self._total}] {op_name}: {text}", markup=False)
        self.display.update(self._task, completed=self._done)

    def warn(self, text: str) -> None:
        """Print a warning above the bar."""
        note_warning(text)
        self.display.console.print(f"warning: {text}", markup=False, style="yellow")

    def _note(self) -> str:
        """Return which operator it is, its trials and the best speed-up of them."""
        if not self._total:
            return ""
        parts = [f"{min(self._done + 1, self._total)}/{self._total}"]
        if self._trials is not None:
            found = self._trials
            parts += [f"trial {found.done}/{found.budget}"] if self._is_wide else []
            best = f"{found.best:.2f}x" if found.best else "none"
            parts += [f"best {best}" if self._is_wide else best]
        return (", " if self._is_wide else " ").join(parts)

    def end_text(self) -> str:
        """Return the time so far, and what is left if the rest goes on like what is done.

        What is left of the time limit is left, even if more could be done.
        """
        task = self.display.tasks[0]
        now = self._now()
        passed = _clock(now - self._start)
        if not self._total or task.completed <= 0 or task.total is None:
            return passed
        left_s = (now - self._planned_at) * (task.total - task.completed) / task.completed
        if self._limit_s is not None:
            left_s = min(left_s, max(0.0, self._limit_s - (now - self._start)))
        left = f"{_clock(left_s)} left"
        return f"{passed}, {left}" if self._is_wide else left


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trials:
    """How far the search of an operator is."""

    done: int
    budget: int
    best: float | None


@dataclass(frozen=True, slots=True)
class _LateText:
    """A text that is made when it is drawn, so that it goes with the time."""

    make: Callable[[], str]

    def __str__(self) -> str:
        return self.make()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


@contextmanager
def shown_progress(
    *,
    shown: bool,
    details: bool = False,
    limit_s: float | None = None,
    looks_up: bool = False,
    on_terminal: bool | None = None,
) -> Iterator[Progress]:
    """Give the progress display that fits standard error; a bar is made of escapes.

    Args:
        shown: False for warnings, and details where they are asked for.
        details: True for every detail, line by line.
        limit_s: Seconds the run may take, None for as many as it needs.
        looks_up: True if nothing is tuned.
        on_terminal: Whether standard error is a terminal; None to ask it.
    """
    if on_terminal is None:
        on_terminal = sys.stderr.isatty()
    if not shown:
        yield DetailProgress() if details else QuietProgress()
    elif details:
        yield LogProgress(looks_up=looks_up)
    elif not on_terminal or not _takes_escapes(environment()):
        yield LineProgress(looks_up=looks_up)
    else:
        bar = BarProgress(limit_s, looks_up=looks_up)
        with bar.display:
            yield bar


def _takes_escapes(env: Mapping[str, str]) -> bool:
    return not env.get("NO_COLOR") and env.get("TERM") not in ("dumb", "unknown")
