"""A kernel in this process, compiled with Halide's run-time checks and kept from run to run."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import halide as hl
import numpy as np

import aoe.kernels
from aoe.device.compiler import (
    KernelSource,
    compile_kernel,
    kernel_symbol,
    objects_of,
    packing_symbol,
)
from aoe.device.object_cache import ObjectCache
from aoe.device.registry import default_device
from aoe.device.toolchain import find_toolchain, halide_include
from aoe.folders.scratch import ScratchFolder
from aoe.kernels.family import BufferView, KernelTarget, PackedInput
from aoe.kernels.registry import get_family
from aoe.schedule import Configuration, Schedule
from aoe.settings import environment
from aoe.target import Target
from aoe.workload import Workload

Array = np.ndarray[Any, Any]
THREADS = 2
CHECKED_FEATURES = ("no_runtime",)
"""Halide checks bounds and alignment at run time; one runtime serves all kernels of a process."""
_CACHE_BYTES = 4 << 30
_SEEN_AS = {"float16": "uint16", "bool": "uint8"}
"""Types kernels see the bits of."""
_PACK_ALIGNMENT = 64
"""Bytes; kernels store whole vectors to packed inputs. Source: AOE_ALIGNMENT of the glue."""
_LIBRARY = "kernel.so"
_UNWRITTEN = 77
"""What an output holds before the kernel writes it."""
_CODES = {"i": 0, "u": 1, "b": 1, "f": 2}
"""`halide_type_code_t` by NumPy's kind. Source: HalideRuntime.h."""
_BFLOAT16 = 4


class _Type(ctypes.Structure):
    """`halide_type_t`."""

    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Dimension(ctypes.Structure):
    """`halide_dimension_t`, in elements."""

    _fields_ = (
        ("min", ctypes.c_int32),
        ("extent", ctypes.c_int32),
        ("stride", ctypes.c_int32),
        ("flags", ctypes.c_uint32),
    )


