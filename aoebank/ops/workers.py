"""Work on many files with two processes, and give the results in order.

A forked child takes every second file and sends back what came of it. It is one file ahead at
most: it waits until its last result is taken. Where forking is not possible everything is done
here, with the same results; so it is for what a child that died did not send.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from io import BufferedReader
from typing import TypeVar

from aoebank.errors import AoebankError
from aoebank.formats.text.parallel_scan import may_fork

_LARGE_BYTES = 16 * 2**20  # forking costs some 20 ms, as much as a megabyte
_File = TypeVar("_File")
_Result = TypeVar("_Result")


def takes_two(files: Sequence[object], size_bytes: int) -> bool:
    """Return whether a second process can be had, and pays."""
    return size_bytes >= _LARGE_BYTES and len(files) > 1 and may_fork()


def map_files(
    files: Sequence[_File], work: Callable[[_File], _Result], *, in_two: bool
) -> Iterator[_Result]:
    """Yield what `work` gives for each file, in order.

    Args:
        work: May raise `AoebankError`; its results and errors can be pickled.
        in_two: Whether to let a second process help.
    """
    if not in_two:
        yield from map(work, files)
        return
    child, pipe = _start_child(files[1::2], work)
    stream = os.fdopen(pipe, "rb")
    try:
        for number, file in enumerate(files):
            yield _receive(stream, work, file) if number % 2 else work(file)
    finally:
        stream.close()  # a child that still writes ends with that
        os.waitpid(child, 0)


def _start_child(files: Sequence[_File], work: Callable[[_File], _Result]) -> tuple[int, int]:
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    try:
        os.close(reading)
        with os.fdopen(writing, "wb") as stream, contextlib.suppress(BrokenPipeError):
            for file in files:
                pickle.dump(_attempt(work, file), stream, protocol=5)
                stream.flush()
    finally:
        os._exit(0)  # neither exit handlers nor buffers of the parent are ours


def _attempt(work: Callable[[_File], _Result], file: _File) -> _Result | AoebankError:
    try:
        return work(file)
    except AoebankError as error:
        return error


def _receive(stream: BufferedReader, work: Callable[[_File], _Result], file: _File) -> _Result:
    try:
        found: _Result | AoebankError = pickle.load(stream)
    except (EOFError, pickle.UnpicklingError):
        return work(file)  # the child is gone, for lack of memory most likely
    if isinstance(found, AoebankError):
        raise found
    return found
