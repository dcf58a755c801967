"""A merge or an edit killed anywhere and run again gives what it gives undisturbed."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.faulty_system import FaultySystem
from support.forked import end_in_time
from support.merge_files import NAMES, Answer, make_file
from support.tiers import few_every_day

from aoebank import AoebankError, BankPathError, edit, merge, settle
from aoebank.formats.provenance import SUFFIX
from aoebank.merging.merge_bytes import QUARANTINE
from aoebank.storage.writing.atomic import TEMPORARY_SUFFIX
from aoebank.storage.writing.journal import Journal

KILLED = 42
_COPIES = 3
UNIFIED = "unified"
ONE = f"Ascend910B2/unified_bank/{NAMES[UNIFIED]}"
TWO, GONE, NEW = (ONE.replace("matmul", op) for op in ("add", "gone", "new"))
A, B, C = (Answer(tile=tile, cost_us=100.0 / tile) for tile in (1, 2, 4))
Action = Callable[[Path], object]
Content = Mapping[str, bytes]


def _bank(answers: Mapping[int, Answer]) -> bytes:
    return make_file(UNIFIED, answers)


def _fill(root: Path) -> None:
    """Write three versions of a tree, with conflicts in two files, and of a file."""
    same = _bank({7: A})
    files = {
        "base": {ONE: _bank({0: A, 1: A, 2: A}), TWO: _bank({0: A}), GONE: same},
        "a": {ONE: _bank({0: B, 1: A, 2: A, 3: A}), TWO: _bank({0: B}), GONE: same},
        "b": {ONE: _bank({0: C, 1: B, 4: A}), TWO: _bank({0: C, 5: A}), NEW: same},
    }
    for side, line in (("base", "0"), ("a", "1"), ("b", "2")):
        files[side][ONE + SUFFIX] = f'{{"n": {line}}}\n'.encode()
        files[side][QUARANTINE] = b""
        for name, data in files[side].items():
            path = root / side / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        (root / f"{side}.json").write_bytes(files[side][ONE])


def _content(root: Path) -> dict[str, bytes | None]:
    """Return all that lies in a folder, hidden and temporary files and empty folders too."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
    }


def _choose(path: Path, times: int = -1) -> None:
    text = path.read_text()
    path.write_text(text.replace('"action": "conflict"', '"action": "take-theirs"', times))


def _merge(root: Path, *, suffix: str = "", out: str = "a", **more: Any) -> object:
    sides = [root / f"{side}{suffix}" for side in ("a", "b")]
    base = root / f"base{suffix}"
    return merge(*sides, base=base, output=root / f"{out}{suffix}", policy="fail", **more)


def _edit(root: Path) -> object:
    return edit(root / "a", op="matmul", assign={"tile": 16})


def _with_decisions(root: Path) -> None:
    merge(
        *(root / "a", root / "b"),
        base=root / "base",
        policy="fail",
        dry_run=True,
        decisions=root / "saved.json",
    )
    _choose(root / "saved.json", 1)


def _with_conflicts(times: int) -> Action:
    def prepare(root: Path) -> None:
        _merge(root)
        _choose(root / "a" / f"{ONE}.conflicts", times)

    return prepare


def _nothing(root: Path) -> None:
    pass


def _with_sibling(root: Path) -> None:
    place = root / "a" / ONE.replace("Ascend910B2", "Ascend910B1")
    place.parent.mkdir(parents=True)
    place.write_bytes((root / "a" / ONE).read_bytes())


CASES: Mapping[str, tuple[Action, Action]] = {
    "in place": (_nothing, _merge),
    "in place, a file": (_nothing, lambda root: _merge(root, suffix=".json")),
    "new": (_nothing, lambda root: _merge(root, out="x/y/out")),
    "new, empty folder": (
        lambda root: (root / "empty").mkdir(),
        lambda root: _merge(root, out="empty"),
    ),
    "new, a file": (_nothing, lambda root: _merge(root, suffix=".json", out="x/y/out")),
    "in place, an edit": (_with_sibling, lambda root: _edit(root)),
    "decisions": (_with_decisions, lambda root: _merge(root, apply=root / "saved.json")),
    "all settled": (_with_conflicts(-1), lambda root: settle(root / "a" / f"{ONE}.conflicts")),
    "one settled": (_with_conflicts(1), lambda root: settle(root / "a" / f"{ONE}.conflicts")),
}


class _Killer:
    """Ends the process at one of the moments in which something on disk changes."""

    def __init__(self, at: int) -> None:
        self.moments = 0
        self._at = at

    def moment(self) -> None:
        if self.moments == self._at:
            os._exit(KILLED)
        self.moments += 1

    def arm(self) -> None:
        """Count before and after each call, and in the middle of each write."""
        for name in ("fsync", "replace", "rename", "link", "mkdir", "unlink", "rmdir", "chmod"):
            setattr(os, name, self._around(getattr(os, name)))
        opens = Path.open
        killer = self

        def opened(path: Path, mode: str = "r", *more: Any, **members: Any) -> Any:
            stream = opens(path, mode, *more, **members)
            if mode != "xb":
                return stream
            killer.moment()
            return _Torn(stream, killer)

        Path.open = opened  # type: ignore[method-assign, assignment]
        Journal.__init__ = self._tearing(Journal.__init__)  # type: ignore[method-assign]

    def _around(self, call: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: Any, **members: Any) -> object:
            self.moment()
            try:
                return call(*arguments, **members)
            finally:
                self.moment()

        return counted

    def _tearing(self, make: Callable[..., None]) -> Callable[..., None]:
        def made(journal: Journal, path: Path, stream: Any) -> None:
            make(journal, path, _Torn(stream, self))

        return made


