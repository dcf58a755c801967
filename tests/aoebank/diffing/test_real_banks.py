"""Two releases of real banks, where they are at hand: known answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from aoebank import DiffResult
from aoebank.diffing.result import ChangeKind
from aoebank.diffing.run import DiffOptions, diff
from aoebank.storage.sides.side import PathSide


def compare(shared_data: Path, options: DiffOptions) -> DiffResult:
    old, new = (
        PathSide(label=name, path=shared_data / "cann_banks" / name)
        for name in ("v8.5.0", "v9.0.0")
    )
    return diff(old, new, options)


def counts(result: DiffResult) -> dict[ChangeKind, int]:
    return {kind: result.count(kind) for kind in ChangeKind if result.count(kind)}


def test_without_renames_249_are_added_and_100_removed(shared_data: Path) -> None:
    result = compare(shared_data, DiffOptions(has_renames=False))
    assert counts(result) == {ChangeKind.ADDED: 249, ChangeKind.REMOVED: 100}
    assert (result.unchanged, result.moved, result.problems) == (4148, 0, ())


def test_five_files_got_another_soc_version_and_lost_nothing(shared_data: Path) -> None:
    result = compare(shared_data, DiffOptions())
    assert counts(result) == {ChangeKind.ADDED: 149}
    assert (result.unchanged, result.moved) == (4148, 100)
    assert [(move.soc_a, move.soc_b, move.equal, move.records_b) for move in result.moves] == [
        ("Ascend910_9579", "Ascend950PR_9579", 18, 58),
        ("Ascend910_957b", "Ascend950PR_957b", 18, 58),
        ("Ascend910_9589", "Ascend950PR_9589", 32, 32),
        ("Ascend910_9589", "Ascend950PR_9589", 4, 4),
        ("Ascend910_9599", "Ascend950PR_9599", 28, 28),
    ]


@pytest.mark.parametrize("release", ["v8.5.0", "v9.0.0"])
def test_release_does_not_differ_from_itself(shared_data: Path, release: str) -> None:
    side = PathSide(label=release, path=shared_data / "cann_banks" / release)
    result = diff(side, side)
    assert (result.changes, result.moves, result.problems) == ((), (), ())
