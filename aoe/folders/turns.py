"""Turns on a machine: of all runs on the same cores, one measures at a time.

What measures has the cores for itself. Compilers share them among themselves: a compiler on the
same cores is what a measurement must not see. A lock ends with its process, however that ends.
What measures in pairs gives way between two of them once its slice is over and another run waits.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from aoe.errors import RunError, TurnTimeoutError
from aoe.folders.locks import FileLock, open_plain, take_lock
from aoe.folders.ownership import shared_folder

_LOCK_WAIT_S = 0.2
"""Time one call waits for a lock, before the run looks whether it should stop."""
SLICE_S = 0.1
"""Least time that a run measures before it gives way in the middle of a measurement."""
_LONGEST_SLICE_S = 2.0
"""Most of it: of four runs each waits for three, and half of that would grow without end."""
_LAST_S = 5.0
"""With less time left a run keeps the cores: the next turn of others may take all of that."""
_PATIENCE_S = 1.0
"""Waiting that long is worth a word."""
_OWNER_BYTES = 1000
_COMMAND_CHARS = 120

_joined: set[object] = set()
"""Turns this whole process is part of: what its script tunes in a training step, in whatever
thread, must not wait for the tuner that waits for the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOwner:
    """Process that measures."""

    pid: int  # Its process
    command: str  # Its command line, cut
    since: str  # When its turn began, ISO 8601 with the time zone

    def __str__(self) -> str:
        return f"pid {self.pid} since {self.since[11:19]}, {self.command}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wait:
    most_s: float = math.inf
    should_stop: Callable[[], bool] = lambda: False
    joins: Callable[[], bool] = lambda: False
    clock: Callable[[], float]
    began_s: float

    def waited_s(self) -> float:
        return self.clock() - self.began_s

    def left_s(self) -> float:
        return max(0.0, self.most_s - self.waited_s())


