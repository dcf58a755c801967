"""Weights that were packed: pages of a mapped file go from memory, no other byte changes."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.engine.cpu import open_session
from support.engine.models import make_model

import aoe.kernels
from aoe.device.toolchain import Toolchain
from aoe.ort.sessions import session_options

PAGE = mmap.PAGESIZE
PAGES = 1500  # more than are looked at at once

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/pagemap").exists(), reason="the system does not say what a page is"
)


@pytest.fixture(scope="module")
def library(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    file = tmp_path_factory.mktemp("pages") / "pages.so"
    source = Path(aoe.kernels.__file__).parent / "glue" / "file_pages.c"
    flags = ["-std=gnu11", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    toolchain.run([*flags, "-o", str(file), str(source)], what="building")
    found = ctypes.CDLL(str(file))
    found.aoe_let_go_of_file_pages.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    found.aoe_let_go_of_file_pages.restype = None
    return found


def _is_present(address: int, count: int) -> list[bool]:
    """Return for each page whether it is in this process's memory."""
    with Path("/proc/self/pagemap").open("rb", buffering=0) as pagemap:
        pagemap.seek(address // PAGE * 8)
        found = np.frombuffer(pagemap.read(8 * count), np.uint64)
    return [bool(entry >> np.uint64(63)) for entry in found]


@contextmanager
def _mapped(file: Path | None, pages: int = PAGES) -> Iterator[tuple[mmap.mmap, int]]:
    """Map a file privately, as ONNX Runtime does, or anonymous memory; yield it and its address."""
    descriptor = -1
    source = None
    if file is not None:
        source = file.open("rb")
        descriptor = source.fileno()
    memory = mmap.mmap(descriptor, pages * PAGE, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    view = ctypes.c_char.from_buffer(memory)
    try:
        yield memory, ctypes.addressof(view)
    finally:
        del view
        memory.close()
        if source is not None:
            source.close()


def _contents(pages: int = PAGES) -> bytes:
    return np.random.default_rng(0).integers(0, 256, pages * PAGE, np.uint8).tobytes()


def test_pages_of_a_file_go_and_read_the_same_again(library: ctypes.CDLL, tmp_path: Path) -> None:
    contents = _contents()
    (tmp_path / "weights.bin").write_bytes(contents)
    with _mapped(tmp_path / "weights.bin") as (memory, address):
        assert memory[:] == contents
        assert all(_is_present(address, PAGES))
        library.aoe_let_go_of_file_pages(address, PAGES * PAGE)
        assert not any(_is_present(address, PAGES))
        assert memory[:] == contents


@pytest.mark.parametrize(("first", "last"), [(0, 0), (1, 0), (0, -1), (PAGE - 1, 1 - PAGE)])
def test_pages_a_neighbour_shares_stay(
    library: ctypes.CDLL, tmp_path: Path, first: int, last: int
) -> None:
    (tmp_path / "weights.bin").write_bytes(_contents(5))
    with _mapped(tmp_path / "weights.bin", 5) as (memory, address):
        assert sum(memory[::PAGE]) > 0
        library.aoe_let_go_of_file_pages(address + first, 5 * PAGE - first + last)
        stays = [bool(first), False, False, False, bool(last)]
        assert _is_present(address, 5) == stays


def test_less_than_a_page_is_left_alone(library: ctypes.CDLL, tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(_contents(2))
    with _mapped(tmp_path / "weights.bin", 2) as (memory, address):
        assert sum(memory[::PAGE]) >= 0
        for start, size in ((0, 0), (0, PAGE - 1), (1, PAGE), (PAGE // 2, PAGE)):
            library.aoe_let_go_of_file_pages(address + start, size)
        assert all(_is_present(address, 2))


def test_what_was_written_to_stays_and_keeps_its_value(
    library: ctypes.CDLL, tmp_path: Path
) -> None:
    contents = _contents(6)
    (tmp_path / "weights.bin").write_bytes(contents)
    with _mapped(tmp_path / "weights.bin", 6) as (memory, address):
        assert memory[:] == contents
        memory[2 * PAGE + 5] = 1 + contents[2 * PAGE + 5] % 7
        written = memory[2 * PAGE : 3 * PAGE]
        library.aoe_let_go_of_file_pages(address, 6 * PAGE)
        assert _is_present(address, 6) == [False, False, True, False, False, False]
        assert memory[2 * PAGE : 3 * PAGE] == written
    assert (tmp_path / "weights.bin").read_bytes() == contents


def test_memory_that_is_no_file_keeps_every_byte(library: ctypes.CDLL) -> None:
    contents = _contents()
    with _mapped(None) as (memory, address):
        memory[:] = contents
        library.aoe_let_go_of_file_pages(address, PAGES * PAGE)
        assert all(_is_present(address, PAGES))
        assert memory[:] == contents
    array = np.full(1 << 20, 3.0, np.float32)
    library.aoe_let_go_of_file_pages(array.ctypes.data, array.nbytes)
    assert (array == 3).all()


def test_addresses_that_hold_nothing_are_no_error(library: ctypes.CDLL) -> None:
    library.aoe_let_go_of_file_pages(None, 0)
    library.aoe_let_go_of_file_pages(None, 16 * PAGE)


def _resident_kib(file: Path) -> int:
    """Return how much of a mapped file is in this process's memory."""
    total, is_file = 0, False
    for line in Path("/proc/self/smaps").read_text(errors="replace").splitlines():
        if "-" in line.split()[0]:
            is_file = line.endswith(str(file))
        elif is_file and line.startswith("Rss:"):
            total += int(line.split()[1])
    return total


def test_a_session_lets_go_of_mapped_weights_it_has_packed(
    abi_library: Path, tmp_path: Path
) -> None:
    weights = np.zeros(262144, np.float32)
    weights[::1000] = 1.0
    node = helper.make_node("add_sum", ["x", "w"], ["y"], domain="aoe")
    model = make_model([node], {"x": (1,)}, ["y"], weights={"w": weights}, domains={"aoe": 1})
    file = tmp_path / "model.onnx"
    onnx.save(model, file, save_as_external_data=True, location="weights.bin", size_threshold=0)
    options = session_options(threads=1, optimize=False, library=abi_library)
    sessions = [open_session(file, options) for _ in range(2)]
    assert _resident_kib(tmp_path / "weights.bin") < 64
    for session in sessions:
        result = session.run(None, {"x": np.full(1, 0.5, np.float32)})[0]
        assert result[0] == 0.5 + weights.sum()
