"""Memory of kernels is kept and given again, never to two at once."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import aoe.kernels
from aoe.device.toolchain import Toolchain, halide_include

Allocate = Callable[[None, int], int]
ROUNDS, THREADS, HELD = 2000, 4, 8


@pytest.fixture(scope="module")
def scratch(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    file = tmp_path_factory.mktemp("scratch") / "scratch.so"
    source = Path(aoe.kernels.__file__).parent / "glue" / "scratch.c"
    flags = ["-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-I{halide_include()}"]
    toolchain.run([*flags, "-o", str(file), str(source)], what="building")
    library = ctypes.CDLL(str(file))
    library.halide_malloc.restype = ctypes.c_void_p
    library.halide_malloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.halide_free.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return library


def test_blocks_are_aligned_and_given_again(scratch: ctypes.CDLL) -> None:
    first = scratch.halide_malloc(None, 100_000)
    assert first % 64 == 0
    scratch.halide_free(None, first)
    assert scratch.halide_malloc(None, 90_000) == first
    scratch.halide_free(None, first)


def test_a_small_request_leaves_a_large_block_alone(scratch: ctypes.CDLL) -> None:
    large = scratch.halide_malloc(None, 10_000_000)
    scratch.halide_free(None, large)
    small = scratch.halide_malloc(None, 64)
    assert small != large
    assert scratch.halide_malloc(None, 10_000_000) == large
    for block in (small, large):
        scratch.halide_free(None, block)


def test_absurd_sizes_give_nothing(scratch: ctypes.CDLL) -> None:
    for size in (2**64 - 1, 2**64 - 64, 2**63):
        assert scratch.halide_malloc(None, size) is None
    scratch.halide_free(None, None)


def test_threads_never_share_a_block(scratch: ctypes.CDLL) -> None:
    def work(seed: int) -> int:
        rng, held, spoilt = random.Random(seed), [], 0
        for _ in range(ROUNDS):
            size = rng.choice((64, 1000, 4096, 20_000))
            block = scratch.halide_malloc(None, size)
            ctypes.memset(block, seed, size)
            held.append((block, size))
            if len(held) == HELD:
                block, size = held.pop(rng.randrange(HELD))
                spoilt += ctypes.string_at(block, size) != bytes([seed]) * size
                scratch.halide_free(None, block)
        for block, _ in held:
            scratch.halide_free(None, block)
        return spoilt

    with ThreadPoolExecutor(THREADS) as pool:
        assert sum(pool.map(work, range(1, THREADS + 1))) == 0