class Turns:
    """Turns of one run; its threads and workers share them.

    Args:
        folder: Where the locks are, the same for all runs on the machine; None takes no turns.
        cores: Names of what is measured on, `cpu0`; a run on others is no concern.
        on_event: Is told once whom this run waits for, and if there can be no locks.
        left_s: Seconds this run has left to wait in.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        folder: Path | None,
        cores: Sequence[str],
        on_event: Callable[[str], None] = lambda text: None,
        left_s: Callable[[], float] = lambda: math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._cores = sorted(cores)  # all runs in one order: none waits for one that waits for it
        self._on_event = on_event
        self._left_s = left_s
        self._clock = clock
        self._told: set[int] = set()
        self._state = threading.Lock()
        self._inside: list[int] = []
        self._measuring = 0
        self._has_cores = False
        self._taken = ExitStack()
        self._waited_s = 0.0
        self._slice_s = SLICE_S
        self._since_s = 0.0

    @property
    def waited_s(self) -> float:
        """Seconds the threads of this run have waited for other runs, all together."""
        with self._state:
            return self._waited_s

    @property
    def left_s(self) -> float:
        """Seconds this run has left to wait in."""
        return self._left_s()

    @contextmanager
    def measuring(self, should_stop: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Have the cores for a `with` block; wait for whoever has them.

        Args:
            should_stop: Ends the waiting.

        Raises:
            RunError: it did.
            TurnTimeoutError: the time of this run was over before.
        """
        with self._counted(), ExitStack() as held:
            self._take_in_time(held, should_stop, shared=False)
            with self._state:
                self._measuring += 1
                self._keep(held.pop_all())
            held.callback(self._end)
            yield

    @contextmanager
    def compiling(self, should_stop: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Keep others from measuring for a `with` block; others may compile, too.

        Args:
            should_stop: Ends the waiting.

        Raises:
            RunError: it did.
            TurnTimeoutError: the time of this run was over before.
        """
        with self._counted(), ExitStack() as held:
            self._take_in_time(held, should_stop, shared=True)
            yield

    @property
    def should_give_way(self) -> bool:
        """True if another run waits, the slice of this one is over, and it has time left.

        A slice lasts half of what this run has waited for the cores, within bounds: measuring in
        slices beside a run that compiles for seconds at a time keeps a third of the cores at least.
        """
        with self._state:
            is_over = self._clock() - self._since_s >= self._slice_s
            if not is_over or not self._may_give_way():
                return False
        if self._left_s() < _LAST_S:
            return False
        return any(map(self._has_queue, self._cores))

    def give_way(self) -> float:
        """Let other runs measure, then take the cores again; return the seconds that took.

        Nothing happens where another thread of this run is inside of the turn, too.

        Raises:
            TurnTimeoutError: the time of this run was over before.
        """
        with self._state:
            if not self._may_give_way():
                return 0.0
            self._give_back()
        with ExitStack() as held:
            waited_s = self._take_in_time(held, lambda: False, shared=False)
            with self._state:
                self._keep(held.pop_all())
        return waited_s

    def take(self, held: ExitStack, *, wait_s: float) -> bool:
        """Try to have the cores until `held` is closed; True if that worked in time.

        What this process does meanwhile is part of it.
        """
        wait = _Wait(most_s=wait_s, clock=self._clock, began_s=self._clock())
        if not self._is_mine() and not self._take(held, wait, shared=False):
            return False
        join_turn(held)
        return True

    def owner(self) -> TurnOwner | None:
        """Return the run that measures on these cores, None if there is none or none is named."""
        if self._folder is None:
            return None
        for core in self._cores:
            if (found := _read_owner(self._file(core))) is not None:
                return found
        return None

    def _is_mine(self) -> bool:
        """True if this run has the cores already, or there is nothing to take."""
        with self._state:
            return bool(_joined) or self._has_cores or self._folder is None

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count this thread before it looks for the cores, so that nobody gives them back then."""
        thread = threading.get_ident()
        with self._state:
            self._inside.append(thread)
        try:
            yield
        finally:
            with self._state:
                self._inside.remove(thread)

    def _keep(self, taken: ExitStack) -> None:
        """Keep what a thread has taken until the last turn of this run ends, or gives way."""
        if not self._has_cores:
            self._has_cores, self._since_s = True, self._clock()
        self._taken.push(taken)

    def _give_back(self) -> None:
        self._has_cores = False
        self._taken.close()

    def _end(self) -> None:
        with self._state:
            self._measuring -= 1
            if self._measuring == 0:
                self._give_back()

    def _may_give_way(self) -> bool:
        """True if this thread alone has the turn; what others have or do is not its to stop."""
        alone = set(self._inside) == {threading.get_ident()}
        return alone and self._has_cores and not _joined and self._folder is not None

    def _has_queue(self, core: str) -> bool:
        """True if another run waits for a core; asking takes nobody's place."""
        file = self._file(core, "queue")
        try:
            with shared_folder(file.parent) as folder:
                free = take_lock(file, shared=True, folder=folder)
        except OSError:
            return False
        if free is None:
            return True
        free.release()
        return False

    def _take_in_time(
        self, held: ExitStack, should_stop: Callable[[], bool], *, shared: bool
    ) -> float:
        """Take every core, or go along with another thread of this run that has them.

        Returns:
            Seconds that took.
        """
        wait = _Wait(
            most_s=self._left_s(),
            should_stop=should_stop,
            joins=self._is_mine,
            clock=self._clock,
            began_s=self._clock(),
        )
        try:
            self._take_within(held, wait, shared=shared)
        finally:
            waited_s = wait.waited_s()
            with self._state:
                self._waited_s += waited_s
                if not self._has_cores:
                    self._slice_s = min(max(SLICE_S, waited_s / 2), _LONGEST_SLICE_S)
        return waited_s

    def _take_within(self, held: ExitStack, wait: _Wait, *, shared: bool) -> None:
        while not self._is_mine() and not self._take(held, wait, shared=shared):
            if wait.left_s() <= 0 and not self._is_mine():
                raise TurnTimeoutError(
                    "time limit",
                    "it was over before the cores were free",
                    got=self.owner() or "another run compiles",
                    expected=f"a turn on {', '.join(self._cores)}: one run measures at a time",
                    hint="tune when the other run has ended, or with a longer --tuning_time_limit",
                )

    def _take(self, held: ExitStack, wait: _Wait, *, shared: bool) -> bool:
        """Take every core; False if the time was not enough."""
        with ExitStack() as taken:
            for core in self._cores:
                try:
                    lock = self._lock(core, wait, shared=shared)
                except OSError as error:
                    self._go_without(error)
                    return True
                if lock is None:
                    return False
                taken.enter_context(lock)
                if not shared:
                    lock.note(_own_note())
                    taken.callback(lock.note, b"")
            held.push(taken.pop_all())
        return True

    def _lock(self, core: str, wait: _Wait, *, shared: bool) -> FileLock | None:
        """Take one core; who waits stands in a queue, so that nobody comes twice before him."""
        queue = self._wait_for(self._file(core, "queue"), core, wait, shared=False)
        if queue is None:
            return None
        with queue:
            return self._wait_for(self._file(core), core, wait, shared=shared)

    def _wait_for(self, file: Path, core: str, wait: _Wait, *, shared: bool) -> FileLock | None:
        while True:
            with shared_folder(file.parent) as folder:
                wait_s = min(_LOCK_WAIT_S, wait.left_s())
                lock = take_lock(file, shared=shared, wait_s=wait_s, folder=folder)
            if lock is not None:
                return lock
            if wait.joins():
                return None
            if wait.should_stop():
                raise RunError("worker", "given up: the run ends")
            if wait.waited_s() >= _PATIENCE_S:
                self._say_waiting(core)
            if wait.left_s() <= 0:
                return None

    def _say_waiting(self, core: str) -> None:
        owner = _read_owner(self._file(core))
        who = owner.pid if owner is not None else 0
        if who in self._told:
            return
        self._told.add(who)
        what = f"measures ({owner})" if owner is not None else "compiles"
        text = f"waiting: another run {what} on {core}; one measures at a time"
        if math.isfinite(left_s := self._left_s()):
            text += f"; for {left_s:.0f} s at most, as the time limit says"
        self._on_event(text)

    def _go_without(self, error: OSError) -> None:
        why = f"{self._folder}: {error.strerror or error}"
        self._on_event(f"measuring without a lock, other runs may disturb: {why}")
        self._folder = None

    def _file(self, core: str, kind: str = "lock") -> Path:
        assert self._folder is not None
        return self._folder / f"{core}.{kind}"


def join_turn(held: ExitStack) -> None:
    """Count what this process does until `held` is closed as part of a turn somebody has."""
    token = object()
    _joined.add(token)
    held.callback(_joined.discard, token)


def _program(argv0: str) -> str:
    """Return the name of this program in messages of other runs.

    >>> _program("/usr/bin/aoe"), _program("/app/serve/__main__.py")
    ('aoe', 'python -m serve')
    """
    file = Path(argv0)
    if file.name in ("", "-c", "-"):  # a script without a file: its folder says whose it is
        return f"python {file.name}".rstrip() + f" in {Path.cwd()}"
    return f"python -m {file.parent.name}" if file.name == "__main__.py" else file.name


def _own_note() -> bytes:
    command = " ".join([_program(sys.argv[0]), *sys.argv[1:]])
    facts = {
        "pid": os.getpid(),
        "command": command if len(command) <= _COMMAND_CHARS else command[:_COMMAND_CHARS] + "...",
        "since": datetime.now().astimezone().isoformat(timespec="seconds"),
    }
    return json.dumps(facts).encode()


def _read_owner(file: Path) -> TurnOwner | None:
    try:
        if not file.parent.is_dir():
            return None
        with shared_folder(file.parent) as folder:
            descriptor = open_plain(file, os.O_RDONLY, folder)
        with os.fdopen(descriptor, "rb") as stream:
            facts: Any = json.loads(stream.read(_OWNER_BYTES))
        return TurnOwner(
            pid=int(facts["pid"]), command=str(facts["command"]), since=str(facts["since"])
        )
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None
