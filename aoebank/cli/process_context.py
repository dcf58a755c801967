"""What whoever started a program left it with: streams that may be closed, signals that end it."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

_HEARD = 2
"""Signals: one ends the program, a second one ends what it waits for; more would only tear apart
what puts things away."""
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _LossyFile(io.FileIO):
    """Standard error: what nobody can take is lost, and ends nothing."""

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        """Write, or lose, all of it."""
        with contextlib.suppress(OSError):
            super().write(data)
        return len(data)


def open_streams() -> None:
    """Make the standard streams usable: closed ones lead nowhere, and text is never refused.

    A file opened later must not get the number of a closed stream: a library that writes its
    messages there would write them into the file.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
    is_own = sys.stderr is sys.__stderr__
    if sys.stdout is None:
        sys.stdout = _nowhere()
    if sys.stderr is None:
        sys.stderr = _nowhere()
    elif is_own:  # and not what a test or a notebook has put there
        sys.stderr = _lossy(sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")  # a bank may hold what a terminal cannot


def drop_output() -> None:
    """Let what is still to be written to standard output go nowhere: nobody takes it."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def stopped_by_signals() -> Iterator[list[signal.Signals]]:
    """Let SIGTERM and SIGHUP end the program as Ctrl-C does, by `KeyboardInterrupt`.

    So everything is put away on the way out. A signal that is ignored from the start stays
    ignored (`nohup`); a forked child is ended by it as it would have been.

    Yields:
        The signals that came, in order.
    """
    came: list[signal.Signals] = []
    owner = os.getpid()

    def stop(number: int, _: FrameType | None) -> None:
        if os.getpid() != owner:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        came.append(signal.Signals(number))
        if len(came) <= _HEARD:
            raise KeyboardInterrupt

    found = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.getsignal(number) for number in _STOPS}
        found = {number: old for number, old in handlers.items() if old is not signal.SIG_IGN}
    for number in found:
        signal.signal(number, stop)
    try:
        yield came
    finally:
        for number, old in found.items():
            # it ends: an impatient second Ctrl-C changes neither message nor exit code
            signal.signal(number, signal.SIG_IGN if came else old)


def _lossy(stream: TextIO) -> io.TextIOWrapper:
    file = io.BufferedWriter(_LossyFile(stream.fileno(), "w", closefd=False))  # type: ignore[type-var]
    return io.TextIOWrapper(file, encoding=stream.encoding, line_buffering=True)


def _nowhere() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.FileIO(os.devnull, "w"), encoding="utf-8")
