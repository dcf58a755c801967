"""The log of a mode while it runs, `aoe_progress_<mode>_<timestamp>_pid<N>.jsonl`: a line an event.

A line is appended without waiting for the disk, which takes 10 us, so a trial can afford one. The
writer holds a lock on the file as long as it lives: where nobody does and no line says that the run
has ended, the run was killed. Readers pass over events and members they do not know.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from aoe.errors import ResultFileError
from aoe.folders.locks import FileLock, take_lock

PROGRESS_SCHEMA = "aoe.progress/1"
POINTER = "progress"
"""File in the scratch folder of a run with the path of its log, by which others find it."""
_LOCK_WAIT_S = 1.0
"""A reader that asks whether the log is held holds it for a moment itself."""
_MOST_BYTES = 64 << 20


def progress_name(result_name: str) -> str:
    """Return the name of the log beside a result file.

    >>> progress_name("aoe_result_opat_20260102030405678_pid7.json")
    'aoe_progress_opat_20260102030405678_pid7.jsonl'
    """
    return result_name.replace("aoe_result_", "aoe_progress_", 1) + "l"


class ProgressEventKind(StrEnum):
    """What a line is about."""

    START = "start"
    PLAN = "plan"
    BEGIN = "begin"
    TRIAL = "trial"
    TASK = "task"
    STEP = "step"
    WARNING = "warning"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLine:
    """A task that waits for its turn."""

    key: str  # Its record key
    name: str  # Node of the user's model that names it
    computes: str = ""  # What it computes, in words
    share: float | None = None  # Part of the model's time, None where that is not known


class ProgressLog:
    """Writes the log of a mode; one that is not opened writes nothing.

    Events before `open` are kept for it. A log that cannot be written is given up, with a warning.

    Args:
        wall: Seconds since 1970.
    """

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._began_s = wall()
        self._early: list[dict[str, Any]] | None = []  # None once the log is open, or over
        self._descriptor: int | None = None
        self._lock: FileLock | None = None
        self._planned: dict[str, str] = {}
        self._running: dict[str, str] = {}
        self._turn = threading.RLock()  # searches at several workers tell from their threads

    def open(self, file: Path, facts: Mapping[str, Any], warn: Callable[[str], None]) -> None:
        """Begin to write: what the run is, then what has happened so far.

        Args:
            file: Written anew.
            facts: Members of the first line.
            warn: Is told if the file cannot be written.
        """
        started = datetime.fromtimestamp(self._began_s, UTC).isoformat(timespec="milliseconds")
        head = {"schema": PROGRESS_SCHEMA, "started": started, "pid": os.getpid(), **facts}
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with suppress(OSError):  # a file system without locks: killed runs look like running
                self._lock = take_lock(file, wait_s=_LOCK_WAIT_S)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(file, flags, 0o644)
        except OSError as error:
            warn(f"the run cannot be watched: {file}: {error.strerror or error}")
        with self._turn:
            early, self._early = self._early or [], None
            self._write({"event": ProgressEventKind.START.value, **head})
            for event in early:
                self._write(event)

    def plan(self, tasks: Sequence[TaskLine]) -> None:
        """Note tasks that are known by now; those that were known before are passed over."""
        new = [one for one in tasks if one.key not in self._planned]
        self._planned |= {one.key: one.name for one in new}
        if new:
            self._add(ProgressEventKind.PLAN, tasks=[asdict(one) for one in new])

    def begin(self, key: str, trials: int) -> None:
        """Note that the search of a task begins or goes on, for so many trials at most."""
        self._running[key] = self._planned.get(key, "")
        self._add(ProgressEventKind.BEGIN, key=key, trials=trials)

    def trial(self, name: str, done: int, budget: int, best: float | None) -> None:
        """Note trials of a running task, by its name; `best` is the best speed-up so far."""
        running = [key for key, known in [*self._running.items()] if known == name]
        if running:
            self._add(
                ProgressEventKind.TRIAL,
                key=running[-1],
                done=done,
                trials=budget,
                speedup=None if best is None else round(best, 4),
            )

    def task(self, key: str, **found: Any) -> None:
        """Note what became of a task: `outcome`, `reason`, `done`, and figures that are known."""
        self._running.pop(key, None)
        self._add(ProgressEventKind.TASK, key=key, **found)

    def step(self, text: str) -> None:
        """Note a step of the whole run."""
        self._add(ProgressEventKind.STEP, text=text)

    def warn(self, text: str) -> None:
        """Note a warning."""
        self._add(ProgressEventKind.WARNING, text=text)

    def end(self, result: str, **figures: Any) -> None:
        """Note the end of the mode, with the figures of the whole model, and let the file go."""
        self._add(ProgressEventKind.END, result=result, **figures)
        with self._turn:
            self._early = None
            self._give_up()

    def _add(self, kind: ProgressEventKind, **members: Any) -> None:
        event = {"event": kind.value, "at_s": round(self._wall() - self._began_s, 3), **members}
        with self._turn:
            if self._early is not None:
                self._early.append(event)
            else:
                self._write(event)

    def _write(self, event: Mapping[str, Any]) -> None:
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, json.dumps(event).encode() + b"\n")
        except OSError:  # a full disk: the result files say so, and end the run
            self._give_up()

    def _give_up(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if self._lock is not None:
            self._lock.release()


class TaskState(StrEnum):
    """State of a task in a run."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"


