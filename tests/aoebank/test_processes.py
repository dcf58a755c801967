"""Several processes give what one gives, in order, whatever becomes of them."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.faulty_system import FaultySystem

from aoebank import BankPathError
from aoebank.processes import count_processes, map_in_order

LARGE = 1 << 30


@pytest.fixture(autouse=True)
def nobody_left_behind() -> Iterator[None]:
    threads = threading.active_count()  # other tests of this process may have left some
    yield
    assert multiprocessing.active_children() == []
    assert threading.active_count() == threads


@pytest.mark.parametrize("number", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("pieces", [0, 1, 2, 5, 6, 23])
def test_results_come_in_order(number: int, pieces: int) -> None:
    found = map_in_order(lambda piece: piece * 10, range(pieces), number)
    assert list(found) == [piece * 10 for piece in range(pieces)]


def test_this_process_takes_every_nth_piece() -> None:
    workers = list(map_in_order(lambda _: os.getpid(), range(9), 3))
    assert workers[::3] == [os.getpid()] * 3
    others = {*workers[1::3], *workers[2::3]}
    assert os.getpid() not in others
    assert 1 <= len(others) <= 2


def test_nothing_but_the_results_need_be_pickled() -> None:
    pieces = [lambda number=number: number for number in range(4)]
    assert list(map_in_order(lambda piece: piece(), pieces, 2)) == [0, 1, 2, 3]


@pytest.mark.parametrize("bad", [0, 1, 4])
def test_errors_are_raised_here_in_their_turn(bad: int) -> None:
    def work(piece: int) -> int:
        if piece == bad:
            raise BankPathError("cannot be read", path=Path("x"), hint="chmod")
        return piece

    found = map_in_order(work, range(6), 3)
    for piece in range(bad):
        assert next(found) == piece
    with pytest.raises(BankPathError, match="x: cannot be read") as caught:
        next(found)
    assert (caught.value.path, caught.value.hint) == (Path("x"), "chmod")


def test_what_a_process_that_died_did_not_send_is_done_here() -> None:
    here = os.getpid()

    def work(piece: int) -> int:
        if piece == 4 and os.getpid() != here:
            os._exit(7)
        return piece

    assert list(map_in_order(work, range(12), 3)) == list(range(12))


def test_a_process_without_memory_is_helped_out() -> None:
    here = os.getpid()

    def work(piece: int) -> int:
        if os.getpid() != here:
            raise MemoryError
        return piece

    assert list(map_in_order(work, range(5), 2)) == list(range(5))


def test_who_loses_interest_leaves_no_process() -> None:
    found = map_in_order(lambda piece: piece, range(100), 2)
    assert next(found) == 0
    found.close()  # type: ignore[attr-defined]


def test_error_of_this_process_leaves_no_process() -> None:
    def work(piece: int) -> int:
        if piece == 2:
            raise KeyboardInterrupt
        return piece

    with pytest.raises(KeyboardInterrupt):
        list(map_in_order(work, range(4), 2))


def test_no_piece_is_worked_on_long_before_its_turn(tmp_path: Path) -> None:
    def work(piece: int) -> int:
        (tmp_path / str(piece)).touch()
        return piece

    found = map_in_order(work, range(50), 2)
    assert [next(found), next(found), next(found)] == [0, 1, 2]
    assert {int(path.name) for path in tmp_path.iterdir()} <= set(range(6))
    found.close()  # type: ignore[attr-defined]


def _in_a_process_of_its_own(cores: int, code: str) -> list[int]:
    """Return the numbers a program prints that has one thread, unlike this one with its libraries.

    Args:
        cores: Which that program takes itself to have.
        code: Prints; `count` is `count_processes`, `os`, `threading` and `time` are imported.
    """
    program = (
        "import os, threading, time\n"
        f"os.sched_getaffinity = lambda _: set(range({cores}))\n"
        "from aoebank.processes import count_processes as count\n"
        f"{code}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return [int(word) for word in done.stdout.split()]


def test_every_core_gets_its_share_of_a_large_job() -> None:
    sizes = [LARGE, 30 << 20, (16 << 20) - 1, 0]
    code = f"print(*map(count, {sizes}))"
    assert _in_a_process_of_its_own(16, code) == [16, 3, 1, 1]


def test_one_core_works_alone(system: FaultySystem) -> None:
    system.replace("os.sched_getaffinity", lambda _: {0})
    assert count_processes(LARGE) == 1


def test_process_with_threads_does_not_fork() -> None:
    code = f"""
done = threading.Event()
thread = threading.Thread(target=done.wait)
thread.start()
print(count({LARGE}))
done.set()
thread.join()
while len(os.listdir("/proc/self/task")) > 1:
    time.sleep(0.01)  # Python's thread is over before the system's
print(count({LARGE}))
"""
    assert _in_a_process_of_its_own(2, code) == [1, 2]


def test_those_who_work_do_not_fork_again(system: FaultySystem) -> None:
    system.replace("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert list(map_in_order(lambda _: count_processes(LARGE), range(4), 2)) == [1] * 4


def test_no_proc_is_no_reason_to_fail(system: FaultySystem) -> None:
    system.fail("Path.iterdir", FileNotFoundError(2, "No such file or directory"))
    assert count_processes(LARGE) == 1
