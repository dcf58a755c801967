"""Report of `aoe watch`: runs as their logs have them, on a terminal again and again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from aoe.results.progress_log import LoggedMode, LoggedTask, RunState, TaskState
from aoebank import Report, members, plural

if TYPE_CHECKING:
    from rich.console import RenderableType

    from aoe.runs.watching import WatchedRun
    from aoebank import Column, Text

_STYLES = {
    RunState.RUNNING: "bold cyan",
    RunState.SUCCESSFUL: "green",
    RunState.FAILED: "red",
    RunState.INTERRUPTED: "yellow",
    RunState.KILLED: "red",
}
_ROW_STYLES = {TaskState.RUNNING: "bold", TaskState.WAITING: "dim", TaskState.DONE: ""}
_MOST_WARNINGS = 3
_LINES_OF_A_MODE = 5
"""Of the screen, beside its rows: head, what runs now, titles, the rest, the end."""
_GAP, _LEAST_TEXT = "  ", 12
_LEAST_FIRST = ("why", "computes", "95 % interval", "share", "")
"""Columns that go where texts have less room than that."""
_WIDE = 100
"""Columns from which on there is room for why a task ended as it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchReport(Report):
    """Runs with their operators; 1 if there is none, or one has not ended well."""

    runs: tuple[WatchedRun, ...]
    now: datetime
    schema: str = "aoe.watch/1"

    @property
    def about(self) -> str:
        """Folder of the run, where it is one."""
        return str(self.runs[0].folder) if len(self.runs) == 1 else ""

    @property
    def exit_code(self) -> int:
        """0 while runs go on and if they end well."""
        good = (RunState.RUNNING, RunState.SUCCESSFUL)
        return 0 if self.runs and all(run.state in good for run in self.runs) else 1

    @property
    def is_over(self) -> bool:
        """True if no run goes on."""
        return all(run.state is not RunState.RUNNING for run in self.runs)

    def document(self) -> Mapping[str, object]:
        return {
            "runs": [
                {
                    **members(run, "folder state"),
                    "modes": [self._mode_members(mode) for mode in run.modes],
                }
                for run in self.runs
            ]
        }

    def _mode_members(self, mode: LoggedMode) -> Mapping[str, object]:
        return {
            **members(mode, "tuning_name mode state"),
            "started": mode.started.isoformat(),
            "seconds": round(self._seconds(mode), 1),
            **members(mode, "limit_s max_trials trials=tried step warnings"),
            **members(mode, "baseline_ms tuned_ms speedup speedup_low speedup_high"),
            "tasks": [
                members(
                    task,
                    "key name computes share state done trials speedup speedup_low speedup_high "
                    "outcome reason",
                )
                for task in mode.tasks.values()
            ],
        }

    def write(self, text: Text) -> None:
        if not self.runs:
            text.line("no run goes on here; aoe watch OUTPUT shows one that has ended")
        for number, run in enumerate(self.runs):
            if number:
                text.line("")
            for mode in run.modes:
                for line, style in self._head(run, mode):
                    text.line((line, style))
                if mode.tasks:
                    text.columns(_ordered(mode), *_COLUMNS, _REASON)
                for line, style in _foot(mode):
                    text.line((line, style))

    def screen(self, width: int, height: int) -> RenderableType:
        """Return the lines for a terminal of this size; a task that runs now always has its row."""
        from rich.console import Group
        from rich.text import Text as RichText

        modes = [(run, mode) for run in self.runs for mode in _shown(run)]
        most = max(3, height // max(1, len(modes)) - _LINES_OF_A_MODE)
        lines: list[tuple[str, str]] = []
        for run, mode in modes:
            lines += self._head(run, mode)
            lines += _rows(_ordered(mode), most, width)
            lines += _foot(mode)
        return Group(*(RichText(*line, no_wrap=True, overflow="ellipsis") for line in lines))

    def _seconds(self, mode: LoggedMode) -> float:
        if mode.state is not RunState.RUNNING:
            return mode.at_s
        return max(mode.at_s, (self.now - mode.started).total_seconds())

    def _head(self, run: WatchedRun, mode: LoggedMode) -> Iterator[tuple[str, str]]:
        """Yield the lines above the tasks of a mode, each with its style."""
        seconds = self._seconds(mode)
        limit_s, most = mode.limit_s, mode.max_trials
        time = clock(seconds)
        if limit_s is not None:
            time = f"{time} of {clock(limit_s)}"
            if mode.state is RunState.RUNNING:
                time = f"{time}, {clock(max(0.0, limit_s - seconds))} left"
        trials = plural(mode.tried, "trial") if most is None else f"{mode.tried} of {most} trials"
        done = sum(task.state is TaskState.DONE for task in mode.tasks.values())
        tasks = f", {done} of {len(mode.tasks)} done" if mode.tasks else ""
        what = f"{mode.tuning_name} {mode.mode}: {mode.state.value}"
        yield f"{what}, {time}, {trials}{tasks}  ({run.folder})", _STYLES[mode.state]
        running = [task for task in mode.tasks.values() if task.state is TaskState.RUNNING]
        if mode.state is RunState.RUNNING:
            now = ", ".join(f"{one.name} (trial {_trials(one)})" for one in running) or mode.step
            yield f"now: {now}", ""
        elif mode.state is not RunState.SUCCESSFUL and mode.step:
            yield f"last step: {mode.step}", ""


def _shown(run: WatchedRun) -> Sequence[LoggedMode]:
    """Return the modes of a run that a terminal shows: those that go on, else the last."""
    going_on = [mode for mode in run.modes if mode.state is RunState.RUNNING]
    return going_on or run.modes[-1:]


def _foot(mode: LoggedMode) -> Iterator[tuple[str, str]]:
    """Yield the lines below the tasks of a mode."""
    for warning in mode.warnings[-_MOST_WARNINGS:]:
        yield f"warning: {warning}", "yellow"
    if mode.speedup is not None:
        times = ""
        if mode.speedup == 1 and mode.speedup_low is None:  # nothing is kept, nothing compared
            yield f"whole model: unchanged{_in_brackets(mode.baseline_ms)}", "bold"
            return
        if mode.baseline_ms is not None and mode.tuned_ms is not None:
            times = f"{mode.baseline_ms:.3f} ms -> {mode.tuned_ms:.3f} ms, "
        yield f"whole model: {times}{mode.speedup:.3f}x{_bounds(mode)}", "bold"


def _in_brackets(ms: float | None) -> str:
    return "" if ms is None else f" ({ms:.3f} ms)"


def _bounds(of: LoggedMode | LoggedTask) -> str:
    if of.speedup_low is None or of.speedup_high is None:
        return ""
    return f" ({of.speedup_low:.2f} to {of.speedup_high:.2f})"


def _ordered(mode: LoggedMode) -> list[LoggedTask]:
    """Return the tasks by their share of the time, in the order they were found without one."""
    return sorted(mode.tasks.values(), key=lambda task: -(task.share or 0.0))


def _first(tasks: Sequence[LoggedTask], most: int) -> list[LoggedTask]:
    """Return so many tasks in their order: those that run, then those that are done."""
    ranks = {TaskState.RUNNING: 0, TaskState.DONE: 1, TaskState.WAITING: 2}
    kept = sorted(range(len(tasks)), key=lambda at: ranks[tasks[at].state])[:most]
    return [tasks[at] for at in sorted(kept)]


def _rows(tasks: Sequence[LoggedTask], most: int, width: int) -> Iterator[tuple[str, str]]:
    """Yield a table of a width, in which texts are cut and numbers are not."""
    if not tasks:
        return
    from rich.cells import cell_len, set_cell_size

    shown = _first(tasks, most)
    columns = [*_COLUMNS, *([_REASON] if width >= _WIDE else [])]
    for name in _LEAST_FIRST:
        cells = [[title for title, _, _ in columns]]
        cells += [[cell(task) for _, _, cell in columns] for task in shown]
        widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
        texts = [at for at, (_, kind, _) in enumerate(columns) if kind == "-" or not at]
        room = width - sum(widths) - len(_GAP) * (len(columns) - 1)
        room += sum(widths[at] for at in texts)
        if room >= _LEAST_TEXT * len(texts):
            break
        columns = [column for column in columns if column[0] != name]
    for left, at in enumerate(texts, -len(texts)):  # what one leaves is for those behind it
        widths[at] = max(1, min(widths[at], room // -left))
        room -= widths[at]
    styles = ["bold", *(_ROW_STYLES[task.state] for task in shown)]
    for row, style in zip(cells, styles, strict=True):
        parts = []
        for at, (text, wide) in enumerate(zip(row, widths, strict=True)):
            if (long := cell_len(text)) > wide:  # of a name the end tells more
                text = f"\u2026{text[long - wide + 1 :]}" if not at else f"{text[: wide - 1]}\u2026"
            is_number = columns[at][1] == "r"
            parts.append(text.rjust(wide) if is_number else set_cell_size(text, wide))
        yield _GAP.join(parts).rstrip(), style
    if len(tasks) > most:
        yield f"and {len(tasks) - most} more", "dim"


def _trials(task: LoggedTask) -> str:
    return f"{task.done} of {task.trials}" if task.state is TaskState.RUNNING else str(task.done)


def _interval(task: LoggedTask) -> str:
    if task.speedup_low is None:
        return "-"
    if task.speedup_high is None:
        return f"from {task.speedup_low:.2f}"
    return f"{task.speedup_low:.2f} to {task.speedup_high:.2f}"


_COLUMNS: Sequence[Column[LoggedTask]] = (
    ("operator", "n", lambda task: task.name),
    ("computes", "-", lambda task: task.computes),
    ("share", "r", lambda task: "-" if task.share is None else f"{task.share:.1%}"),
    ("state", "n", lambda task: task.outcome if task.state is TaskState.DONE else task.state),
    ("trials", "r", lambda task: _trials(task)),
    ("best", "r", lambda task: "-" if task.speedup is None else f"{task.speedup:.2f}x"),
    ("95 % interval", "n", lambda task: _interval(task)),
)
_REASON: Column[LoggedTask] = ("why", "-", lambda task: task.reason)


def clock(seconds: float) -> str:
    """Return a duration as people read it.

    >>> clock(75), clock(3725)
    ('1:15', '1:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
