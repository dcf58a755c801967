"""Forked processes of tests."""

from __future__ import annotations

import signal

_SECONDS = 60


def end_in_time() -> None:
    """End this forked process by SIGALRM after a minute.

    A copy of a process with threads may wait for ever for a lock that one of them held; it keeps
    the pipes of the process that runs the tests open, so that nobody sees that one end.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_SECONDS)
