"""The end of a process that has trained: without taking apart what the system takes back anyway."""

from __future__ import annotations

import atexit
import ctypes
import gc
import io
import os
import sys
from contextlib import suppress


class QuickEnd:
    """Ends this process as soon as its exit handlers have run, if it has loaded PyTorch.

    Python would take PyTorch apart module by module: 1.6 s of CPU time in every process of a group,
    which on a busy machine are many seconds, after the last line of the script (torch 2.13, both
    cores of a shared Xeon, 2026-11-29). A process group that goes then may also wait for gloo's
    threads, which wait for Python.

    Handlers run in the reverse order of their registration. So this is made before the script and
    PyTorch register theirs, and comes last.

    Attributes:
        code: Exit code; None lets Python end the process, as after an error nobody caught.
    """

    def __init__(self) -> None:
        self.code: int | None = None
        self._process = os.getpid()
        atexit.register(self._end)

    def _end(self) -> None:
        # a fork of this process ends as whoever made it wants
        if self.code is None or "torch" not in sys.modules or os.getpid() != self._process:
            return
        gc.collect()
        # Python writes files that nobody has closed when it takes their modules apart
        for one in gc.get_objects():
            if issubclass(type(one), io.IOBase):
                with suppress(OSError, ValueError):
                    one.flush()
        ctypes.CDLL(None).fflush(None)  # what libraries have printed
        os._exit(self.code)
