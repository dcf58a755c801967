"""The kernel's counters, from made-up files and clocks."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aoe.device.cpu.usage import RunQueueWait, read_usage
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


def test_waits_on_a_run_queue_are_those_of_all_threads(tmp_path: Path) -> None:
    proc = _proc(tmp_path, {"1": "5000000000 250000000 9\n", "2": "4000000000 500000000 3\n"})
    waited_s = RunQueueWait(proc / "self" / "task")
    assert waited_s() == pytest.approx(0.75)
    (proc / "self" / "task" / "2" / "schedstat").write_text("4000000000 750000000 4\n")
    assert waited_s() == pytest.approx(1.0)


def test_a_thread_that_starts_counts_from_then_on(tmp_path: Path) -> None:
    proc = _proc(tmp_path, {"1": "5000000000 250000000 9\n"})
    tasks = proc / "self" / "task"
    if tasks.stat().st_nlink < 3:
        pytest.skip("folders of this file system have no link from the folders in them")
    waited_s = RunQueueWait(tasks)
    assert waited_s() == pytest.approx(0.25)
    _proc(tmp_path, {"2": "0 500000000 1\n"})
    assert waited_s() == pytest.approx(0.75)


@pytest.mark.parametrize("tasks", [{}, {"1": None}])
def test_kernel_that_does_not_tell_has_no_waits(
    tmp_path: Path, tasks: Mapping[str, str | None]
) -> None:
    assert math.isnan(RunQueueWait(_proc(tmp_path, tasks) / "self" / "task")())


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel does not tell")
def test_waits_are_known_while_threads_come_and_go() -> None:
    waited_s = RunQueueWait()
    found = [waited_s()]
    for _ in range(3):
        with ThreadPoolExecutor(2) as pool:
            pool.submit(waited_s).result()  # opens the files of a thread that ends
        found.append(waited_s())
    assert all(one_s >= 0 for one_s in found)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel does not tell")
def test_cpu_time_of_a_thread_that_has_ended_says_nothing_of_waiting() -> None:
    def compute() -> None:
        end_s = time.thread_time() + 0.1
        while time.thread_time() < end_s:
            pass

    tasks, before = Path("/proc/self/task"), read_usage()
    threads = len([*tasks.iterdir()])
    with ThreadPoolExecutor(1) as pool:
        pool.submit(compute).result()
    while len([*tasks.iterdir()]) > threads:  # the kernel takes a moment longer
        time.sleep(0.001)
    used = read_usage().since(before)
    assert 0.05 < used.ended_cpu_s <= used.cpu_s
