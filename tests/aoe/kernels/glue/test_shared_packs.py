"""Packed constants of a process: equal weights of equal kernels are packed once."""

from __future__ import annotations

import ctypes
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper
from support.engine.cpu import open_session
from support.engine.models import make_model

import aoe.kernels
from aoe.device.toolchain import Toolchain
from aoe.ort.sessions import session_options

Array = np.ndarray[Any, Any]
MAKE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
THREADS, ROUNDS = 4, 300

_COUNTING = """
#include <stdlib.h>
static int blocks;
static void *counted(void *block) {
  if (block) __atomic_add_fetch(&blocks, 1, __ATOMIC_SEQ_CST);
  return block;
}
void *counted_alloc(size_t alignment, size_t bytes) {
  return counted(aligned_alloc(alignment, bytes));
}
void *counted_calloc(size_t count, size_t bytes) { return counted(calloc(count, bytes)); }
void counted_free(void *block) {
  if (block) __atomic_sub_fetch(&blocks, 1, __ATOMIC_SEQ_CST);
  free(block);
}
int blocks_in_use(void) { return blocks; }
"""


class Order(ctypes.Structure):
    """`aoe_pack_order` of shared_packs.h."""

    _fields_ = [
        ("form", ctypes.c_void_p),
        ("raw", ctypes.c_void_p),
        ("raw_bytes", ctypes.c_size_t),
        ("packed_bytes", ctypes.c_size_t),
        ("make", MAKE),
        ("what", ctypes.c_void_p),
    ]


