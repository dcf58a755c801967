"""Scan a large file on two cores: a forked child takes the second half of its lines.

The child shares the bytes of the file and sends back only what it found. Where that does
not work, or does not pay, the whole file is scanned here, with the same result.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from array import array
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from aoebank.formats.text.scan import FileScan
from aoebank.model.finding import Finding

MIN_BYTES = 16 * 2**20  # forking costs some 20 ms, as much as scanning a megabyte

Scan = Callable[[FileScan, int, int], None]
_Found = tuple[list[str], "array[int]", "array[int]", list[Finding], Counter[str]]


def scan_lines(scan: FileScan, work: Scan) -> None:
    """Let `work` fill `scan` from all bytes of its file, the halves at the same time.

    Args:
        scan: Nothing found in it yet but what is odd about the text as a whole.
        work: Adds the records and findings of whole lines between two bytes.
    """
    size = len(scan.data)
    middle = scan.data.find(b"\n", size // 2) + 1
    if size < MIN_BYTES or not middle or not may_fork():
        work(scan, 0, size)
        return
    child, pipe = _start_child(scan, work, middle)
    try:
        work(scan, 0, middle)
        found = _receive(pipe)
    finally:
        os.close(pipe)  # a child that still writes ends with that
        os.waitpid(child, 0)
    if found is None:
        work(scan, middle, size)
        return
    keys, starts, ends, findings, left_out = found
    scan.keys += keys
    scan.starts += starts
    scan.ends += ends
    scan.take_over(findings, left_out)


def may_fork() -> bool:
    """Return whether there is a second core, and no thread that a fork would tear apart."""
    try:
        threads = sum(1 for _ in Path("/proc/self/task").iterdir())
        return threads == 1 and len(os.sched_getaffinity(0)) > 1
    except (OSError, AttributeError):  # not Linux
        return False


def _start_child(scan: FileScan, work: Scan, start: int) -> tuple[int, int]:
    """Return process and pipe of a child that scans from `start` to the end."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    code = 1
    try:
        os.close(reading)
        own = FileScan(data=scan.data, path=scan.path, lines=scan.lines)
        work(own, start, len(scan.data))
        with os.fdopen(writing, "wb") as stream:
            found = (own.keys, own.starts, own.ends, own.findings, own.left_out)
            pickle.dump(found, stream, protocol=5)
        code = 0
    finally:
        os._exit(code)  # neither exit handlers nor buffers of the parent are ours


def _receive(pipe: int) -> _Found | None:
    """Return what the child found, None if it died."""
    with (
        os.fdopen(pipe, "rb", closefd=False) as stream,
        contextlib.suppress(EOFError, pickle.UnpicklingError),
    ):
        found: _Found = pickle.load(stream)
        return found
    return None
