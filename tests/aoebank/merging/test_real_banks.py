"""Real banks of two releases, where they are at hand."""

from __future__ import annotations

from pathlib import Path

from aoebank import MergeResult
from aoebank.merging.decisions import MergeRules, Policy, Reason
from aoebank.merging.run import MergeRequest, merge
from aoebank.merging.sides import find_destination
from aoebank.storage.sides.open import open_side
from aoebank.storage.sides.side import Side
from aoebank.storage.tree import FileKind, iter_tree

RELEASES = ("v8.5.0", "v9.0.0")


def side(path: Path) -> Side:
    return open_side(str(path), cwd=path, default_root=lambda: path)


def run(base: Path | None, ours: Path, theirs: Path, out: Path, policy: Policy) -> MergeResult:
    sides = (side(ours), side(theirs))
    return merge(
        MergeRequest(
            sides=sides,
            base=side(base) if base else None,
            rules=MergeRules(policy=policy),
            destination=find_destination(str(out), sides, cwd=out.parent),
        )
    )


def contents(root: Path) -> dict[str, bytes]:
    banks = (entry.path for entry in iter_tree(root) if entry.kind is FileKind.BANK)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in banks}


def test_release_nobody_else_changed_comes_out_byte_for_byte(
    shared_data: Path, tmp_path: Path
) -> None:
    old, new = (shared_data / "cann_banks" / release for release in RELEASES)
    for number, (ours, theirs) in enumerate(((old, new), (new, old))):
        result = run(old, ours, theirs, tmp_path / f"out{number}", Policy.KEEP_BEST)
        assert result.conflicts == 0
        assert contents(tmp_path / f"out{number}") == contents(new)


def test_two_releases_hold_the_same_answers_where_both_have_one(
    shared_data: Path, tmp_path: Path
) -> None:
    old, new = (shared_data / "cann_banks" / release for release in RELEASES)
    result = run(None, old, new, tmp_path / "out", Policy.FAIL)
    assert result.conflicts == 0
    assert result.counts[Reason.SAME] == 4148
    assert result.counts[Reason.OURS_CHANGED] == 100
    assert result.counts[Reason.THEIRS_ADDED] == 249
