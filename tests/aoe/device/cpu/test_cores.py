"""Cores that are measured on, and those left over for compilers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.engine.cpu import CPU

from aoe.device.cpu.cores import core_siblings, split_cores


def _siblings(*physical: Sequence[int]) -> dict[int, frozenset[int]]:
    return {core: frozenset(cores) for cores in physical for core in cores}


@pytest.mark.parametrize(
    ("threads", "physical", "measured", "spare"),
    [
        (1, [[0], [1]], {0}, {1}),
        (2, [[0], [1]], {0, 1}, set()),
        (1, [[0, 1]], {0}, set()),  # a hyperthread of the same core is no spare one
        (2, [[0, 1], [2, 3]], {0, 2}, set()),
        (1, [[0, 1], [2, 3]], {0}, {2, 3}),
        (2, [[0, 4], [1, 5], [2, 6], [3, 7]], {0, 1}, {2, 3, 6, 7}),
        (3, [[0, 1], [2, 3]], {0, 1, 2}, set()),
        (9, [[0], [1]], {0, 1}, set()),
    ],
)
def test_physical_cores_are_shared_by_nobody(
    threads: int, physical: list[list[int]], measured: set[int], spare: set[int]
) -> None:
    found = split_cores(threads, _siblings(*physical))
    assert (found.measured, found.spare) == (measured, spare)


def test_siblings_this_process_may_not_use_still_share_the_core() -> None:
    usable = {0: frozenset({0, 2}), 1: frozenset({1, 3})}
    assert split_cores(1, usable) == ({0}, {1})


def test_siblings_are_read_where_the_kernel_tells_them(tmp_path: Path) -> None:
    folder = tmp_path / "cpu0" / "topology"
    folder.mkdir(parents=True)
    (folder / "thread_siblings_list").write_text("0,2\n")
    assert core_siblings([0, 1], tmp_path) == {0: {0, 2}, 1: {1}}


def test_this_machine_measures_on_as_many_cores_as_are_asked_for() -> None:
    usable = os.sched_getaffinity(0)
    for threads in range(1, len(usable) + 1):
        split = CPU.apart(threads)
        assert split.measured <= usable and not split.measured & split.spare
        assert len(split.measured) >= threads
