"""What of the machine is told, and what to do about it."""

from __future__ import annotations

import pytest

from aoe.device.cpu.health import (
    check_cores,
    check_cpu,
    check_governor,
    check_load,
    check_memory,
    check_quota,
)
from aoe.device.protocol import Soundness


def test_every_part_is_looked_at() -> None:
    names = [check.name for check in check_cpu()]
    assert names == ["affinity", "cgroup quota", "governor", "load", "memory"]


def test_fewer_cores_than_there_are_is_told_and_no_fault() -> None:
    check = check_cores({1, 0}, all_cores=8)
    assert check.found.startswith("2 of 8 may be used (0,1)")
    assert check.verdict is Soundness.GOOD and "taskset" in check.advice


@pytest.mark.parametrize(
    ("text", "found", "verdict"),
    [
        ("max 100000", "none", Soundness.GOOD),
        ("", "none", Soundness.GOOD),
        ("150000 100000", "1.5 cores", Soundness.DOUBTFUL),
    ],
)
def test_quota_is_told(text: str, found: str, verdict: Soundness) -> None:
    check = check_quota(text)
    assert (check.found, check.verdict) == (found, verdict)


@pytest.mark.parametrize(
    ("governors", "verdict"),
    [
        (["performance", "performance"], Soundness.GOOD),
        (["", ""], Soundness.GOOD),
        (["performance", "powersave"], Soundness.DOUBTFUL),
    ],
)
def test_clock_that_follows_the_load_is_doubtful(governors: list[str], verdict: Soundness) -> None:
    check = check_governor(governors)
    assert check.verdict is verdict
    assert ("cpupower" in check.advice) is (verdict is Soundness.DOUBTFUL)


def test_busy_machine_is_doubtful() -> None:
    assert check_load(0.2, 2).verdict is Soundness.GOOD
    assert check_load(1.2, 2).verdict is Soundness.DOUBTFUL


def test_little_memory_is_doubtful() -> None:
    little = "MemTotal: 8000000 kB\nMemAvailable:    1048576 kB\n"
    assert check_memory(little).found == "1.0 GiB free"
    assert check_memory(little).verdict is Soundness.DOUBTFUL
    assert check_memory("MemAvailable: 8388608 kB\n").verdict is Soundness.GOOD
    assert check_memory("").found == "not told"
