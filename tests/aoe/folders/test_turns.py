"""Of all runs on the same cores one measures at a time, and no dead one holds the others up."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from support.forked import end_in_time

from aoe.errors import RunError, TurnTimeoutError
from aoe.folders.turns import SLICE_S, Turns, join_turn

_RUN = """
import sys, time
from contextlib import ExitStack
from pathlib import Path
from aoe.folders.turns import Turns
turns = Turns(Path(sys.argv[1]), sys.argv[3].split(","), lambda text: print(text, flush=True))
with getattr(turns, sys.argv[2])():
    print("has it", flush=True)
    sys.stdin.readline()
print("gave it back", flush=True)
sys.stdin.readline()
"""
_COUNTING = """
import sys, time
from pathlib import Path
from aoe.folders.turns import Turns
turns = Turns(Path(sys.argv[1]), ["cpu0", "cpu1"])
marks, name = Path(sys.argv[2]), sys.argv[3]
for _ in range(20):
    with turns.measuring():
        (marks / "inside").mkdir()  # fails if somebody is
        with (marks / "order").open("a") as order:
            order.write(name)
        time.sleep(0.01)
        (marks / "inside").rmdir()
"""
_IN_SLICES = """
import sys, time
from pathlib import Path
from aoe.folders.turns import Turns
turns = Turns(Path(sys.argv[1]), ["cpu0", "cpu1"])
marks, name, others = Path(sys.argv[2]), sys.argv[3], sys.argv[4]

def pair():
    (marks / "inside").mkdir()  # fails if somebody is
    with (marks / "order").open("a") as order:
        order.write(name)
    time.sleep(0.01)
    (marks / "inside").rmdir()

with turns.measuring():  # one turn until both have given way to the other three times
    given = 0
    while given < 3 or not (marks / others).exists():
        pair()
        if turns.should_give_way:
            turns.give_way()
            given += 1
            if given == 3:
                (marks / name).touch()
    pair()
