"""Turns on a machine: of all runs on the same cores, one measures at a time.

What measures has the cores for itself. Compilers share them among themselves: a compiler on the
same cores is what a measurement must not see. A lock ends with its process, however that ends.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from aoe.errors import RunError, TurnTimeoutError
from aoe.folders.locks import FileLock, take_lock

_SLICE_S = 0.2
_PATIENCE_S = 1.0
"""Waiting that long is worth a word."""
_OWNER_BYTES = 1000
_COMMAND_CHARS = 120

_joined: set[object] = set()
"""Turns this whole process is part of: what its script tunes in a training step, in whatever
thread, must not wait for the tuner that waits for the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOwner:
    """Who measures.

    Attributes:
        pid: Its process.
        command: Its command line, cut.
        since: When its turn began, ISO 8601 with the time zone.
    """

    pid: int
    command: str
    since: str

    def __str__(self) -> str:
        return f"pid {self.pid} since {self.since[11:19]}, {self.command}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wait:
    most_s: float = math.inf
    should_stop: Callable[[], bool] = lambda: False
    joins: Callable[[], bool] = lambda: False
    began_s: float = field(default_factory=time.monotonic)

    def waited_s(self) -> float:
        return time.monotonic() - self.began_s

    def left_s(self) -> float:
        return max(0.0, self.most_s - self.waited_s())


class Turns:
    """Turns of one run; its threads and workers share them.

    Args:
        folder: Where the locks are, the same for all runs on the machine; None takes no turns.
        cores: Names of what is measured on, `cpu0`; a run on others is no concern.
        tell: Is told once whom this run waits for, and if there can be no locks.
        left_s: Seconds this run has left to wait in.
    """

    def __init__(
        self,
        folder: Path | None,
        cores: Sequence[str],
        tell: Callable[[str], None] = lambda text: None,
        left_s: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self._folder = folder
        self._cores = sorted(cores)  # all runs in one order: none waits for one that waits for it
        self._tell = tell
        self._left_s = left_s
        self._told: set[int] = set()
        self._state = threading.Lock()
        self._measuring = 0
        self._taken = ExitStack()
        self._waited_s = 0.0

    @property
    def waited_s(self) -> float:
        """Seconds the threads of this run have waited for other runs, all together."""
        with self._state:
            return self._waited_s

    @contextmanager
    def measuring(self, should_stop: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Have the cores for a `with` block; wait for whoever has them.

        Args:
            should_stop: Ends the waiting.

        Raises:
            RunError: it did.
            TurnTimeoutError: the time of this run was over before.
        """
        with ExitStack() as held:
            self._take_in_time(held, should_stop, shared=False)
            self._begin(held.pop_all())
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
        with ExitStack() as held:
            self._take_in_time(held, should_stop, shared=True)
            yield

    def take(self, held: ExitStack, *, wait_s: float) -> bool:
        """Try to have the cores until `held` is closed; True if that worked in time.

        What this process does meanwhile is part of it.
        """
        if not self._is_mine() and not self._take(held, _Wait(most_s=wait_s), shared=False):
            return False
        join_turn(held)
        return True

    def owner(self) -> TurnOwner | None:
        """Return who measures on these cores, None if nobody does or nobody says."""
        if self._folder is None:
            return None
        for core in self._cores:
            if (found := _read_owner(self._file(core))) is not None:
                return found
        return None

    def _is_mine(self) -> bool:
        """True if this run has the cores already, or there is nothing to take."""
        with self._state:
            return bool(_joined) or self._measuring > 0 or self._folder is None

    def _begin(self, taken: ExitStack) -> None:
        """Count a turn; what it has taken is kept until the last one of this run has ended."""
        with self._state:
            self._measuring += 1
            self._taken.push(taken)

    def _end(self) -> None:
        with self._state:
            self._measuring -= 1
            if self._measuring == 0:
                self._taken.close()

    def _take_in_time(
        self, held: ExitStack, should_stop: Callable[[], bool], *, shared: bool
    ) -> None:
        """Take every core, or go along with another thread of this run that has them."""
        wait = _Wait(most_s=self._left_s(), should_stop=should_stop, joins=self._is_mine)
        try:
            self._take_within(held, wait, shared=shared)
        finally:
            with self._state:
                self._waited_s += wait.waited_s()

    def _take_within(self, held: ExitStack, wait: _Wait, *, shared: bool) -> None:
        while not self._is_mine() and not self._take(held, wait, shared=shared):
            if wait.left_s() <= 0 and not self._is_mine():
                raise TurnTimeoutError(
                    "time limit",
                    "it was over before the cores were free, nothing was measured",
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
        _make_for_all(file)
        while True:
            lock = take_lock(file, shared=shared, wait_s=min(_SLICE_S, wait.left_s()))
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
        self._tell(text)

    def _go_without(self, error: OSError) -> None:
        self._tell(f"measuring without a lock, other runs may disturb: {self._folder}: {error}")
        self._folder = None

    def _file(self, core: str, kind: str = "lock") -> Path:
        assert self._folder is not None
        return self._folder / f"{core}.{kind}"


def join_turn(held: ExitStack) -> None:
    """Count what this process does until `held` is closed as part of a turn somebody has."""
    token = object()
    _joined.add(token)
    held.callback(_joined.discard, token)


def _own_note() -> bytes:
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    facts = {
        "pid": os.getpid(),
        "command": command if len(command) <= _COMMAND_CHARS else command[:_COMMAND_CHARS] + "...",
        "since": datetime.now().astimezone().isoformat(timespec="seconds"),
    }
    return json.dumps(facts).encode()


def _read_owner(file: Path) -> TurnOwner | None:
    try:
        with file.open("rb") as stream:
            facts: Any = json.loads(stream.read(_OWNER_BYTES))
        return TurnOwner(
            pid=int(facts["pid"]), command=str(facts["command"]), since=str(facts["since"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _make_for_all(file: Path) -> None:
    """Make a lock any user of the machine can take, if it is not there.

    Raises:
        OSError: it cannot be made.
    """
    if file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):  # somebody else's, who has done the same
        file.parent.chmod(0o777)
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
        try:
            os.fchmod(descriptor, 0o666)
        finally:
            os.close(descriptor)
