"""The kernel's counters, from made-up files and clocks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from aoe.device.cpu.usage import read_usage
from aoe.measurement import CpuUse

_STAT = """cpu  100 0 50 900 0 0 0 70 0 0
cpu0 50 0 25 450 0 0 0 30 0 0
cpu1 50 0 25 450 0 0 0 40 0 0
intr 1 2 3 4 5 6 7 8 9
"""


def _proc(folder: Path, tasks: Mapping[str, str | None], stat: str | None = _STAT) -> Path:
    for task, text in tasks.items():
        (folder / "self" / "task" / task).mkdir(parents=True)
        if text is not None:
            (folder / "self" / "task" / task / "schedstat").write_text(text)
    if stat is not None:
        (folder / "stat").write_text(stat)
    return folder


def _read(proc: Path, cores: tuple[int, ...] = (0, 1)) -> CpuUse:
    return read_usage(
        proc=proc,
        cores=cores,
        tick_s=0.01,
        wall=lambda: 10.0,
        cpu=lambda: 12.0,
        thread_cpu=lambda: 7.0,
    )


def test_threads_wait_together_and_cores_are_stolen_from_together(tmp_path: Path) -> None:
    proc = _proc(tmp_path, {"1": "5000000000 250000000 9\n", "2": "4000000000 500000000 3\n"})
    found = _read(proc)
    assert (found.wall_s, found.cpu_s) == (10.0, 12.0)
    assert found.waited_s == pytest.approx(0.75)
    assert found.stolen_s == pytest.approx(0.7)
    assert found.switches >= 0


def test_only_the_cores_this_process_may_use_count(tmp_path: Path) -> None:
    proc = _proc(tmp_path, {"1": "1 1 1"})
    assert _read(proc, (1,)).stolen_s == pytest.approx(0.4)


def test_a_thread_that_ends_meanwhile_is_left_out(tmp_path: Path) -> None:
    proc = _proc(tmp_path, {"1": "5000000000 250000000 9", "2": None})
    assert _read(proc).waited_s == pytest.approx(0.25)


@pytest.mark.parametrize("tasks", [{}, {"1": None}])
def test_kernel_that_does_not_tell_leaves_the_calling_thread(
    tmp_path: Path, tasks: Mapping[str, str | None]
) -> None:
    found = _read(_proc(tmp_path, tasks, stat=None))
    assert found.waited_s == pytest.approx(3.0)  # 10 s on the clock, 7 s on a core
    assert found.stolen_s == 0


def test_this_machine_is_read_too() -> None:
    first, second = read_usage(), read_usage()
    used = second.since(first)
    assert used.wall_s > 0
    assert used.cpu_s > 0
    assert 0 < used.given_share <= 1
