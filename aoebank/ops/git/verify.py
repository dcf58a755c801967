"""Compute merges again and compare with what was committed: hosted merges run no drivers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from aoebank.errors import AoebankError
from aoebank.model.merge_verdict import MergeFault, MergeProblem, MergeVerdict
from aoebank.ops.git.again import MergeAgain, MergePaths
from aoebank.ops.git.verify_records import CommittedFile, compare_lines, compare_records
from aoebank.ops.merge.file import parse_version
from aoebank.ops.merge.lines import is_of_lines
from aoebank.ops.merge.plan import CLEAN, FilePlan, Reason, Three
from aoebank.ops.merge.policy import MergeRules
from aoebank.storage.git.merges import Commit, demand_full_history, list_merges
from aoebank.storage.git.program import find_work_tree

_NO_MERGE = {0: "no merge: has no parent", 1: "no merge: has one parent"}
# a person had no say in these: one side alone changed the key, or a rule of the bank decided
_NOT_CHOSEN = (*CLEAN, Reason.QUARANTINE, Reason.BUILT_IN_FASTER)


def verify_merges(
    revisions: Sequence[str], *, cwd: Path, rules: MergeRules, may_choose: bool = False
) -> tuple[MergeVerdict, ...]:
    """Return what is wrong with the merges of commits and ranges, oldest first.

    Args:
        may_choose: Whether a person may have taken either parent's record of a key that both
            changed, also where the rules tell which one to take.

    Raises:
        HistoryError: a revision is not known, or the history is cut off.
    """
    top = find_work_tree(cwd) or cwd
    demand_full_history(top)
    found = (commit for name in revisions for commit in list_merges(name, cwd=top))
    commits = {commit.name: commit for commit in found}
    return tuple(
        _verify(commit, top=top, rules=rules, may_choose=may_choose) for commit in commits.values()
    )


def _verify(commit: Commit, *, top: Path, rules: MergeRules, may_choose: bool) -> MergeVerdict:
    verdict = MergeVerdict(commit=commit.name, subject=commit.subject)
    if len(commit.parents) != 2:
        octopus = f"octopus merge of {len(commit.parents)} parents: not computed again"
        return replace(verdict, note=_NO_MERGE.get(len(commit.parents), octopus))
    merge = MergeAgain(commit, top=top, rules=rules)
    problems: list[MergeProblem] = []
    files = choices = 0
    for paths in merge.iter_paths():
        found, number = _verify_file(merge, paths, may_choose=may_choose)
        problems += found
        choices += number
        files += 1
    problems += (
        MergeProblem(fault=MergeFault.FILE, path=path, message="bank file is of no parent")
        for path in merge.find_files_of_no_parent()
    )
    return replace(verdict, files=files, choices=choices, problems=tuple(problems))


def _verify_file(
    merge: MergeAgain, paths: MergePaths, *, may_choose: bool
) -> tuple[tuple[MergeProblem, ...], int]:
    """Return what is wrong with one file, and how many of its keys a person decided."""
    path, committed = Path(paths.path), merge.committed.read(paths.path)
    try:
        versions = merge.versions(paths)
        plan, data = _merge_again(merge, paths, versions)
        if is_of_lines(path):
            return tuple(compare_lines(paths.path, committed, data, versions)), 0
        file = CommittedFile(
            path=paths.path,
            committed=parse_version(committed, path),
            expected=parse_version(data, path),
            base=parse_version(versions.base, path),
            ours=parse_version(versions.ours, path),
            theirs=parse_version(versions.theirs, path),
        )
    except AoebankError as error:
        fact = f"cannot be merged again: {error.headline}"
        return (MergeProblem(fault=MergeFault.BROKEN, path=paths.path, message=fact),), 0
    contested = _find_contested(plan, file, may_choose=may_choose)
    if not contested and (committed is None) != (data is None):
        fact = f"bank file is {'back: a parent removed it' if data is None else 'lost'}"
        return (MergeProblem(fault=MergeFault.FILE, path=paths.path, message=fact),), 0
    choices = plan.conflicts if plan else ()
    unsound = frozenset(found.key for found in choices if found.reason is Reason.UNREADABLE)
    found = compare_records(file, contested, frozenset() if may_choose else unsound)
    return tuple(found), len(choices)


def _merge_again(
    merge: MergeAgain, paths: MergePaths, versions: Three[bytes | None]
) -> tuple[FilePlan | None, bytes | None]:
    """Return the merge; git asks no driver, so nothing is decided, where one side is unchanged."""
    if versions.theirs in (versions.ours, versions.base):
        return None, versions.ours
    if versions.ours == versions.base:
        return None, versions.theirs
    merged = merge.merge(paths, versions)
    return merged.plan, merged.data


def _find_contested(
    plan: FilePlan | None, file: CommittedFile, *, may_choose: bool
) -> frozenset[str]:
    """Return the keys a person may decide."""
    if plan is None:
        return frozenset()
    if file.ours is None or file.theirs is None:  # git asks which file to keep
        kept = file.ours or file.theirs
        return frozenset(kept.keys if kept else ())
    return frozenset(
        decision.key
        for decision in plan.decisions
        if decision.conflict or (may_choose and decision.reason not in _NOT_CHOSEN)
    )
