"""The matrix tiles of AMX sum what NumPy sums."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aoe.kernels
from aoe.device.registry import default_device
from aoe.device.toolchain import Toolchain, halide_include
from aoe.kernels.halide.tile_sums import LevelReads

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.skipif(
    bool(default_device().missing_features(("amx_tile", "amx_bf16", "amx_int8"))),
    reason="this CPU has no AMX",
)
INT, UINT, FLOAT, BFLOAT = range(4)  # halide_type_code_t


class Dimension(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int32) for name in ("min", "extent", "stride", "flags")]


class Buffer(ctypes.Structure):
    """halide_buffer_t. Source: HalideRuntime.h."""

    _fields_ = [
        ("device", ctypes.c_uint64),
        ("interface", ctypes.c_void_p),
        ("host", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("dimensions", ctypes.c_int32),
        ("dim", ctypes.POINTER(Dimension)),
        ("padding", ctypes.c_void_p),
    ]


def buffer_of(array: Array, code: int, minima: tuple[int, ...] = ()) -> Buffer:
    """Describe an array, whose last axis is the innermost dimension."""
    rank, size = array.ndim, array.itemsize
    dims = (Dimension * rank)()
    for at in range(rank):
        axis = rank - 1 - at
        dims[at].extent = array.shape[axis]
        dims[at].stride = array.strides[axis] // size
        dims[at].min = minima[at] if minima else 0
    host = array.ctypes.data_as(ctypes.c_void_p)
    return Buffer(host=host, code=code, bits=8 * size, lanes=1, dimensions=rank, dim=dims)


@pytest.fixture(scope="module")
def library(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    file = tmp_path_factory.mktemp("tiles") / "tiles.so"
    source = Path(aoe.kernels.__file__).parent / "glue" / "tiles.c"
    flags = ["-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-I{halide_include()}"]
    toolchain.run([*flags, "-o", str(file), str(source)], what="building")
    found = ctypes.CDLL(str(file))
    assert found.aoe_request_tiles() == 0
    return found


@dataclass(frozen=True)
class Case:
    """One convolution: width and height of the results, blocks, and the filter."""

    columns: int
    rows: int = 1
    blocks_in: int = 1
    blocks_out: int = 1
    images: int = 1
    kernel: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)

    @property
    def read(self) -> tuple[int, int]:
        """Columns and rows of the data."""
        across, down = (
            (extent - 1) * stride + (taps - 1) * dilation + 1
            for extent, stride, taps, dilation in zip(
                (self.columns, self.rows), self.strides, self.kernel, self.dilations, strict=True
            )
        )
        return across, down


CASES = {
    "one result": Case(1),
    "a prime number of results": Case(37, blocks_in=2, blocks_out=3),
    "a full tile": Case(16, blocks_out=2),
    "one more than a tile": Case(17, blocks_out=2),
    "three groups": Case(48, blocks_in=3, blocks_out=1),
    "3 x 3": Case(14, rows=5, blocks_in=2, blocks_out=4, kernel=(3, 3)),
    "strides, images": Case(9, rows=3, images=2, blocks_out=2, kernel=(3, 2), strides=(2, 3)),
    "dilation": Case(20, rows=2, kernel=(2, 3), dilations=(3, 2)),
}


def bits_of(array: Array) -> Array:
    """Return the upper halves of float32 values whose lower halves are 0: their bfloat16."""
    upper: Array = (array.view(np.uint32) >> 16).astype(np.uint16)
    return upper


def values(shape: tuple[int, ...], seed: int) -> Array:
    """Return small integers, which bfloat16 holds and float32 sums exactly."""
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32)


def expected_of(case: Case, data: Array, weights: Array) -> Array:
    result = np.zeros((case.images, case.blocks_out, case.rows, case.columns, 16), np.float32)
    across, down = case.read
    for x, y in product(range(case.kernel[0]), range(case.kernel[1])):
        left, top = x * case.dilations[0], y * case.dilations[1]
        seen = data[:, :, top : down : case.strides[1], left : across : case.strides[0]]
        seen = seen[:, :, : case.rows, : case.columns]
        taps = weights[:, :, y, x].transpose(0, 1, 2, 4, 3)  # b, i, c / 2, c % 2, o
        taps = taps.reshape(case.blocks_out, case.blocks_in, 32, 16)
        result += np.einsum("nihwc,bico->nbhwo", seen, taps)
    return result


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_sums_are_numpys(library: ctypes.CDLL, case: Case) -> None:
    across, down = case.read
    data = values((case.images, case.blocks_in, down, across, 32), 1)
    shape = (case.blocks_out, case.blocks_in, case.kernel[1], case.kernel[0], 16, 16, 2)
    weights = values(shape, 2)
    sums = np.full((case.images, case.blocks_out, case.rows, case.columns, 16), np.nan, np.float32)
    packed = (bits_of(data), bits_of(weights))
    arguments = [buffer_of(packed[0], BFLOAT), buffer_of(packed[1], BFLOAT)]
    result = buffer_of(sums, FLOAT)
    code = library.aoe_sum_tiles(
        *map(ctypes.byref, arguments), *case.strides, *case.dilations, ctypes.byref(result)
    )
    assert code == 0
    np.testing.assert_array_equal(sums, expected_of(case, data, weights))


def test_a_query_says_what_is_read(library: ctypes.CDLL) -> None:
    case = Case(10, rows=4, images=3, blocks_in=5, kernel=(3, 5), strides=(2, 1), dilations=(2, 3))
    data = buffer_of(np.zeros((1,) * 5, np.uint16), BFLOAT)
    data.host = None
    weights = buffer_of(np.zeros((1, 5, 5, 3, 16, 16, 2), np.uint16), BFLOAT)
    sums = np.zeros((3, 1, 4, 10, 16), np.float32)
    wanted = buffer_of(sums, FLOAT, minima=(0, 7, 2, 0, 1))
    library.aoe_sum_tiles(
        ctypes.byref(data),
        ctypes.byref(weights),
        *case.strides,
        *case.dilations,
        ctypes.byref(wanted),
    )
    found = [(data.dim[at].min, data.dim[at].extent) for at in range(5)]
    assert found == [(0, 32), (14, case.read[0]), (2, case.read[1]), (0, 5), (1, 3)]


@dataclass(frozen=True)
class LevelCase:
    """Levels that are summed up: how they are read, and how many results there are."""

    reads: LevelReads
    columns: int
    rows: int = 1
    blocks: int = 1
    images: int = 1
    dtype: str = "uint8"
    apart: bool = False  # True if each row and image has weights of its own

    @property
    def wide(self) -> int:
        """Sums of a row."""
        reads = self.reads
        return self.columns + (reads.depth // reads.pixel - 1 if reads.flat else 0)

    @property
    def read(self) -> tuple[int, ...]:
        """Extents of the data, outermost first."""
        reads = self.reads
        if not reads.pixel:
            return self.images, self.rows, self.columns, reads.run
        across, down = (
            (extent - 1) * stride + (taps - 1) * dilation
            for extent, stride, taps, dilation in zip(
                (self.columns, self.rows), reads.strides, reads.kernel, reads.dilations, strict=True
            )
        )
        if reads.flat:
            return self.images, down + 2, self.wide * reads.pixel
        return self.images, down + 1, across * reads.pixel + reads.run


LEVEL_CASES = {
    "one level": LevelCase(LevelReads(depth=1, pixel=1), 1),
    "pixels of 96": LevelCase(LevelReads(depth=96, pixel=96), 37, rows=2, blocks=3),
    "signed, 70 of a pixel": LevelCase(LevelReads(depth=70, pixel=70), 16, dtype="int8"),
    "3 x 3 of 3, stride 2": LevelCase(
        LevelReads(depth=9, pixel=3, kernel=(1, 3), strides=(2, 2)), 19, rows=3, images=2
    ),
    "dilated": LevelCase(
        LevelReads(depth=20, pixel=20, kernel=(2, 3), dilations=(3, 2)), 17, rows=4, blocks=2
    ),
    "rows that are one": LevelCase(
        LevelReads(depth=3 * 66, pixel=66, kernel=(1, 3), flat=7), 7, rows=7, blocks=2, images=2
    ),
    "a matrix": LevelCase(LevelReads(depth=130), 21, blocks=5),
    "matrices by one": LevelCase(LevelReads(depth=64), 9, rows=3, blocks=2, images=2, dtype="int8"),
    "matrices by their own": LevelCase(
        LevelReads(depth=65), 18, rows=3, blocks=3, images=2, apart=True
    ),
}


def sums_of_levels(case: LevelCase, data: Array, weights: Array) -> Array:
    """Return what a definition of the sums gives; what nobody reads is 0."""
    reads = case.reads
    found = np.zeros((case.images, case.rows, case.wide, case.blocks, 16), np.int32)
    taps = list(product(range(reads.kernel[1]), range(reads.kernel[0])))
    for n, h, w in product(range(case.images), range(case.rows), range(case.columns)):
        mine = weights[n, h] if case.apart else weights[0, 0]
        by_tap = mine.transpose(0, 2, 1, 3).reshape(case.blocks, 16, len(taps), reads.run)
        for at, (y, x) in enumerate(taps):
            row = h * reads.strides[1] + y * reads.dilations[1]
            first = (w * reads.strides[0] + x * reads.dilations[0]) * reads.pixel
            seen = data[n, row, first:] if reads.pixel else data[n, h, w]
            seen = seen[: reads.depth].astype(np.int32)
            found[n, h, w] += by_tap[:, :, at, : reads.depth].astype(np.int32) @ seen
    return found


def _numbers(reads: LevelReads) -> tuple[int, ...]:
    depths = reads.pixel, reads.step, reads.steps
    return (*depths, *reads.kernel, *reads.strides, *reads.dilations, reads.flat)


@pytest.mark.parametrize("case", LEVEL_CASES.values(), ids=LEVEL_CASES)
def test_sums_of_levels_are_numpys(library: ctypes.CDLL, case: LevelCase) -> None:
    rng, kind, reads = np.random.default_rng(3), np.iinfo(case.dtype), case.reads
    data = rng.integers(kind.min, kind.max, case.read, case.dtype, endpoint=True)
    outer = (case.images, case.rows) if case.apart else (1, 1)
    weights = rng.integers(
        -128, 127, (*outer, case.blocks, reads.fours, 16, 4), "int8", endpoint=True
    )
    runs = weights.transpose(0, 1, 2, 4, 3, 5).copy()
    runs.reshape(*runs.shape[:4], -1, reads.run)[..., reads.depth :] = 0
    weights = np.ascontiguousarray(runs.transpose(0, 1, 2, 4, 3, 5))
    sums = np.zeros((case.images, case.rows, case.wide, case.blocks, 16), np.int32)
    code = UINT if case.dtype == "uint8" else INT
    given = buffer_of(data, code), buffer_of(weights if case.apart else weights[0, 0], INT)
    result = buffer_of(sums, INT)
    numbers = _numbers(reads)
    failed = library.aoe_sum_levels(*map(ctypes.byref, given), *numbers, ctypes.byref(result))
    assert failed == 0
    expected = sums_of_levels(case, data, weights)
    np.testing.assert_array_equal(sums[:, :, : case.columns], expected[:, :, : case.columns])


@pytest.mark.parametrize("case", LEVEL_CASES.values(), ids=LEVEL_CASES)
def test_a_query_says_which_levels_are_read(library: ctypes.CDLL, case: LevelCase) -> None:
    reads = case.reads
    data = buffer_of(np.zeros((1,) * len(case.read), np.uint8), UINT)
    data.host = None
    weights = buffer_of(np.zeros((case.blocks, reads.fours, 16, 4), np.int8), INT)
    sums = np.zeros((case.images, case.rows, case.wide, case.blocks, 16), np.int32)
    if not reads.pixel:
        data.dim[0].extent = reads.run
    wanted = buffer_of(sums, INT)
    numbers = _numbers(reads)
    library.aoe_sum_levels(
        ctypes.byref(data), ctypes.byref(weights), *numbers, ctypes.byref(wanted)
    )
    found = tuple(data.dim[at].extent for at in reversed(range(len(case.read))))
    assert found == case.read
    assert all(data.dim[at].min == 0 for at in range(len(case.read)))
