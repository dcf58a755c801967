"""Look-ups of levels by the glue: every level, any length, any strides, with and without VBMI."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aoe.kernels
from aoe.device.toolchain import find_toolchain, halide_include
from aoe.settings import environment

Array = np.ndarray[Any, Any]
_TABLE = np.random.default_rng(3).permutation(256).astype(np.uint8)


class _Dimension(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int32) for name in ("min", "extent", "stride", "flags")]


class _Buffer(ctypes.Structure):
    """halide_buffer_t. Source: HalideRuntime.h."""

    _fields_ = [
        *(("device", ctypes.c_uint64), ("interface", ctypes.c_void_p), ("host", ctypes.c_void_p)),
        *(("flags", ctypes.c_uint64), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8)),
        *(("lanes", ctypes.c_uint16), ("dimensions", ctypes.c_int32)),
        *(("dim", ctypes.POINTER(_Dimension)), ("padding", ctypes.c_void_p)),
    ]


def _buffer(array: Array | None, rank: int, minima: tuple[int, ...]) -> _Buffer:
    """Describe an array, whose last axis is the innermost dimension; without one, a query."""
    dims = (_Dimension * rank)()
    for at in range(rank if array is not None else 0):
        assert array is not None
        dims[at].extent, dims[at].stride = array.shape[-1 - at], array.strides[-1 - at]
        dims[at].min = minima[at]
    host = None if array is None else array.ctypes.data_as(ctypes.c_void_p)
    return _Buffer(host=host, code=1, bits=8, lanes=1, dimensions=rank, dim=dims)


@pytest.fixture(scope="module", params=["as the CPU can", "one by one"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    file = tmp_path_factory.mktemp("tables") / "tables.so"
    source = Path(aoe.kernels.__file__).parent / "glue" / "tables.c"
    hidden = ["-D__builtin_cpu_supports(name)=0"] if request.param == "one by one" else []
    flags = ["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{halide_include()}"]
    command = [*flags, *hidden, "-o", str(file), str(source)]
    find_toolchain(environment()).run(command, what="compiling look-ups")
    return ctypes.CDLL(str(file))


def _look_up(library: Any, levels: Array, minima: tuple[int, ...], made: Array) -> None:
    rank = levels.ndim
    # the levels lie around those that are asked for
    first = tuple(min_ - 1 for min_ in minima)
    buffers = _buffer(levels, rank, first), _buffer(_TABLE, 1, (0,)), _buffer(made, rank, minima)
    assert library.aoe_look_up(*map(ctypes.byref, buffers)) == 0


@pytest.mark.parametrize("length", [1, 2, 15, 63, 64, 65, 127, 128, 256, 300])
def test_every_level_of_any_length_is_looked_up(library: Any, length: int) -> None:
    levels = np.arange(length + 2).astype(np.uint8)
    made = np.full(length + 8, 77, np.uint8)
    _look_up(library, levels, (1,), made[:length])
    np.testing.assert_array_equal(made[:length], _TABLE[levels[1:-1]])
    assert (made[length:] == 77).all()


def test_rows_that_lie_apart_are_looked_up(library: Any) -> None:
    levels = np.random.default_rng(1).integers(0, 256, (5, 7, 40)).astype(np.uint8)
    made = np.full((3, 5, 50), 77, np.uint8)
    _look_up(library, levels, (4, 2, 9), made[:, :, :38])
    np.testing.assert_array_equal(made[:, :, :38], _TABLE[levels[1:4, 1:6, 1:39]])
    assert (made[:, :, 38:] == 77).all()


def test_a_query_is_answered_by_what_is_asked_for(library: Any) -> None:
    made = np.zeros((3, 5), np.uint8)
    levels, table = _buffer(None, 2, ()), _buffer(None, 1, ())
    asked = _buffer(made, 2, (4, 2))
    assert library.aoe_look_up(*map(ctypes.byref, (levels, table, asked))) == 0
    assert [(levels.dim[at].min, levels.dim[at].extent) for at in range(2)] == [(4, 5), (2, 3)]
    assert (table.dim[0].min, table.dim[0].extent) == (0, 256)
