"""Memory of kernels: blocks of a task come off one stack, which the next task takes again."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import aoe.kernels
from aoe.device.toolchain import Toolchain, halide_include

ROUNDS, THREADS, HELD = 2000, 4, 8
OF_TASK, OF_KERNEL = 0, 1


@pytest.fixture(scope="module")
def scratch(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    file = tmp_path_factory.mktemp("scratch") / "scratch.so"
    source = Path(aoe.kernels.__file__).parent / "glue" / "scratch.c"
    flags = ["-std=gnu11", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    toolchain.run([*flags, f"-I{halide_include()}", "-o", str(file), str(source)], what="building")
    library = ctypes.CDLL(str(file))
    library.aoe_take_stack.restype = ctypes.c_void_p
    library.aoe_take_stack.argtypes = [ctypes.c_int]
    library.aoe_return_stack.argtypes = [ctypes.c_void_p]
    library.halide_malloc.restype = ctypes.c_void_p
    library.halide_malloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.halide_free.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return library


class Task:
    """What a task passes to `halide_malloc`: a context that starts with its stack."""

    def __init__(self, scratch: ctypes.CDLL, scope: int = OF_TASK) -> None:
        self._scratch = scratch
        self._context = ctypes.c_void_p(scratch.aoe_take_stack(scope))

    def take(self, size: int) -> int:
        block: int = self._scratch.halide_malloc(ctypes.addressof(self._context), size)
        return block

    def give_back(self, block: int) -> None:
        self._scratch.halide_free(ctypes.addressof(self._context), block)

    def end(self) -> None:
        self._scratch.aoe_return_stack(self._context)


@contextmanager
def task(scratch: ctypes.CDLL, scope: int = OF_TASK) -> Iterator[Task]:
    running = Task(scratch, scope)
    yield running
    running.end()


def test_the_next_task_gets_the_memory_of_the_last_one_in_one_piece(scratch: ctypes.CDLL) -> None:
    with task(scratch) as first:
        found = [first.take(100_000), first.take(3), first.take(50_000)]
        for block in found:
            first.give_back(block)
    places = []
    for _ in range(2):
        with task(scratch) as later:
            blocks = [later.take(100_000), later.take(3), later.take(50_000)]
            assert all(block % 64 == 0 for block in blocks)
            assert blocks[2] + 50_000 - blocks[0] < 151_000
            places.append(blocks)
            for block in blocks:
                later.give_back(block)
    assert places[0] == places[1]


def test_kernels_of_all_sizes_share_one_piece(scratch: ctypes.CDLL) -> None:
    """However many kernels there are, memory grows to the largest only."""
    for size in (4_000_000, 1_000, 200_000):
        with task(scratch) as warm:
            warm.give_back(warm.take(size))
    starts = set()
    for size in (1_000, 200_000, 4_000_000):
        with task(scratch) as running:
            block = running.take(size)
            starts.add(block)
            running.give_back(block)
    assert len(starts) == 1


def test_what_tasks_share_lies_on_a_stack_of_its_own(scratch: ctypes.CDLL) -> None:
    """Else the stack of every thread would grow to it, one after the other."""
    for _ in range(2):  # the first kernel of a library, and the next one
        with task(scratch, OF_KERNEL) as kernel:
            shared = kernel.take(8_000_000)
            with task(scratch) as running:
                own = running.take(1_000)
                assert not shared <= own < shared + 8_000_000
                running.give_back(own)
            kernel.give_back(shared)
    with task(scratch) as running:
        own = running.take(1_000)
        running.give_back(own)
    with task(scratch, OF_KERNEL) as kernel:
        again = kernel.take(1_000)
        kernel.give_back(again)
    assert again != own


def test_a_freed_block_on_top_is_given_again(scratch: ctypes.CDLL) -> None:
    with task(scratch) as warm:
        warm.give_back(warm.take(1_000_000))
    with task(scratch) as running:
        below = running.take(1_000)
        again = []
        for _ in range(1_000):  # a loop that allocates in every iteration
            again.append(running.take(5_000))
            running.give_back(again[-1])
        assert len(set(again)) == 1
        running.give_back(below)


def test_absurd_sizes_give_nothing(scratch: ctypes.CDLL) -> None:
    with task(scratch) as running:
        for size in (2**64 - 1, 2**64 - 64, 2**63):
            assert not running.take(size)
        running.give_back(0)
    for size in (2**64 - 1, 2**63):
        assert scratch.halide_malloc(None, size) is None


def test_packing_has_no_task_and_gets_memory_of_its_own(scratch: ctypes.CDLL) -> None:
    block = scratch.halide_malloc(None, 100)
    assert block % 64 == 0
    ctypes.memset(block, 1, 100)
    scratch.halide_free(None, block)


def test_threads_never_share_a_block(scratch: ctypes.CDLL) -> None:
    def work(seed: int) -> int:
        rng, spoilt = random.Random(seed), 0
        for _ in range(ROUNDS // HELD):
            with task(scratch) as running:
                held = []
                for _ in range(HELD):
                    size = rng.choice((64, 1000, 4096, 20_000))
                    block = running.take(size)
                    ctypes.memset(block, seed, size)
                    held.append((block, size))
                rng.shuffle(held)
                for block, size in held:
                    spoilt += ctypes.string_at(block, size) != bytes([seed]) * size
                    running.give_back(block)
        return spoilt

    with ThreadPoolExecutor(THREADS) as pool:
        assert sum(pool.map(work, range(1, THREADS + 1))) == 0


def test_a_task_that_fails_halfway_leaves_nothing_to_the_next(scratch: ctypes.CDLL) -> None:
    broken = Task(scratch)
    lost = broken.take(1_000)
    assert lost
    broken.end()
    with task(scratch) as running:
        block = running.take(1_000)
        assert block
        running.give_back(block)
