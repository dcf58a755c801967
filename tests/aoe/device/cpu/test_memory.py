"""Memory a process takes, as the kernel counts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aoe.device.cpu.memory import (
    HostMemory,
    MemoryGrowth,
    has_huge_pages,
    host_memory,
    is_hoarding,
    offer_this_process,
)
from aoe.measurement.memory import MemoryUse

_MIB = 1 << 20
_ENTRY = (
    "7f0000000000-7f0000010000 r--p 00000000 08:01 42    {name}\n"
    "Rss: {rss} kB\nAnonymous: {own} kB\n"
)


class FakeProc:
    """What a kernel says of a process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "clear_refs").touch()

    def say(self, *mappings: tuple[str, int, int], peak: int = 0) -> None:
        """Have mappings (name, resident KiB, anonymous KiB) and a peak of the process in KiB."""
        text = "".join(_ENTRY.format(name=n, rss=rss, own=own) for n, rss, own in mappings)
        (self.folder / "smaps").write_text(text)
        (self.folder / "status").write_text(f"Name:\tpython\nVmHWM:\t{peak} kB\n")


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    (tmp_path / "proc").mkdir()
    (tmp_path / "model").mkdir()
    found = FakeProc(tmp_path / "proc")
    found.say(("", 50, 50), ("/lib/ort.so", 20, 2), peak=70)
    return found


def test_own_memory_and_mapped_weights_count_and_code_does_not(
    proc: FakeProc, tmp_path: Path
) -> None:
    files = tmp_path / "model"
    growth = MemoryGrowth(files, proc=proc.folder)
    proc.say(
        *(("", 150, 150), ("[heap]", 7, 7), ("/lib/ort.so", 60, 2)),
        *((f"{files}/weights.bin", 30, 1), (f"{files}/kernels.so", 9, 1), ("/other.bin", 5, 0)),
        peak=400,
    )
    code = 40 + 8 + 5
    assert growth.so_far() == MemoryUse(
        resident_bytes=(107 + 30 + 1) * 1024, peak_bytes=(400 - 70 - code) * 1024
    )
    assert (proc.folder / "clear_refs").read_text() == "5"


def test_a_name_that_begins_alike_is_another_folder(proc: FakeProc, tmp_path: Path) -> None:
    growth = MemoryGrowth(tmp_path / "model", proc=proc.folder)
    proc.say(("", 50, 50), ("/lib/ort.so", 20, 2), (f"{tmp_path}/model2/weights.bin", 30, 0))
    found = growth.so_far()
    assert found is not None
    assert found.resident_bytes == 0


def test_without_a_peak_what_stays_is_told(proc: FakeProc, tmp_path: Path) -> None:
    (proc.folder / "clear_refs").unlink()
    (proc.folder / "clear_refs").mkdir()  # nobody can write there
    growth = MemoryGrowth(tmp_path / "model", proc=proc.folder)
    proc.say(("", 60, 60), ("/lib/ort.so", 20, 2), peak=400)
    assert growth.so_far() == MemoryUse(resident_bytes=10 * 1024)


@pytest.mark.parametrize("text", [None, "", "7f0-7f1 r--p 00000000 00:00 0\nRss: 0 kB\n"])
def test_a_system_that_does_not_say_makes_no_figure(
    proc: FakeProc, tmp_path: Path, text: str | None
) -> None:
    if text is None:
        (proc.folder / "smaps").unlink()
    else:
        (proc.folder / "smaps").write_text(text)
    assert MemoryGrowth(tmp_path / "model", proc=proc.folder).so_far() is None


def test_memory_shrinking_meanwhile_is_none_taken(proc: FakeProc, tmp_path: Path) -> None:
    growth = MemoryGrowth(tmp_path / "model", proc=proc.folder)
    proc.say(("", 10, 10), ("/lib/ort.so", 20, 2), peak=70)
    found = growth.so_far()
    assert found == MemoryUse(resident_bytes=0, peak_bytes=0)