class Packs:
    """The table, with packing functions written in Python."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.aoe_share_pack.restype = ctypes.c_void_p
        library.aoe_share_pack.argtypes = [ctypes.POINTER(Order)]
        library.aoe_packed.restype = ctypes.c_void_p
        library.aoe_packed.argtypes = [ctypes.c_void_p]
        library.aoe_give_back_pack.argtypes = [ctypes.c_void_p]
        self.made = 0

    def take(
        self, raw: bytes, *, form: int = 1, size: int = 64, before: Callable[[], int] = lambda: 0
    ) -> int | None:
        """Take what is packed of `raw`: its first bytes, repeated; `before` is done first."""

        def make(_what: int, packed: int) -> int:
            self.made += 1
            if before():
                return 1
            ctypes.memmove(packed, (raw * size)[:size], size)
            return 0

        held = ctypes.create_string_buffer(raw, max(len(raw), 1))
        function = MAKE(make)
        order = Order(form, ctypes.addressof(held), len(raw), size, function, None)
        found: int | None = self._library.aoe_share_pack(ctypes.byref(order))
        return found

    def packed(self, pack: int, size: int = 64) -> bytes:
        address = self._library.aoe_packed(pack)
        assert address % 64 == 0
        return ctypes.string_at(address, size)

    def address(self, pack: int) -> int:
        found: int = self._library.aoe_packed(pack)
        return found

    def give_back(self, pack: int | None) -> None:
        self._library.aoe_give_back_pack(pack)

    @property
    def blocks(self) -> int:
        """Pieces of memory in use."""
        found: int = self._library.blocks_in_use()
        return found


@pytest.fixture(scope="module")
def library(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("packs")
    (folder / "counting.c").write_text(_COUNTING)
    source = Path(aoe.kernels.__file__).parent / "glue" / "shared_packs.c"
    flags = ["-std=gnu11", "-O2", "-fPIC", "-Wall", "-Wextra", "-Werror", "-c"]
    counted = ["-Daligned_alloc=counted_alloc", "-Dcalloc=counted_calloc", "-Dfree=counted_free"]
    objects = [str(folder / "packs.o"), str(folder / "counting.o")]
    for file, seen, more in (
        (objects[0], source, ["-include", "stdlib.h", *counted]),
        (objects[1], folder / "counting.c", []),
    ):
        toolchain.run([*flags, *more, "-o", file, str(seen)], what="building")
    shared = folder / "packs.so"
    toolchain.run(["-shared", "-pthread", "-o", str(shared), *objects], what="linking")
    return ctypes.CDLL(str(shared))


@pytest.fixture
def packs(library: ctypes.CDLL) -> Iterator[Packs]:
    found = Packs(library)
    yield found
    assert found.blocks == 0, "every test gives back what it takes"


def test_equal_contents_are_packed_once_and_kept_until_the_last_one_goes(packs: Packs) -> None:
    first = packs.take(b"weights")
    second = packs.take(b"weights")
    assert first is not None
    assert first == second
    assert packs.made == 1
    packs.give_back(first)
    assert packs.packed(first) == (b"weights" * 64)[:64]
    packs.give_back(second)
    assert packs.blocks == 0
    packs.give_back(packs.take(b"weights"))
    assert packs.made == 2


def test_whatever_differs_is_packed_for_itself(packs: Packs) -> None:
    raw = bytes(range(1, 101))
    taken = [packs.take(raw)]
    for at in (0, 31, 32, 95, 96, 99):  # of whole steps, and of the rest
        changed = bytearray(raw)
        changed[at] ^= 0x80
        taken.append(packs.take(bytes(changed)))
    swapped = raw[8:16] + raw[:8] + raw[16:]
    later = raw[32:64] + raw[:32] + raw[64:]
    taken += [packs.take(raw, form=2), packs.take(raw, size=128), packs.take(swapped)]
    taken += [packs.take(later), packs.take(raw[:-1]), packs.take(b"")]
    assert None not in taken
    assert len(set(taken)) == packs.made == len(taken)
    for pack in taken:
        packs.give_back(pack)


def test_zeros_of_any_count_differ(packs: Packs) -> None:
    taken = [packs.take(bytes(count)) for count in range(70)]
    assert len(set(taken)) == packs.made == 70
    for pack in taken:
        packs.give_back(pack)


def test_similar_tensors_have_digests_that_differ(packs: Packs) -> None:
    """Weights of few values, as quantised ones are, or equal but for a place or a sign."""
    rng = np.random.default_rng(0)
    base = rng.integers(-2, 2, 256).astype(np.float32)
    seen = {base.tobytes()}
    for _ in range(1500):
        other = base.copy()
        a, b = rng.integers(0, 256, 2)
        other[a], other[b] = other[b], -other[a]
        seen.add(other.tobytes())
    taken = [packs.take(raw) for raw in seen]
    assert len(set(taken)) == packs.made == len(seen)
    for pack in taken:
        packs.give_back(pack)


def test_what_cannot_be_packed_is_nothing_and_may_be_tried_again(packs: Packs) -> None:
    assert packs.take(b"weights", before=lambda: 1) is None
    assert packs.blocks == 0
    assert packs.take(b"weights", size=2**62) is None
    assert packs.blocks == 0
    packs.give_back(packs.take(b"weights"))
    assert packs.made == 2  # the huge one was not begun
    packs.give_back(None)


def _flags_at(address: int) -> set[str]:
    """Return what the kernel of the system knows of the memory at an address."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if "-" in first and not first.endswith(":"):
            begin, end = (int(part, 16) for part in first.split("-"))
            inside = begin <= address < end
        elif inside and first == "VmFlags:":
            return set(rest)
    return set()


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="the system has no huge pages"
)
def test_packs_lie_in_huge_pages_one_behind_the_other(packs: Packs) -> None:
    sizes = ((5 << 20) + 7, 1 << 20, 100 << 10, 70 << 20)
    taken = [packs.take(b"weights", size=size) for size in sizes]
    assert None not in taken
    addresses = [packs.address(pack) for pack in taken if pack is not None]
    for pack, address, size in zip(taken, addresses, sizes, strict=True):
        assert pack is not None
        assert {"hg"} <= _flags_at(address) & _flags_at(address + size - 1)
        assert packs.packed(pack, size) == (b"weights" * size)[:size]
    assert addresses[0] % (2 << 20) == 0
    assert addresses[1] == addresses[0] + sizes[0] // 64 * 64 + 64
    assert addresses[2] == addresses[1] + sizes[1]
    for pack in taken:
        packs.give_back(pack)


