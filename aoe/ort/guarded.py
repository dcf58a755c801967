"""Tensors with forbidden pages around them: an access outside of one ends the process.

A kernel that writes too far spoils something of the worker's: an input of the next candidate, what
it is compared with, a list of free memory. The run would go on with that. So candidates are checked
on tensors that end where a page begins which nobody may touch, and on inputs nobody may write to:
the kernel that does ends the worker, and is the candidate that fails.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort

from aoe.errors import RunError
from aoe.ort.sessions import BoundRun

Array = np.ndarray[Any, Any]

_NOBODY, _READERS = 0, 1
"""PROT_NONE and PROT_READ. Source: mprotect(2)."""
_UNTOUCHED, _UNWRITTEN = 0xA5, 0xFF
"""Bytes in front of a tensor, and of a result before it is computed: NaN, or minus one."""


class GuardedTensor:
    """An array in pages of its own, its last byte the last that may be touched.

    In front of it lie a few bytes up to the page, where writing is noticed only afterwards.

    Attributes:
        array: As given, in C order; at an address that is a multiple of its elements' size only.

    Args:
        array: What it holds at first.
        read_only: True to forbid writing to it.

    Raises:
        RunError: the system has no memory for it.
    """

    def __init__(self, array: Array, *, read_only: bool = False) -> None:
        page = mmap.PAGESIZE
        size = -(-max(array.nbytes, 1) // page) * page
        try:
            memory = mmap.mmap(-1, size + 2 * page, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise _no_memory(array, error.errno) from error
        held = np.frombuffer(memory, np.uint8)
        begin, end = page + size - array.nbytes, page + size
        self._slack = held[page:begin]
        self._slack[:] = _UNTOUCHED
        self.array: Array = held[begin:end].view(array.dtype).reshape(array.shape)
        self.array[...] = array
        address = held.ctypes.data
        _protect(array, address, page, _NOBODY)
        _protect(array, address + end, page, _NOBODY)
        if read_only:
            _protect(array, address + page, size, _READERS)

    def clear(self) -> None:
        """Make every element one that nothing computes, and what lies in front as it was."""
        self._slack[:] = _UNTOUCHED
        self.array.reshape(-1).view(np.uint8)[:] = _UNWRITTEN

    def is_intact(self) -> bool:
        """True if the bytes around the array are untouched."""
        return bool((self._slack == _UNTOUCHED).all())


class GuardedRuns:
    """Inputs and results that candidates of one workload are checked on.

    Attributes:
        feeds: The inputs as candidates see them, by name; nobody may write to them.

    Args:
        feeds: Sets of inputs by name.
        result: What the default computes of one of them: its shape and type.

    Raises:
        RunError: the system has no memory for them.
    """

    def __init__(self, feeds: Sequence[Mapping[str, Array]], result: Array) -> None:
        self._tensors = [
            {name: GuardedTensor(array, read_only=True) for name, array in feed.items()}
            for feed in feeds
        ]
        self._result = GuardedTensor(result)
        self.feeds: tuple[Mapping[str, Array], ...] = tuple(
            {name: tensor.array for name, tensor in tensors.items()} for tensors in self._tensors
        )

    def run(self, session: ort.InferenceSession, number: int) -> Array:
        """Return the one output of a session for a set of inputs, valid until the next run.

        What it does not write is NaN, or minus one.

        Raises:
            RunError: ONNX Runtime or a kernel refuses, or wrote in front of its result.
        """
        binding = session.io_binding()
        for value in session.get_inputs():
            array = self.feeds[number][value.name]
            binding.bind_input(value.name, *_PLACE, array.dtype, array.shape, array.ctypes.data)
        self._result.clear()
        array = self._result.array
        name = session.get_outputs()[0].name
        binding.bind_output(name, *_PLACE, array.dtype, array.shape, array.ctypes.data)
        BoundRun(session, binding, [self])()
        if not self._result.is_intact():
            raise RunError("kernel", "it writes in front of its result")
        return array


_PLACE = ("cpu", 0)
"""Where numpy's arrays are, in ONNX Runtime's words."""


def _protect(array: Array, address: int, size: int, access: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), access):
        raise _no_memory(array, ctypes.get_errno())


def _no_memory(array: Array, code: int | None) -> RunError:
    reason = os.strerror(code) if code else "no reason is given"
    return RunError(
        "kernel", f"there is no memory to check it in: {reason}", got=f"{array.nbytes} bytes"
    )