"""


def test_threads_of_a_run_share_a_turn_until_the_last_of_them_ends(tmp_path: Path) -> None:
    ours, theirs = (Turns(tmp_path, ["cpu0"]) for _ in range(2))
    inside, leave = threading.Event(), threading.Event()

    def beside() -> None:
        with ours.measuring():
            inside.set()
            leave.wait(30)

    thread = threading.Thread(target=beside)
    with ours.measuring():
        thread.start()
        assert inside.wait(30)
    with ExitStack() as held:
        assert not theirs.take(held, wait_s=0.05)
    leave.set()
    thread.join()
    with ExitStack() as held:
        assert theirs.take(held, wait_s=30)


def test_thread_that_waits_for_another_run_goes_along_when_its_own_has_the_turn(
    tmp_path: Path,
) -> None:
    ours = Turns(tmp_path, ["cpu0"])
    entered = threading.Barrier(2, timeout=30)

    def measure() -> None:
        with ours.measuring():
            entered.wait()  # both are inside at once

    threads = [threading.Thread(target=measure) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not entered.broken and not any(thread.is_alive() for thread in threads)


class Run:
    """Another run on this machine."""

    def __init__(self, folder: Path, kind: str, cores: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _RUN, str(folder), kind, cores],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def said(self) -> str:
        """Return its next line."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go_on(self) -> None:
        """Let it end its turn."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@contextmanager
def _other(folder: Path, kind: str = "measuring", cores: str = "cpu0,cpu1") -> Iterator[Run]:
    run = Run(folder, kind, cores)
    try:
        assert run.said() == "has it"
        yield run
    finally:
        run.process.kill()
        run.process.communicate()


def _is_free(turns: Turns, wait_s: float = 0.0) -> bool:
    with ExitStack() as held:
        return turns.take(held, wait_s=wait_s)


@pytest.mark.parametrize(
    ("kind", "cores", "free"),
    [
        ("measuring", "cpu0,cpu1", False),
        ("measuring", "cpu1", False),
        ("measuring", "cpu2,cpu3", True),
        ("compiling", "cpu0,cpu1", False),
    ],
)
def test_nobody_measures_beside_another_run_on_the_same_cores(
    kind: str, cores: str, free: bool, tmp_path: Path
) -> None:
    turns = Turns(tmp_path, ["cpu0", "cpu1"])
    with _other(tmp_path, kind, cores) as run:
        assert _is_free(turns) is free
        run.go_on()
        assert run.said() == "gave it back"
        assert _is_free(turns)


def test_compilers_share_the_cores(tmp_path: Path) -> None:
    with _other(tmp_path, "compiling"), Turns(tmp_path, ["cpu0"]).compiling():
        pass


def test_owner_is_named_on_the_screen_once(tmp_path: Path) -> None:
    told: list[str] = []
    turns = Turns(tmp_path, ["cpu0"], told.append)
    with _other(tmp_path) as run:
        owner = turns.owner()
        assert owner is not None and owner.pid == run.process.pid
        assert not _is_free(turns, 1.5)
        assert not _is_free(turns, 1.5)
    (text,) = told
    assert text.startswith(f"waiting: another run measures (pid {run.process.pid} since ")
    assert text.endswith("on cpu0; one measures at a time")
    assert f"python -c in {Path.cwd()}"[:40] in text  # a long folder is cut


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_turn_ends_with_its_process_however_that_ends(
    number: signal.Signals, tmp_path: Path
) -> None:
    turns = Turns(tmp_path, ["cpu0", "cpu1"])
    with _other(tmp_path) as run:
        run.process.send_signal(number)
        run.process.wait()
        assert _is_free(turns)


def test_turns_of_two_runs_never_overlap_and_alternate(tmp_path: Path) -> None:
    locks, marks = tmp_path / "locks", tmp_path / "marks"
    marks.mkdir()
    commands = [[sys.executable, "-c", _COUNTING, str(locks), str(marks), name] for name in "ab"]
    runs = [subprocess.Popen(command) for command in commands]
    assert [run.wait() for run in runs] == [0, 0]
    order = (marks / "order").read_text()
    assert sorted(order) == sorted("ab" * 20)
    both = order[max(order.index("a"), order.index("b")) :]
    assert "aaaaa" not in both[: min(both.rindex("a"), both.rindex("b"))]  # nobody is left waiting


def test_two_runs_in_the_middle_of_their_turns_alternate(tmp_path: Path) -> None:
    locks, marks = tmp_path / "locks", tmp_path / "marks"
    marks.mkdir()
    runs = [
        subprocess.Popen([sys.executable, "-c", _IN_SLICES, str(locks), str(marks), *names])
        for names in ("ab", "ba")
    ]
    assert [run.wait(timeout=60) for run in runs] == [0, 0]
    order = (marks / "order").read_text()
    slices = [name for place, name in enumerate(order) if order[place - 1 : place] != name]
    assert len(slices) >= 6  # both in their one turn, three times each


def test_run_killed_while_another_one_measures_in_its_turn_holds_nobody_up(tmp_path: Path) -> None:
    locks, marks = tmp_path / "locks", tmp_path / "marks"
    marks.mkdir()
    run = subprocess.Popen([sys.executable, "-c", _IN_SLICES, str(locks), str(marks), *"ab"])
    turns = Turns(locks, ["cpu0", "cpu1"])
    try:
        while not (marks / "order").exists():
            assert run.poll() is None
        with turns.measuring():  # given way to, in the middle of the turn
            run.kill()
            run.wait()
        assert _is_free(turns)
    finally:
        run.kill()
        run.wait()


@contextmanager
def _waiting(folder: Path, has_queue: Callable[[], bool]) -> Iterator[threading.Thread]:
    """Let another run wait for the cores in a thread, which ends once it has had them."""

    def measure() -> None:
        with Turns(folder, ["cpu0"]).measuring():
            pass

    thread = threading.Thread(target=measure)
    thread.start()
    for _ in range(3000):
        if has_queue():
            break
        time.sleep(0.01)
    else:
        raise AssertionError("nobody waits")
    yield thread


def test_run_gives_way_once_its_slice_is_over_and_another_one_waits(tmp_path: Path) -> None:
    now_s = [0.0]
    ours = Turns(tmp_path, ["cpu0"], clock=lambda: now_s[0])
    with ours.measuring():
        now_s[0] = 60.0
        assert not ours.should_give_way  # nobody waits
        with _waiting(tmp_path, lambda: ours.should_give_way) as thread:
            now_s[0] = SLICE_S / 2
            assert not ours.should_give_way
            now_s[0] = SLICE_S
            assert ours.should_give_way
            assert ours.give_way() == 0.0  # by this clock, which stood still
            thread.join(30)
            assert not thread.is_alive()
        assert not _is_free(Turns(tmp_path, ["cpu0"]))
    assert _is_free(Turns(tmp_path, ["cpu0"]))


def test_slice_lasts_half_of_the_wait_before_it(tmp_path: Path) -> None:
    now_s = [0.0]
    first = Turns(tmp_path, ["cpu0"])
    ours = Turns(tmp_path, ["cpu0"], clock=lambda: now_s[0])
    has_queue = threading.Event()

    def keep_for_a_second() -> None:
        with first.measuring():
            has_queue.set()
            while not first.should_give_way:
                time.sleep(0.01)
            now_s[0] = 1.0

    thread = threading.Thread(target=keep_for_a_second)
    thread.start()
    assert has_queue.wait(30)
    with ours.measuring():
        thread.join()
        now_s[0] = 10.0
        with _waiting(tmp_path, lambda: ours.should_give_way):
            now_s[0] = 1.45
            assert not ours.should_give_way
            now_s[0] = 1.55
            assert ours.should_give_way


@pytest.mark.parametrize("left_s", [0.0, 3.0])
def test_run_whose_time_is_nearly_over_keeps_the_cores(left_s: float, tmp_path: Path) -> None:
    left = [60.0]
    ours = Turns(tmp_path, ["cpu0"], left_s=lambda: left[0])
    with ours.measuring(), _waiting(tmp_path, lambda: ours.should_give_way):
        left[0] = left_s
        assert not ours.should_give_way


def test_turn_ends_where_the_time_of_a_run_is_over_before_its_cores_are_back(
    tmp_path: Path,
) -> None:
    left = [60.0]
    ours, theirs = Turns(tmp_path, ["cpu0"], left_s=lambda: left[0]), Turns(tmp_path, ["cpu0"])
    ended = threading.Event()

    def keep() -> None:
        with theirs.measuring():
            ended.wait(60)

    thread = threading.Thread(target=keep)
    with pytest.raises(TurnTimeoutError), ours.measuring():
        thread.start()
        while not ours.should_give_way:
            time.sleep(0.01)
        left[0] = 0.0
        while True:  # the first may be quicker than the other one's next try
            ours.give_way()
    ended.set()
    thread.join()
    assert _is_free(ours, 30)


def test_nobody_gives_way_what_others_of_the_run_use(tmp_path: Path) -> None:
    ours = Turns(tmp_path, ["cpu0"])
    inside, leave = threading.Event(), threading.Event()

    def compile_beside() -> None:
        with ours.compiling():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=compile_beside)
    with ours.measuring(), _waiting(tmp_path, lambda: ours.should_give_way):
        thread.start()
        assert inside.wait(30)
        assert not ours.should_give_way
        assert ours.give_way() == 0.0
        assert not _is_free(Turns(tmp_path, ["cpu0"]))
        leave.set()
        thread.join()
        assert ours.should_give_way
        with ExitStack() as held:
            join_turn(held)  # the turn of somebody else
            assert not ours.should_give_way


def test_own_compilers_do_not_wait_for_the_run_that_measures(tmp_path: Path) -> None:
    turns = Turns(tmp_path, ["cpu0"])
    done = threading.Event()

    def compile_meanwhile() -> None:
        with turns.compiling():
            done.set()

    with turns.measuring():
        thread = threading.Thread(target=compile_meanwhile)
        thread.start()
        assert done.wait(20)
        thread.join()
        with turns.measuring():
            pass
    assert _is_free(Turns(tmp_path, ["cpu0"]))


def test_what_is_tuned_inside_a_turn_does_not_wait_for_it(tmp_path: Path) -> None:
    outer = Turns(tmp_path, ["cpu0"])
    with ExitStack() as held:
        assert outer.take(held, wait_s=0)
        with Turns(tmp_path, ["cpu0"]).measuring(), Turns(tmp_path, ["cpu0"]).compiling():
            pass
    with ExitStack() as held:
        join_turn(held)  # as the other processes of a group
        with _other(tmp_path), Turns(tmp_path, ["cpu0"]).measuring():
            pass
    assert _is_free(outer)


def test_what_other_threads_tune_inside_a_turn_of_the_process_does_not_wait(
    tmp_path: Path,
) -> None:
    done = threading.Event()

    def script() -> None:  # the tuner of gradients has a thread of its own, and waits for it
        with Turns(tmp_path, ["cpu0"]).measuring():
            done.set()

    with ExitStack() as held:
        assert Turns(tmp_path, ["cpu0"]).take(held, wait_s=0)
        thread = threading.Thread(target=script)
        thread.start()
        assert done.wait(20)
        thread.join()


def test_two_runs_in_threads_of_one_process_take_turns_too(tmp_path: Path) -> None:
    found: list[bool] = []
    with Turns(tmp_path, ["cpu0"]).measuring():
        other = Turns(tmp_path, ["cpu0"])
        thread = threading.Thread(target=lambda: found.append(_is_free(other)))
        thread.start()
        thread.join()
    assert found == [False]


def test_run_that_is_given_up_stops_waiting(tmp_path: Path) -> None:
    with (
        _other(tmp_path),
        pytest.raises(RunError, match="given up"),
        Turns(tmp_path, ["cpu0"]).compiling(lambda: True),
    ):
        raise AssertionError("it got a turn")


@pytest.mark.parametrize("kind", ["measuring", "compiling"])
def test_run_waits_no_longer_than_its_time_limit(tmp_path: Path, kind: str) -> None:
    told: list[str] = []
    with _other(tmp_path) as run:
        turns = Turns(tmp_path, ["cpu0"], told.append, left_s=lambda: 1.3)
        with (
            pytest.raises(TurnTimeoutError, match="over before the cores were free") as caught,
            getattr(turns, kind)(),
        ):
            raise AssertionError("it got a turn")
        assert f"pid {run.process.pid}" in caught.value.headline
        assert turns.waited_s >= 1.3
    (text,) = told
    assert "one measures at a time; for " in text and text.endswith(" as the time limit says")


def test_run_past_its_limit_takes_cores_that_are_free(tmp_path: Path) -> None:
    with Turns(tmp_path, ["cpu0"], left_s=lambda: 0.0).measuring():
        assert not _is_free(Turns(tmp_path, ["cpu0"]))


def test_place_without_locks_is_told_and_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told: list[str] = []
    turns = Turns(tmp_path / "file" / "locks", ["cpu0"], told.append)
    for _ in range(2):
        with turns.measuring():
            pass
    (text,) = told
    assert text.startswith("measuring without a lock, other runs may disturb")


def test_locks_are_for_every_user_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        assert _is_free(Turns(tmp_path / "locks", ["cpu0"]))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "locks").stat().st_mode) == 0o1777
    modes = {file.stat().st_mode & 0o777 for file in (tmp_path / "locks").iterdir()}
    assert modes == {0o666}


def _told_without_locks(folder: Path) -> str:
    """Return why there are no locks; what measures goes on."""
    told: list[str] = []
    turns = Turns(folder, ["cpu0"], told.append)
    with turns.measuring():
        assert turns.owner() is None
    (text,) = told
    assert text.startswith(f"measuring without a lock, other runs may disturb: {folder}: ")
    return text


def test_link_of_somebody_else_in_the_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(0o700)
    (tmp_path / "locks").symlink_to(private)
    assert "is a link" in _told_without_locks(tmp_path / "locks")
    assert stat.S_IMODE(private.stat().st_mode) == 0o700 and not [*private.iterdir()]


@pytest.mark.parametrize(
    ("before", "after"), [(0o700, 0o700), (0o1777, 0o1777), (0o777, 0o1777), (0o2770, 0o2770)]
)
def test_folder_that_is_there_keeps_its_mode_unless_it_lets_all_remove_locks(
    before: int, after: int, tmp_path: Path
) -> None:
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks").chmod(before)
    assert _is_free(Turns(tmp_path / "locks", ["cpu0"]))
    assert stat.S_IMODE((tmp_path / "locks").stat().st_mode) == after


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe"])
@pytest.mark.parametrize("name", ["cpu0.lock", "cpu0.queue"])
def test_what_somebody_else_puts_in_the_place_of_a_lock_is_left_alone(
    kind: str, name: str, tmp_path: Path
) -> None:
    precious, locks = tmp_path / "precious", tmp_path / "locks"
    precious.write_text("precious")
    locks.mkdir()
    if kind == "link":
        (locks / name).symlink_to(precious)
    elif kind == "hard link":
        (locks / name).hardlink_to(precious)
    else:
        os.mkfifo(locks / name)
    _told_without_locks(locks)
    assert precious.read_text() == "precious"


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed")
def test_users_take_turns_and_leave_the_locks_of_others() -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        folder = Path(place) / "locks"
        with Turns(folder, ["cpu0"]).measuring():
            assert _as_nobody(lambda: not _is_free(Turns(folder, ["cpu0"])))
        assert _as_nobody(lambda: _is_free(Turns(folder, ["cpu0", "cpu1"])))
        assert _is_free(Turns(folder, ["cpu0", "cpu1"]))  # cpu1 is a lock of theirs
        assert _as_nobody(lambda: not _may_remove(folder / "cpu0.lock"))
        folder.chmod(0o777)
        assert _as_nobody(lambda: "chmod +t" in _told_without_locks(folder))


def _may_remove(file: Path) -> bool:
    try:
        file.unlink()
    except PermissionError:
        return False
    return True


def _as_nobody(check: Callable[[], bool]) -> bool:
    """Return whether a check is true for another user, in a forked process."""
    nobody = 65534
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads, which the child uses none of
        process = os.fork()
    if process == 0:
        code = 2
        try:
            end_in_time()
            os.setgroups([])
            os.setgid(nobody)
            os.setuid(nobody)
            code = 0 if check() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0


@pytest.mark.parametrize("note", ["[1]", '{"pid": 1e999, "command": "", "since": ""}'])
def test_note_of_a_stranger_is_no_owner(tmp_path: Path, note: str) -> None:
    (tmp_path / "cpu0.lock").write_text(note)
    turns = Turns(tmp_path, ["cpu0"])
    assert turns.owner() is None
    with turns.measuring():
        owner = turns.owner()
        assert owner is not None and owner.pid == os.getpid()
    assert turns.owner() is None
