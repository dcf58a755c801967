"""A process that takes all memory is told from one that merely needs much of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aoe.device.cpu.memory import HostMemory, host_memory, is_hoarding, offer_this_process

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
