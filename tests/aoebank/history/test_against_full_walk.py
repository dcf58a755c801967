"""What is read by differences of trees is what a walk over all trees and files finds.

The histories have renames, deletions, merges that take one side, links and submodules in the
place of files, and odd names.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.random_history import STEPS, FullWalk, Step, write_history

from aoebank import BankPathError, HistoryError
from aoebank.history.blame import blame
from aoebank.history.changes import Move, is_same_record, iter_moves, raw_of
from aoebank.history.log import log
from aoebank.selection import RecordFilter
from aoebank.storage.sides.git import open_git_side
from aoebank.testing.factories import make_record

ALL = RecordFilter()
# each example is a repository that real git writes and reads: 4 every day, 50 with `-m slow`
FEW = settings(max_examples=settings.default.max_examples // 6, deadline=None)
INSIDE = st.sampled_from(("", "banks"))


@FEW
@given(STEPS, INSIDE)
def test_log_is_that_of_all_trees(steps: list[Step], inside: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        slow, root = _make(Path(folder), steps, inside)
        expected = []
        for commit, old in slow.log():
            sides = (slow.side(name, is_logged=True) for name in (old, commit))
            expected.append((commit, Counter(move.kind for move in iter_moves(*sides, ALL))))
        if not any(slow.banks(commit) for commit in slow.commits):
            return
        try:
            found = log(root, wanted=ALL).versions
        except HistoryError as error:  # the newest commit has no file that is called like a bank
            assert "no history" in str(error)
            return
    assert [(logged.version.id, logged.moves) for logged in found] == expected


@FEW
@given(STEPS, INSIDE, st.integers(0, 3))
def test_blame_is_that_of_all_trees(steps: list[Step], inside: str, number: int) -> None:
    key = make_record(number).key
    with tempfile.TemporaryDirectory() as folder:
        slow, root = _make(Path(folder), steps, inside)
        try:
            found = blame(root, key, wanted=ALL).records
        except HistoryError as error:
            assert "no history" in str(error)
            return
        except BankPathError as error:  # a link of the work tree, which a person can mend
            assert "link to nowhere" in str(error)
            return
        names = {record.file for record in found}
        newest = slow.side(slow.head)
        here = {name for name in newest.names() if raw_of(newest.load(name), key) is not None}
        assert not here or names == here
        for record in found:
            states = [
                (state.version.id if state.version else "", state.move) for state in record.states
            ]
            assert states == [*_slow_states(slow, record.file, key, names)]
        if not found:
            assert not any(_holds(slow, commit, key) for commit, _ in slow.log())


@FEW
@given(STEPS, INSIDE)
def test_bank_files_of_a_revision_are_those_of_its_tree(steps: list[Step], inside: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        slow, _ = _make(Path(folder), steps, inside)
        top = Path(folder)
        for commit in [*slow.commits][:3]:
            try:
                side = open_git_side(f"{commit}:{inside}", beside=top, cwd=top)
            except HistoryError as error:
                assert "no such path" in str(error)
                assert not slow.banks(commit)
                continue
            readable = tuple(name for name in side.listing()[0] if name not in side.closed)
            assert readable == tuple(sorted(slow.banks(commit)))


def test_link_to_nowhere_in_one_commit_closes_no_history(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_history(tmp_path, [("put", 0, 0, 2), ("link", 0, 0, 0), ("put", 0, 0, 3)])
    moves = [logged.moves for logged in log(tmp_path, wanted=ALL).versions]
    assert moves == [{Move.ADDED: 1}, {Move.REMOVED: 1}, {Move.ADDED: 1}, {Move.ADDED: 2}]
    (told,) = caplog.messages
    assert "cannot be read: link to nowhere; counted as no file" in told
    (record,) = blame(tmp_path, make_record(3).key, wanted=ALL).records
    assert [state.move for state in record.states] == [Move.ADDED]


def test_commit_about_other_files_is_no_version_of_the_bank(tmp_path: Path) -> None:
    write_history(tmp_path, [("other", 0, 0, 2), ("put", 0, 1, 0), ("other", 0, 0, 0)])
    assert len(log(tmp_path, wanted=ALL).versions) == 2


def test_many_versions_are_read_only_as_far_as_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aoebank.storage.sides.git import GitHistory

    write_history(tmp_path, [("put", 0, 1, number % 4) for number in range(12)])
    asked: list[str] = []
    real = GitHistory.changes
    monkeypatch.setattr(
        GitHistory,
        "changes",
        lambda self, version: (asked.append(version.id), real(self, version))[1],
    )
    assert len(log(tmp_path, wanted=ALL, limit=3).versions) == 3
    assert len(asked) == 3


def _make(top: Path, steps: list[Step], inside: str) -> tuple[FullWalk, Path]:
    write_history(top, steps)
    (top / inside).mkdir(exist_ok=True)
    return FullWalk(top, inside), top / inside


def _holds(slow: FullWalk, commit: str, key: str) -> bool:
    side = slow.side(commit, is_logged=True)
    return any(raw_of(side.load(name), key) is not None for name in side.names())


def _slow_states(
    slow: FullWalk, name: str, key: str, names: set[str]
) -> Iterator[tuple[str, Move]]:
    def raw(commit: str) -> bytes | None:
        blob = slow.entries[commit].get(name)
        if blob is None or not blob[0].startswith("100"):
            return None
        side = slow.side(commit)
        return raw_of(side.load(name), key)

    parents = slow.blame_parents(names)
    commit: str | None = slow.head
    while commit is not None:
        now = raw(commit)
        same = next((one for one in parents[commit] if is_same_record(now, raw(one))), None)
        if same is None:
            old = raw(parents[commit][0]) if parents[commit] else None
            if old is not None or now is not None:
                move = Move.ADDED if old is None else Move.REMOVED if now is None else Move.CHANGED
                yield commit, move
            same = parents[commit][0] if parents[commit] else None
        commit = same
