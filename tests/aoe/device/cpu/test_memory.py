"""Memory a process takes, as the kernel counts it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aoe.device.cpu.memory import MemoryGrowth
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