_TAKES_AND_GIVES_BACK = """
import mmap, sys
from pathlib import Path
import numpy as np
from aoe.device.cpu.memory import MemoryGrowth

folder = Path(sys.argv[1])
growth = MemoryGrowth(folder)
passing = np.ones(32 << 20, np.uint8)
del passing
staying = np.ones(16 << 20, np.uint8)
with (folder / "weights.bin").open("rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
assert sum(mapped[:: mmap.PAGESIZE]) == 0
found = growth.so_far()
print("" if found is None else f"{found.resident_bytes} {found.peak_bytes or 0}")
"""


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system does not say")
def test_a_process_counts_what_it_takes_and_maps_and_not_what_it_gives_back(
    tmp_path: Path,
) -> None:
    """In a process of its own: a heap that others have used gives again what they gave back."""
    (tmp_path / "weights.bin").write_bytes(bytes(8 * _MIB))
    done = subprocess.run(
        [sys.executable, "-c", _TAKES_AND_GIVES_BACK, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    if not done.stdout.strip():
        pytest.skip("the system does not say")
    resident, peak = map(int, done.stdout.split())
    assert 23 * _MIB < resident < 28 * _MIB
    assert not peak or 31 * _MIB < peak < 80 * _MIB


_GIB = 1 << 30
_OWN = 42


def _proc(folder: Path, *, own: float, total: float, free: float) -> Path:
    """Write what the kernel says of a process, in GiB."""
    (folder / str(_OWN)).mkdir()
    sizes = {name: int(gib * _GIB) >> 10 for name, gib in (("own", own), ("total", total))}
    (folder / str(_OWN) / "status").write_text(
        f"Name:\tpython\nVmRSS:\t999999999 kB\nRssAnon:\t{sizes['own']:8} kB\nThreads:\t9\n"
    )
    (folder / "meminfo").write_text(
        f"MemTotal:       {sizes['total']} kB\nMemFree:          12 kB\n"
        f"MemAvailable:   {int(free * _GIB) >> 10} kB\n"
    )
    return folder


def _group(folder: Path, limit: str, used: float, inactive: float) -> Path:
    group = folder / "cgroup"
    group.mkdir()
    (group / "memory.max").write_text(f"{limit}\n")
    (group / "memory.current").write_text(f"{int(used * _GIB)}\n")
    (group / "memory.stat").write_text(f"anon 1\ninactive_file {int(inactive * _GIB)}\nslab 7\n")
    return group


@pytest.mark.parametrize(
    ("own", "free", "hoards"),
    [
        (14.0, 0.5, True),
        (14.0, 1.7, False),  # much, but there is more
        (7.9, 0.1, False),  # another has the most
        (0.1, 0.0, False),
    ],
)
def test_most_of_a_memory_nearly_used_up_is_too_much(
    tmp_path: Path, own: float, free: float, hoards: bool
) -> None:
    proc = _proc(tmp_path, own=own, total=16, free=free)
    assert is_hoarding(_OWN, proc=proc, cgroup=tmp_path / "none") is hoards


def test_memory_of_a_control_group_counts_where_it_is_less(tmp_path: Path) -> None:
    proc = _proc(tmp_path, own=3, total=64, free=50)
    group = _group(tmp_path, str(4 * _GIB), used=3.9, inactive=0.25)
    found = host_memory(proc, group)
    assert found.total_bytes == 4 * _GIB
    assert found.free_bytes == pytest.approx(0.35 * _GIB, rel=1e-6)
    assert is_hoarding(_OWN, proc=proc, cgroup=group)


def test_group_without_a_limit_is_none(tmp_path: Path) -> None:
    proc = _proc(tmp_path, own=3, total=64, free=50)
    group = _group(tmp_path, "max", used=3.9, inactive=0)
    assert host_memory(proc, group) == HostMemory(total_bytes=64 * _GIB, free_bytes=50 * _GIB)


@pytest.mark.parametrize("status", [None, "", "Name:\tzombie\n", "RssAnon:\tmuch kB\n"])
def test_what_the_kernel_does_not_say_is_no_reason(tmp_path: Path, status: str | None) -> None:
    proc = _proc(tmp_path, own=15, total=16, free=0)
    file = proc / str(_OWN) / "status"
    file.unlink() if status is None else file.write_text(status)
    assert not is_hoarding(_OWN, proc=proc, cgroup=tmp_path / "none")


def test_this_machine_says_it_and_is_not_full_of_this_test() -> None:
    if not Path("/proc/meminfo").exists():
        pytest.skip("the system does not say")
    memory = host_memory()
    assert 0 < memory.free_bytes < memory.total_bytes
    assert not is_hoarding(os.getpid())


def test_process_that_offers_itself_is_the_first_to_go() -> None:
    place = Path("/proc/self/oom_score_adj")
    if not place.exists():
        pytest.skip("the system has no such choice")
    script = (
        "from pathlib import Path\n"
        "from aoe.device.cpu.memory import offer_this_process\n"
        "offer_this_process()\n"
        f"print(Path({str(place)!r}).read_text().strip())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "1000\n"


def test_system_without_that_choice_is_left_alone(tmp_path: Path) -> None:
    offer_this_process(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "expected"),
    [("always [madvise] never\n", True), ("always madvise [never]\n", False), (None, False)],
)
def test_huge_pages_are_there_if_the_kernel_says_so(
    text: str | None, expected: bool, tmp_path: Path
) -> None:
    pages = tmp_path / "enabled"
    if text is not None:
        pages.write_text(text)
    assert has_huge_pages(pages) is expected
