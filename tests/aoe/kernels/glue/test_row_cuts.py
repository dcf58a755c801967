"""Rows are cut into blocks as by looking at all ways, each number of rows once."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aoe.kernels
from aoe.device.toolchain import Toolchain, halide_include

_USUAL = (256, 64, 16, 4, 1)
_MOST_OTHERS = 5
SMALLER, AND_SMALLER, AND_ONE_MORE, PADDED = 0, 1, 2, 3
_PADDING = np.float32(1.1)
Blocks = Sequence[tuple[int, float]]


class _Block(ctypes.Structure):
    _fields_ = [("rows", ctypes.c_int32), ("us", ctypes.c_float), ("kernel", ctypes.c_void_p)]


class _Rows(ctypes.Structure):
    _fields_ = [
        ("open_rank", ctypes.c_int32),
        ("open_inputs", ctypes.c_uint64),
        ("block_count", ctypes.c_int32),
        ("blocks", ctypes.POINTER(_Block)),
        ("open_extents", ctypes.c_int32),
        ("rows_dimension", ctypes.c_int32),
    ]


@pytest.fixture(scope="module")
def library(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    file = tmp_path_factory.mktemp("cuts") / "row_cuts.so"
    source = Path(aoe.kernels.__file__).parent / "glue" / "row_cuts.c"
    flags = ["-std=gnu11", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    toolchain.run([*flags, f"-I{halide_include()}", "-o", str(file), str(source)], what="building")
    return ctypes.CDLL(str(file))


def _pieces(blocks: Blocks, cuts: Sequence[int], rows: int) -> list[tuple[int, int]]:
    """Return the rows each block computes, the first and how many, as the glue walks the cuts."""
    found, done = [], 0
    for (size, _), cut in zip(blocks, cuts, strict=True):
        if cut == SMALLER or done == rows:
            continue
        for first in range(done, rows - size + 1, size):
            found.append((first, size))
            done = first + size
        if cut in (AND_ONE_MORE, PADDED) and done < rows:
            found.append((max(0, rows - size), size))
            done = rows
    assert done == rows
    return found


def _cut(library: ctypes.CDLL, blocks: Blocks, rows: int) -> list[tuple[int, int]]:
    table = (_Block * len(blocks))(*(_Block(size, us, None) for size, us in blocks))
    cuts = (ctypes.c_int * len(blocks))()
    given = _Rows(1, 1, len(blocks), table, 0, 0)
    library.aoe_cut_rows(ctypes.byref(given), ctypes.c_int64(rows), cuts)
    return _pieces(blocks, list(cuts), rows)


def _cut_by_all_ways(blocks: Blocks, rows: int) -> list[tuple[int, int]]:
    """Return the same by a recursion over all ways, in float32 as the kernel reckons."""

    @cache
    def choice(b: int, left: int) -> tuple[np.float32, int]:
        size, us = blocks[b][0], np.float32(blocks[b][1])
        full, over = np.float32(left // size) * us, left % size
        if left <= 0:
            return np.float32(0), SMALLER
        if b == len(blocks) - 1:
            return full, AND_SMALLER
        smaller, _ = choice(b + 1, left)
        if left < size:
            is_padded = _PADDING * us < smaller
            return (_PADDING * us, PADDED) if is_padded else (smaller, SMALLER)
        rest, _ = choice(b + 1, over)
        one_more = us if over else np.float32(0)
        best = full + min(one_more, rest)
        if smaller < best:
            return smaller, SMALLER
        return best, AND_ONE_MORE if one_more < rest else AND_SMALLER

    cuts, left = [], rows
    for b, (size, _) in enumerate(blocks):
        _, cut = choice(b, left)
        cuts.append(cut)
        if cut != SMALLER:
            left = left % size if cut == AND_SMALLER else 0
    return _pieces(blocks, cuts, rows)


@st.composite
def _tables(draw: st.DrawFn) -> Blocks:
    usual = draw(st.integers(0, len(_USUAL) - 1))
    others = draw(st.sets(st.integers(2, 700), max_size=_MOST_OTHERS))
    sizes = sorted({*_USUAL[usual:], *others}, reverse=True)
    # few ratios, so that ways of equal time are met, too
    per_row = st.sampled_from([0.25, 0.5, 1.0, 1.0, 1.1, 3.0])
    return [(size, draw(per_row) * size**0.75) for size in sizes]


@given(_tables(), st.lists(st.integers(0, 5000), min_size=1, max_size=20))
def test_cuts_are_those_of_looking_at_all_ways(
    library: ctypes.CDLL, blocks: Blocks, counts: Sequence[int]
) -> None:
    for rows in counts:
        assert _cut(library, blocks, rows) == _cut_by_all_ways(blocks, rows)


@pytest.mark.parametrize("rows", [1, 996, 12_345, 1_000_003])
@pytest.mark.parametrize("last", [23, 400])
def test_most_blocks_a_kernel_has_are_cut_by_the_same_choice(
    library: ctypes.CDLL, rows: int, last: int
) -> None:
    sizes = [one + last for one in (997, 613, 379, 233, 151, 89, 61, 37, 0)]  # of no common divisor
    sizes.append(1)
    blocks = [(size, size**0.9) for size in sizes]
    assert _cut(library, blocks, rows) == _cut_by_all_ways(blocks, rows)