class _Torn:
    """A stream whose writes can be cut off in the middle."""

    def __init__(self, stream: Any, killer: _Killer) -> None:
        self._stream, self._killer = stream, killer

    def __enter__(self) -> _Torn:
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, data: bytes) -> None:
        half = len(data) // 2
        self._stream.write(data[:half])
        self._stream.flush()
        self._killer.moment()
        self._stream.write(data[half:])
        self._stream.flush()
        self._killer.moment()


def _run_killed(action: Action, root: Path, at: int) -> bool:
    """Run in a process that dies at a moment; return whether it came so far.

    A copy of a process with threads may wait for a lock that one of them held, for ever: it ends
    after a while, and another one begins anew.
    """
    start = Path(shutil.copytree(root, root.with_name("before")))
    for _ in range(_COPIES):
        code = _exit_code(action, root, at)
        if code != -signal.SIGALRM:
            break
        shutil.rmtree(root)
        shutil.copytree(start, root)
    shutil.rmtree(start)
    assert code in (0, KILLED)
    return code == KILLED


def _exit_code(action: Action, root: Path, at: int) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            end_in_time()
            killer = _Killer(at)
            killer.arm()
            action(root)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _run_again(action: Action, root: Path) -> bool:
    """Return whether the command did its work a second time."""
    try:
        action(root)
    except AoebankError:
        return False
    return True


MOMENTS = pytest.mark.parametrize(  # every day each 23rd moment
    "step", [23, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"]
)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@MOMENTS
@pytest.mark.parametrize("case", few_every_day(CASES, 3))
def test_killed_at_any_moment_and_run_again(tmp_path: Path, case: str, step: int) -> None:
    prepare, action = CASES[case]
    start, root = tmp_path / "start", tmp_path / "try"  # saved decisions name paths: always one
    root.mkdir()
    _fill(root)
    prepare(root)
    shutil.copytree(root, start)
    action(root)
    wanted = _content(root)
    shutil.rmtree(root)
    at = 0
    while True:
        shutil.copytree(start, root)
        if not _run_killed(action, root, at):
            break
        left = _content(root)
        if not _run_again(action, root):  # it was all done but for putting things away
            tidy = {name: data for name, data in left.items() if TEMPORARY_SUFFIX not in name}
            assert tidy == wanted, (at, case)
            assert not case.startswith("in place"), at
            has_journal = tidy != left
            assert not (case == "new" and has_journal), at
        assert _content(root) == wanted, (at, case)
        shutil.rmtree(root)
        at += step
    assert _content(root) == wanted
    assert at > 40


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@MOMENTS
def test_new_tree_is_not_there_or_whole_at_any_moment(tmp_path: Path, step: int) -> None:
    """A reader that looks while the merge runs sees what a kill at that moment leaves."""
    action = CASES["new"][1]
    start, root = tmp_path / "start", tmp_path / "try"
    start.mkdir()
    _fill(start)
    shutil.copytree(start, root)
    action(root)
    wanted = _content(root / "x" / "y" / "out")
    seen = {False: 0, True: 0}
    for at in range(0, 1000, step):
        shutil.rmtree(root)
        shutil.copytree(start, root)
        if not _run_killed(action, root, at):
            break
        place = root / "x" / "y" / "out"
        seen[place.exists()] += 1
        assert not place.exists() or _content(place) == wanted, at
    assert seen[False] > 40 // step
    assert seen[True] > 3 // step


def test_tree_that_comes_into_being_meanwhile_is_left_alone(
    tmp_path: Path, system: FaultySystem
) -> None:
    _fill(tmp_path)
    place = tmp_path / "x" / "y" / "out"

    def late(*_: object) -> None:
        place.mkdir()
        (place / "mine").write_text("mine")

    system.before("os.rename", late)
    with pytest.raises(BankPathError, match="came into being meanwhile"):
        _merge(tmp_path, out="x/y/out")
    assert _content(tmp_path / "x") == {"y": None, "y/out": None, "y/out/mine": b"mine"}


def test_empty_folder_is_filled_and_stays_the_same_one(tmp_path: Path) -> None:
    _fill(tmp_path)
    place = tmp_path / "out"
    place.mkdir(mode=0o700)
    before = place.stat()
    _merge(tmp_path, out="out")
    assert place.stat().st_ino == before.st_ino
    assert (place / ONE).exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_half_a_merge_is_no_side_and_no_place_to_settle(tmp_path: Path) -> None:
    for at in range(0, 500, 3):
        root = tmp_path / "try"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        _fill(root)
        before = _content(root)
        assert _run_killed(_merge, root, at), "no moment with one file changed and one not"
        now = _content(root)
        if any(now.get(name) != data for name, data in before.items()):
            break
    with pytest.raises(BankPathError, match="cut off"):
        merge(root / "b", root / "a", output=root / "new")
    with pytest.raises(BankPathError, match="cut off"):
        merge(root / "a", root / "b", output=root / "a", dry_run=True)
    half = root / "a" / f"{ONE}.conflicts"
    with pytest.raises(BankPathError, match="cut off"):
        settle(half)
    with pytest.raises(BankPathError, match="cut off"):
        settle(half, dry_run=True)