class _Buffer(ctypes.Structure):
    """`halide_buffer_t`."""

    _fields_ = (
        ("device", ctypes.c_uint64),
        ("device_interface", ctypes.c_void_p),
        ("host", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("type", _Type),
        ("dimensions", ctypes.c_int32),
        ("dim", ctypes.POINTER(_Dimension)),
        ("padding", ctypes.c_void_p),
    )


def checked_target() -> Target:
    """Return this machine's CPU with the thread number tests use, whatever cores are usable."""
    return replace(default_device().describe(), core_num=THREADS)


def kernel_target() -> KernelTarget:
    """Return the facts about `checked_target` that kernel families schedule by."""
    return KernelTarget.of(checked_target())


def guessed_schedules(
    workload: Workload, target: KernelTarget | None = None
) -> tuple[Schedule, ...]:
    """Return the schedules of a workload's first guesses, best first."""
    family, target = get_family(workload.op_type), target or kernel_target()
    guesses = family.space(workload, target).first_guesses
    return tuple(family.schedule(workload, Configuration(one), target) for one in guesses)


class CompiledKernel:
    """A kernel compiled into this process, run-time checks on.

    Its code is kept in `AOE_TEST_CACHE`, where the variable is set, under the key that compiled
    kernels of tuning runs have: another process or a later run loads it.

    Args:
        workload: What to compute.
        schedule: How; None for Halide's default.

    Raises:
        ScheduleError: the schedule does not fit.
    """

    def __init__(self, workload: Workload, schedule: Schedule | None = None) -> None:
        source = KernelSource.of(workload, schedule or Schedule())
        self._workload = workload
        self._pipeline = get_family(workload.op_type).pipeline(workload, source.schedule.algorithm)
        library, symbol = _load(source), kernel_symbol(source.name)
        self._call = library[f"{symbol}_argv"]
        self._pack = {
            number: library[f"{packing_symbol(symbol, number)}_argv"]
            for number in self._pipeline.packings
        }

    def run(self, inputs: Mapping[str, Array]) -> Array:
        """Return the result for inputs `x0`, `x1`, ...: type and shape of the workload's.

        Raises:
            RuntimeError: a run-time check of the kernel fails.
        """
        extents = self._pipeline.argument_extents
        arguments = [self._argument(i, inputs, extents[i]) for i in range(len(extents))]
        dtype, shape = self._workload.output.dtype, self._workload.output.shape
        result = np.full(shape, _UNWRITTEN, dtype=_SEEN_AS.get(dtype, dtype))
        view = self._pipeline.views.get(len(extents))
        written = self._seen(result, self._pipeline.output_extents, view)
        _call(self._call, [*arguments, written])
        return result.view(dtype)

    def _argument(
        self, number: int, inputs: Mapping[str, Array], extents: Sequence[int]
    ) -> tuple[Array, _Type]:
        """Return an argument as the kernel reads it: packed, where it is read so."""
        packing = self._pipeline.packings.get(number)
        if packing is None:
            view = self._pipeline.views.get(number)
            source = number if view is None else view.tensor
            given = np.ascontiguousarray(inputs[f"x{source}"])
            return self._seen(
                given.view(_SEEN_AS.get(given.dtype.name, given.dtype)), extents, view
            )
        source = number if packing.source is None else packing.source
        dense = _dense(np.ascontiguousarray(inputs[f"x{source}"]), packing.argument_extents)
        packed = _packed(packing, extents)
        _call(self._pack[number], [dense, packed])
        return packed

    @staticmethod
    def _seen(
        stored: Array, extents: Sequence[int], view: BufferView | None
    ) -> tuple[Array, _Type]:
        """Return a tensor as the kernel sees it."""
        if view is None:
            return _dense(stored, extents)
        flat = stored.reshape(-1)[view.offset :]
        strides = tuple(stride * stored.itemsize for stride in reversed(view.strides))
        seen = np.lib.stride_tricks.as_strided(flat, tuple(reversed(extents)), strides)
        return seen, _type_of(seen)


def _dense(values: Array, extents: Sequence[int]) -> tuple[Array, _Type]:
    shaped = values.reshape(tuple(reversed(extents)))
    return shaped, _type_of(shaped)


def _type_of(values: Array) -> _Type:
    bits = 1 if values.dtype.kind == "b" else 8 * values.dtype.itemsize
    return _Type(_CODES[values.dtype.kind], bits, 1)


def _packed(packing: PackedInput, extents: Sequence[int]) -> tuple[Array, _Type]:
    """Return an unwritten packed argument, aligned as the glue aligns it.

    NumPy has no bfloat16: an array of its bits stands for one.
    """
    rounded = packing.dtype == "bfloat16"
    dtype = np.dtype(np.uint16 if rounded else packing.dtype)
    size = math.prod(extents) * dtype.itemsize
    memory = np.zeros(size + _PACK_ALIGNMENT, np.uint8)
    first = -memory.ctypes.data % _PACK_ALIGNMENT
    values = memory[first : first + size].view(dtype).reshape(tuple(reversed(extents)))
    return values, _Type(_BFLOAT16, 16, 1) if rounded else _type_of(values)


def _call(function: Any, arguments: Sequence[tuple[Array, _Type]]) -> None:
    """Call a kernel's function.

    Raises:
        RuntimeError: one of its run-time checks fails.
    """
    buffers, dimensions = [], []  # alive until the call has returned
    for values, kind in arguments:
        pairs = zip(reversed(values.shape), reversed(values.strides), strict=True)
        dims = (_Dimension * values.ndim)(
            *(_Dimension(0, extent, stride // values.itemsize, 0) for extent, stride in pairs)
        )
        dimensions.append(dims)
        buffers.append(_Buffer(0, None, values.ctypes.data, 0, kind, values.ndim, dims, None))
    pointers = (ctypes.c_void_p * len(buffers))(*map(ctypes.addressof, buffers))
    _ERRORS.clear()
    if function(pointers):
        raise RuntimeError("; ".join(_ERRORS) or "the kernel failed without a word")


_ERRORS: list[str] = []
"""What Halide said of the call that is running."""
_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)


def _note_error(_: Any, message: bytes) -> None:
    _ERRORS.append(message.decode(errors="replace").strip())


_NOTE_ERROR = _HANDLER(_note_error)


def _load(source: KernelSource) -> ctypes.CDLL:
    """Load the library of one kernel: a kept one, or one that is built and kept."""
    _load_runtime()
    kept = _kept_libraries()
    with ScratchFolder("checked") as scratch:
        file = scratch / _LIBRARY
        if kept is None or not kept.take(source, scratch):
            built = compile_kernel(source, checked_target(), scratch, CHECKED_FEATURES)
            _link(file, objects_of(built))
            if kept is not None:
                kept.put(source, [file])
        return ctypes.CDLL(str(file))


@cache
def _kept_libraries() -> ObjectCache | None:
    """Return the cache of linked kernels, None if `AOE_TEST_CACHE` is not set."""
    named = os.environ.get("AOE_TEST_CACHE")
    folder = Path(named) if named else None
    if folder is None:
        return None
    kept = ObjectCache(
        folder / "checked",
        checked_target(),
        limit_bytes=_CACHE_BYTES,
        build_features=CHECKED_FEATURES,
    )
    kept.prune()
    return kept


@cache
def _load_runtime() -> None:
    """Load what all kernels of this process call; failed checks are noted instead of fatal."""
    target = checked_target()
    with ScratchFolder("runtime") as scratch:
        built, file = scratch / "runtime.o", scratch / "runtime.so"
        hl.compile_standalone_runtime(str(built), hl.Target(target.halide_name))
        glue = Path(aoe.kernels.__file__).parent / "glue"
        parts: list[Path | str] = [built, f"-I{halide_include()}", glue / "tables.c"]
        if kernel_target().bf16_tiles or kernel_target().int8_tiles:
            parts.append(glue / "tiles.c")
        _link(file, parts)
        # kernels of later libraries look their runtime up among all global symbols
        runtime = ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)
    if (kernel_target().bf16_tiles or kernel_target().int8_tiles) and runtime.aoe_request_tiles():
        raise RuntimeError("the system keeps the tile registers back")
    runtime.halide_set_error_handler(_NOTE_ERROR)
    runtime.halide_set_num_threads(THREADS)


def _link(file: Path, parts: Sequence[Path | str]) -> None:
    toolchain = find_toolchain(environment())
    flags = ("-O2", "-shared", "-fPIC", "-pthread", "-o", str(file))
    toolchain.run([*flags, *map(str, parts), "-lm", "-ldl"], what="linking a checked kernel")
