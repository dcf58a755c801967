"""Runs that can be watched: their logs below a folder, or those of all runs on this machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from aoe.errors import ResultFileError
from aoe.folders.scratch import own_scratch
from aoe.results.progress_log import POINTER, LoggedMode, ProgressReader, RunState

_LOG = re.compile(r"aoe_progress_\w+?_(?P<run>\d{17}_pid\d+)\.jsonl")
_DEPTH = 2
"""Folders below the output of a run: of a model, and of one of its shapes."""
_GAP_S = 60.0
"""Between two modes or models of a run nothing says whether it was killed: none takes as long."""
_WAY_OUT = "aoe watch --all shows the runs that go on"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedRun:
    """A run by the logs of its modes, of several models or shapes too."""

    folder: Path  # Where its results are
    modes: tuple[LoggedMode, ...]  # In the order they began
    state: RunState  # The worst end of a mode; running while a mode does, or more is to come


class RunWatch:
    """Finds runs, and reads what is new in their logs.

    Args:
        output: Output of a run, its tuned model, or a log; None for the runs on this machine.
        every: True for all runs that go on, False for the one that began last.
        now: Gives the time.
    """

    def __init__(
        self,
        output: Path | None,
        *,
        every: bool = False,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._output = output
        self._every = every
        self._now = now
        self._readers: dict[Path, ProgressReader] = {}
        self._chosen: set[str] = set()

    def runs(self) -> tuple[WatchedRun, ...]:
        """Return the runs in the order they began; none where none goes on.

        Below a folder these are the ones that go on, else the last one; on this machine the one
        that began last, or every one. What goes on at the first call stays until the end.

        Raises:
            ResultFileError: the folder is missing or has no run, or a log is broken.
        """
        found = self._runs()
        if not self._chosen and found:
            going_on = [name for name, run in found.items() if run.state is RunState.RUNNING]
            is_one = self._output is None and not self._every
            self._chosen = set(going_on[-1:] if is_one else going_on or [*found][-1:])
        elif self._every:
            self._chosen |= {*found}
        return tuple(run for name, run in found.items() if name in self._chosen)

    def _runs(self) -> dict[str, WatchedRun]:
        """Return the runs there are, by what distinguishes the names of their logs."""
        if self._output is None:
            logs = [*dict.fromkeys([*self._readers, *_logs_of_this_machine()])]
            return self._read([log for log in logs if log.exists()])
        return self._read(_logs_of(self._output))

    def _read(self, logs: Iterable[Path]) -> dict[str, WatchedRun]:
        found: dict[str, list[LoggedMode]] = {}
        for log in logs:
            mode = self._readers.setdefault(log, ProgressReader(log)).read()
            if mode is not None:
                match = _LOG.fullmatch(log.name)
                found.setdefault(match["run"] if match else str(log), []).append(mode)
        for modes in found.values():
            modes.sort(key=lambda mode: mode.started)
        ordered = sorted(found.items(), key=lambda item: item[1][0].started)
        return {name: _run_of(modes, self._now()) for name, modes in ordered}


def _run_of(modes: Sequence[LoggedMode], now: datetime) -> WatchedRun:
    last, states = modes[-1], {mode.state for mode in modes}
    silent_s = (now - last.started).total_seconds() - last.at_s
    ends = (RunState.KILLED, RunState.INTERRUPTED, RunState.FAILED, RunState.SUCCESSFUL)
    state = next((end for end in ends if end in states), RunState.RUNNING)
    is_between = not last.is_last and silent_s < _GAP_S and RunState.KILLED not in states
    if RunState.RUNNING in states or is_between:
        state = RunState.RUNNING
    parents = {mode.file.parent for mode in modes}
    folder = min(parents, key=lambda path: len(path.parts))
    if any(not path.is_relative_to(folder) for path in parents):  # folders of several models
        folder = folder.parent
    return WatchedRun(folder=folder, modes=tuple(modes), state=state)


def _logs_of(output: Path) -> list[Path]:
    """Return the logs below the output of a run, or the one it is.

    Raises:
        ResultFileError: there is none.
    """
    if not output.exists():
        raise ResultFileError(str(output), "no such file or folder", hint=_WAY_OUT)
    if not output.is_dir() and output.suffix != ".om":
        return [output]
    folder = output if output.is_dir() else output.parent
    patterns = ("*/" * depth + "aoe_progress_*.jsonl" for depth in range(_DEPTH + 1))
    logs = [log for pattern in patterns for log in folder.glob(pattern) if _LOG.fullmatch(log.name)]
    if not logs:
        raise ResultFileError(
            str(output),
            "no run has left its log here",
            expected="the --output of a run, with aoe_progress_<mode>_<timestamp>_pid<N>.jsonl",
            hint=_WAY_OUT,
        )
    return logs


def _logs_of_this_machine() -> list[Path]:
    """Return the logs that runs of this user name in their scratch folders."""
    found = []
    for folder in own_scratch("run"):
        with suppress(OSError):
            found.append(Path((folder / POINTER).read_text()))
    return found
