"""Exports and tunings of a process: one at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aoe.tuner.progress import Progress

one_at_a_time = threading.RLock()
"""Held while a module is exported or tuned: PyTorch's exporter changes the whole process, and two
tunings would only measure each other."""


@contextmanager
def its_turn(progress: Progress) -> Iterator[None]:
    """Wait until no other thread exports or tunes."""
    if not one_at_a_time.acquire(blocking=False):
        progress.step("waiting for another thread that optimizes a module")
        one_at_a_time.acquire()
    try:
        yield
    finally:
        one_at_a_time.release()