def _resident(address: int) -> int:
    """Return the kB of memory of the mapping at an address; -1 where none is."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if "-" in first and not first.endswith(":"):
            begin, end = (int(part, 16) for part in first.split("-"))
            inside = begin <= address < end
        elif inside and first == "Rss:":
            return int(rest[0])
    return -1


def test_memory_goes_with_a_pack_and_comes_again(packs: Packs) -> None:
    size = 9 << 20
    first, second, third = (packs.take(bytes([number]), size=size) for number in (1, 2, 3))
    assert first is not None and second is not None and third is not None
    held, address = _resident(packs.address(third)), packs.address(third)
    packs.give_back(first)
    assert _resident(address) <= held - (6 << 10)
    assert packs.packed(second, size) == bytes([2]) * size
    packs.give_back(third)
    again = packs.take(b"4", size=size)
    assert again is not None
    assert packs.address(again) == address  # the last piece is taken again
    assert packs.packed(again, size) == b"4" * size
    packs.give_back(second)
    packs.give_back(again)
    assert _resident(address) == -1 or _resident(address) < held


def test_small_packs_have_memory_of_their_own(packs: Packs) -> None:
    small, large = packs.take(b"small"), packs.take(b"large", size=1 << 20)
    assert small is not None and large is not None
    assert not 0 <= packs.address(small) - packs.address(large) < 64 << 20
    packs.give_back(small)
    packs.give_back(large)


@pytest.mark.parametrize("failure", [0, 1])
def test_who_wants_what_is_being_packed_waits_for_it(packs: Packs, failure: int) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slowly() -> int:
        begun.set()
        go_on.wait(20)
        return failure

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(packs.take, b"weights", before=slowly)
        assert begun.wait(20)
        second = pool.submit(packs.take, b"weights")
        other = pool.submit(packs.take, b"other weights").result(20)  # waits for nobody
        time.sleep(0.05)
        assert not second.done()
        go_on.set()
        found = {first.result(20), second.result(20)}
    assert packs.made == 2
    assert (found == {None}) if failure else (len(found) == 1 and None not in found)
    for pack in [*found, *(found if not failure else ()), other]:
        packs.give_back(pack)


def test_threads_that_take_and_give_back_never_see_anothers(packs: Packs) -> None:
    contents = [bytes([number]) * 50 for number in range(1, 6)]

    def work(seed: int) -> int:
        rng, wrong = random.Random(seed), 0
        for _ in range(ROUNDS):
            raws = rng.sample(contents, 3)
            held = [packs.take(raw) for raw in raws]
            for raw, pack in zip(raws, held, strict=True):
                assert pack is not None
                wrong += packs.packed(pack) != (raw * 2)[:64]
                packs.give_back(pack)
        return wrong

    with ThreadPoolExecutor(THREADS) as pool:
        assert sum(pool.map(work, range(THREADS))) == 0


# ---- sessions of ONNX Runtime; `read_packed` tells how often its input was packed ----


def _session(library: Path, factors: tuple[float, ...]) -> ort.InferenceSession:
    """Open a model with a node for each factor, which makes x + 2 * factor."""
    nodes = [
        helper.make_node("read_packed", ["x", f"w{number}"], [f"y{number}"], domain="aoe")
        for number in range(len(factors))
    ]
    weights = {
        f"w{number}": np.full((2, 3), factor, np.float32) for number, factor in enumerate(factors)
    }
    outputs = [f"y{number}" for number in range(len(factors))]
    model = make_model(nodes, {"x": (2, 3)}, outputs, weights=weights, domains={"aoe": 1})
    options = session_options(threads=1, optimize=False, library=library)
    return open_session(model.SerializeToString(), options)


def _packed_times(session: ort.InferenceSession, factors: tuple[float, ...]) -> int:
    """Check every result; return how often anything was packed in this process."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    results = session.run(None, {"x": x})
    for result, factor in zip(results, factors, strict=True):
        np.testing.assert_array_equal(result[:6], (x + 2 * factor).ravel())
    return int(results[0][6])


def test_a_second_session_packs_nothing(abi_library: Path) -> None:
    first = _session(abi_library, (101.0,))
    times = _packed_times(first, (101.0,))
    second = _session(abi_library, (101.0,))
    assert _packed_times(second, (101.0,)) == times
    del first
    assert _packed_times(second, (101.0,)) == times
    third = _session(abi_library, (101.0,))
    assert _packed_times(third, (101.0,)) == times
    del second, third
    again = _packed_times(_session(abi_library, (101.0,)), (101.0,))
    assert again in (1, times + 1)  # 1: the library was unloaded with the last session


def test_nodes_with_equal_weights_share_them(abi_library: Path) -> None:
    keeping = _session(abi_library, (201.0,))
    times = _packed_times(keeping, (201.0,))
    factors = (202.0, 203.0, 202.0, 201.0)
    assert _packed_times(_session(abi_library, factors), factors) == times + 2


def test_threads_open_run_and_close_sessions(abi_library: Path) -> None:
    keeping = _session(abi_library, (301.0,))
    times = _packed_times(keeping, (301.0,))

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(25):
            factors = (301.0, float(rng.randrange(302, 305)))
            _packed_times(_session(abi_library, factors), factors)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
    assert _packed_times(_session(abi_library, (301.0,)), (301.0,)) >= times


def test_a_constant_of_another_shape_is_an_error_of_the_run(abi_library: Path) -> None:
    node = helper.make_node("read_packed", ["x", "w"], ["y"], domain="aoe")
    weights = {"w": np.ones((1, 2), np.float32)}
    model = make_model([node], {"x": (2, 3)}, ["y"], weights=weights, domains={"aoe": 1})
    options = session_options(threads=1, optimize=False, library=abi_library)
    session = open_session(model.SerializeToString(), options)
    with pytest.raises(Exception, match="read_packed: an input has another shape"):
        session.run(None, {"x": np.zeros((2, 3), np.float32)})
