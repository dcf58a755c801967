"""Nodes of memory, cores that are measured on, and those left over for compilers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.engine.cpu import CPU

from aoe.device.cpu.cores import core_siblings, numa_nodes, parse_cores, pinned_to_node, split_cores
from aoe.errors import OptionError


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


def test_nodes_are_those_the_kernel_lists(tmp_path: Path) -> None:
    for number, cores in ((0, "0-3,8\n"), (1, "4-7\n"), (2, "\n")):
        (tmp_path / f"node{number}").mkdir()
        (tmp_path / f"node{number}" / "cpulist").write_text(cores)
    (tmp_path / "nodes_online").write_text("0-2\n")
    found = numa_nodes(tmp_path)
    assert found == {0: {0, 1, 2, 3, 8}, 1: {4, 5, 6, 7}}  # memory alone is no device


def test_machine_that_says_nothing_has_one_node(tmp_path: Path) -> None:
    assert numa_nodes(tmp_path / "none") == {0: frozenset(range(os.cpu_count() or 1))}
    assert parse_cores("") == frozenset()


def test_run_and_what_it_starts_are_pinned_and_let_go_again() -> None:
    before = os.sched_getaffinity(0)
    one = frozenset({max(before)})
    command = [sys.executable, "-c", "import os; print(len(os.sched_getaffinity(0)))"]
    with pinned_to_node(1, {0: frozenset(before) - one, 1: one}):
        assert os.sched_getaffinity(0) == one
        assert subprocess.check_output(command).split() == [b"1"]
    assert os.sched_getaffinity(0) == before


def test_other_numbers_are_an_error_that_lists_the_devices() -> None:
    with pytest.raises(OptionError, match="expected 0, this CPU"):
        pinned_to_node(3, {0: frozenset(os.sched_getaffinity(0))}).__enter__()
    with pytest.raises(OptionError, match="expected 0, 1, a NUMA node each"):
        pinned_to_node(3, {0: frozenset({0}), 1: frozenset({1})}).__enter__()


def test_node_none_of_whose_cores_may_be_used_is_an_error() -> None:
    with pytest.raises(OptionError, match="may use none of the cores of that node"):
        pinned_to_node(0, {0: frozenset({100_000})}).__enter__()
