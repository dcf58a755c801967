"""Jobs in forked children: in order, side by side, and none takes the others along."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aoe.device.forks import NO_TIME, run_in_children


def _says(text: str, after_s: float = 0.0) -> Callable[[], str]:
    def job() -> str:
        time.sleep(after_s)
        return text

    return job


def _dies(number: int) -> Callable[[], str]:
    def job() -> str:
        os.kill(os.getpid(), number)
        return "alive"

    return job


def _fails() -> str:
    raise ValueError("of no use")


@pytest.mark.parametrize("at_once", [1, 2, 8])
def test_answers_come_in_order(at_once: int) -> None:
    jobs = [_says("a", 0.2), _says("b"), _says("c", 0.1)]
    assert run_in_children(jobs, at_once=at_once) == ["a", "b", "c"]


def test_no_jobs_have_no_answers() -> None:
    assert run_in_children([]) == []


def test_child_that_dies_costs_only_its_own_job() -> None:
    found = run_in_children([_says("a"), _dies(signal.SIGKILL), _fails, _says("d")], at_once=2)
    assert found == [
        "a",
        "the compiler ended with signal 9",
        "the compiler ended with exit code 1",
        "d",
    ]


def test_job_that_hangs_is_ended_and_the_others_go_on() -> None:
    found = run_in_children([_says("a", 60.0), _says("b")], each_s=0.3)
    assert found == ["it took too long", "b"]


def test_when_the_time_is_up_nothing_is_begun_and_nothing_goes_on() -> None:
    began_s = time.monotonic()
    found = run_in_children([_says("a"), _says("b", 60.0), _says("c")], all_s=0.5)
    assert found == ["a", NO_TIME, NO_TIME]
    assert time.monotonic() - began_s < 30.0


def test_each_job_begins_with_the_state_of_the_parent() -> None:
    seen: list[int] = []

    def job() -> str:
        seen.append(1)
        return str(len(seen))

    assert run_in_children([job, job, job]) == ["1", "1", "1"]
    assert seen == []


@pytest.mark.skipif(sys.platform != "linux", reason="a child is told of its parent's end on Linux")
def test_children_end_with_a_parent_that_is_killed() -> None:
    script = (
        "import os, time\n"
        "from aoe.device.forks import run_in_children\n"
        "def job():\n"
        "    print(os.getpid(), flush=True)\n"
        "    time.sleep(60)\n"
        "    return ''\n"
        "run_in_children([job])\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    deadline_s = time.monotonic() + 30.0
    while _is_alive(child) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert not _is_alive(child)


def _is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