class RunState(StrEnum):
    """State of a mode."""

    RUNNING = "running"
    SUCCESSFUL = "successful"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    """It could still say that it ended before it was done."""
    KILLED = "killed"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedTask:
    """A task as its log has it by now."""

    key: str
    name: str = ""
    computes: str = ""
    share: float | None = None
    state: TaskState = TaskState.WAITING
    done: int = 0  # Trials so far
    trials: int = 0  # Most trials of the slice that runs, or ran
    speedup: float | None = None  # Best so far
    speedup_low: float | None = None  # Its 95 % interval, None while it is searched
    speedup_high: float | None = None
    outcome: str = ""  # What became of it in the bank
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedMode:
    """A mode of a run as its log has it by now."""

    file: Path
    tuning_name: str
    mode: str  # `opat`, `sgat`
    started: datetime
    state: RunState = RunState.RUNNING
    at_s: float = 0.0  # Seconds from the start to the last line
    limit_s: float | None = None  # Time limit of the mode, None without one
    max_trials: int | None = None  # Most candidates of all tasks together, None without a limit
    is_last: bool = True  # False if the run has more to do after this
    step: str = ""  # The last step of the whole run
    warnings: tuple[str, ...] = ()
    baseline_ms: float | None = None  # Whole model, once it has ended
    tuned_ms: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    tasks: Mapping[str, LoggedTask] = field(default_factory=dict)

    @property
    def tried(self) -> int:
        """Number of trials of all tasks."""
        return sum(task.done for task in self.tasks.values())


