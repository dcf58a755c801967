"""A device number is a node of memory; a run on it stays with its cores."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aoe.device.cpu.cores import numa_nodes, parse_cores, pinned_to_node
from aoe.errors import OptionError


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