class ProgressReader:
    """Follows a log while it is written.

    Args:
        file: The log.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read_bytes = 0
        self._mode: LoggedMode | None = None
        self._has_ended = False

    def read(self) -> LoggedMode | None:
        """Return the mode as the log has it by now, None before its first line.

        Raises:
            ResultFileError: it is no log, or one of another version.
            OSError: it cannot be read.
        """
        is_held = _is_held(self._file)  # before reading: what ends in between has written its end
        for event in self._new_events():
            self._take(event)
        if self._mode is None:
            if not is_held and self._file.stat().st_size:
                raise _no_log(self._file)
        elif not is_held and not self._has_ended:
            return replace(self._mode, state=RunState.KILLED)
        return self._mode

    def _new_events(self) -> Iterator[Mapping[str, Any]]:
        with self._file.open("rb") as source:
            source.seek(self._read_bytes)
            text = source.read(_MOST_BYTES)
        whole = text.rpartition(b"\n")[0]
        self._read_bytes += len(whole) + 1 if whole else 0
        for line in whole.splitlines():
            with suppress(ValueError, RecursionError):
                event = json.loads(line)
                if isinstance(event, dict):
                    yield event

    def _take(self, event: Mapping[str, Any]) -> None:
        if self._mode is None:
            self._mode = _start(self._file, event)
            return
        at_s = _number(event, "at_s")
        changes = _CHANGES.get(str(event.get("event")), _unchanged)
        self._mode = replace(
            self._mode,
            at_s=self._mode.at_s if at_s is None else at_s,
            **changes(self._mode, event),
        )
        self._has_ended |= event.get("event") == ProgressEventKind.END


def _is_held(file: Path) -> bool:
    """True if the writer of a log is alive; where there are no locks nobody knows."""
    try:
        lock = take_lock(file, shared=True)
    except OSError:
        return True
    if lock is None:
        return True
    lock.release()
    return False


def _start(file: Path, event: Mapping[str, Any]) -> LoggedMode:
    schema = event.get("schema")
    if schema != PROGRESS_SCHEMA:
        if str(schema).startswith(PROGRESS_SCHEMA.partition("/")[0] + "/"):
            raise ResultFileError(
                str(file), "of another version", got=schema, expected=PROGRESS_SCHEMA
            )
        raise _no_log(file)
    limit = _number(event, "max_trials")
    try:
        started = datetime.fromisoformat(_text(event, "started"))
    except ValueError as error:
        raise _no_log(file) from error
    return LoggedMode(
        file=file,
        tuning_name=_text(event, "tuning_name"),
        mode=_text(event, "mode"),
        started=started if started.tzinfo else started.replace(tzinfo=UTC),
        limit_s=_number(event, "limit_s"),
        max_trials=None if limit is None else int(limit),
        is_last=event.get("is_last") is not False,
    )


def _no_log(file: Path) -> ResultFileError:
    return ResultFileError(
        str(file), "no log of a run", expected=f"a first line of {PROGRESS_SCHEMA}"
    )


def _unchanged(mode: LoggedMode, event: Mapping[str, Any]) -> dict[str, Any]:
    return {}


def _planned(mode: LoggedMode, event: Mapping[str, Any]) -> dict[str, Any]:
    tasks = dict(mode.tasks)
    found = event.get("tasks")
    for one in found if isinstance(found, list) else ():
        if isinstance(one, dict) and (key := _text(one, "key")):
            tasks[key] = replace(
                tasks.get(key, LoggedTask(key=key)),
                name=_text(one, "name"),
                computes=_text(one, "computes"),
                share=_number(one, "share"),
            )
    return {"tasks": tasks}


def _with_task(mode: LoggedMode, event: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    key = _text(event, "key")
    task = mode.tasks.get(key, LoggedTask(key=key, name=key))
    for name in ("done", "trials"):
        if (count := _number(event, name)) is not None:
            changes[name] = int(count)
    return {"tasks": {**mode.tasks, key: replace(task, **changes)}}


def _begun(mode: LoggedMode, event: Mapping[str, Any]) -> dict[str, Any]:
    return _with_task(mode, event, state=TaskState.RUNNING)


def _tried(mode: LoggedMode, event: Mapping[str, Any]) -> dict[str, Any]:
    best = {"speedup": _number(event, "speedup"), "speedup_low": None, "speedup_high": None}
    return _with_task(mode, event, state=TaskState.RUNNING, **best)


def _finished(mode: LoggedMode, event: Mapping[str, Any]) -> dict[str, Any]:
    return _with_task(
        mode,
        event,
        state=TaskState.DONE,
        outcome=_text(event, "outcome"),
        reason=_text(event, "reason"),
        **_speedup(event),
    )


def _ended(mode: LoggedMode, event: Mapping[str, Any]) -> dict[str, Any]:
    known = {"tuning successful": RunState.SUCCESSFUL, "tuning failed": RunState.FAILED}
    return {
        "state": known.get(_text(event, "result"), RunState.INTERRUPTED),
        "baseline_ms": _number(event, "baseline_ms"),
        "tuned_ms": _number(event, "tuned_ms"),
        **_speedup(event),
    }


_CHANGES: Mapping[str, Callable[[LoggedMode, Mapping[str, Any]], dict[str, Any]]] = {
    ProgressEventKind.PLAN: _planned,
    ProgressEventKind.BEGIN: _begun,
    ProgressEventKind.TRIAL: _tried,
    ProgressEventKind.TASK: _finished,
    ProgressEventKind.STEP: lambda mode, event: {"step": _text(event, "text")},
    ProgressEventKind.WARNING: lambda mode, event: {
        "warnings": (*mode.warnings, _text(event, "text"))
    },
    ProgressEventKind.END: _ended,
}


def _speedup(event: Mapping[str, Any]) -> dict[str, float | None]:
    return {name: _number(event, name) for name in ("speedup", "speedup_low", "speedup_high")}


def _text(event: Mapping[str, Any], name: str) -> str:
    value = event.get(name)
    return value if isinstance(value, str) else ""


def _number(event: Mapping[str, Any], name: str) -> float | None:
    value = event.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= sys.float_info.max else None  # an integer may be larger
