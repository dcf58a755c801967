"""Compute merges again and compare with what was committed: hosted merges run no drivers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from aoebank.errors import AoebankError
from aoebank.git.conflicts import (
    ConflictFile,
    find_conflict_files,
    find_conflicts,
    waiting_text,
)
from aoebank.git.re_merge import MergePaths, ReMerge, read_trees
from aoebank.git.verify_records import CommittedFile, compare_lines, compare_records, is_same_answer
from aoebank.merging.decisions import CLEAN, FilePlan, MergeRules, Reason, Three
from aoebank.merging.document import CONFLICT_SUFFIX
from aoebank.merging.file import parse_version
from aoebank.merging.lines import is_of_lines
from aoebank.model.merge_verdict import MergeFault, MergeProblem, MergeVerdict
from aoebank.storage.git.long_lived import TreeReader
from aoebank.storage.git.merges import Commit, demand_full_history, list_merges
from aoebank.storage.git.program import find_work_tree

_NO_MERGE = {0: "no merge: has no parent", 1: "no merge: has one parent"}
# a person had no say in these: one side alone changed the key, or a rule of the bank decided
_NOT_CHOSEN = (*CLEAN, Reason.QUARANTINE, Reason.BUILT_IN_FASTER)


def verify_merges(
    revisions: Sequence[str], *, cwd: Path, rules: MergeRules, may_choose: bool = False
) -> tuple[MergeVerdict, ...]:
    """Return the verdicts on the merges of commits and ranges, oldest first.

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
    trees = read_trees(top)
    verdicts = [
        _verify(commit, trees=trees, rules=rules, may_choose=may_choose)
        for commit in commits.values()
    ]
    return (*verdicts, *_verify_work_tree(top))


def _verify_work_tree(top: Path) -> Iterator[MergeVerdict]:
    """Yield the open conflict files, which a commit of the bank alone leaves behind."""
    problems = [
        _unsettled(found.path, found.file)
        for found in find_conflict_files(top)
        if not found.is_stale
    ]
    if problems:
        yield MergeVerdict(commit="", subject="work tree", problems=tuple(problems))


def _unsettled(path: str, file: ConflictFile) -> MergeProblem:
    message = f"conflicts nobody settled: {waiting_text(file)}"
    return MergeProblem(fault=MergeFault.UNSETTLED, path=path, message=message)


def _verify(
    commit: Commit, *, trees: TreeReader, rules: MergeRules, may_choose: bool
) -> MergeVerdict:
    verdict = MergeVerdict(commit=commit.name, subject=commit.subject)
    if len(commit.parents) != 2:
        octopus = f"octopus merge of {len(commit.parents)} parents: not computed again"
        return replace(verdict, note=_NO_MERGE.get(len(commit.parents), octopus))
    merge = ReMerge(commit, trees=trees, rules=rules)
    problems: list[MergeProblem] = []
    files = choices = ours = 0
    for paths in merge.iter_paths():
        found, (number, of_ours) = _verify_file(merge, paths, may_choose=may_choose)
        problems += found
        choices += number
        ours += of_ours
        files += 1
    problems += (
        MergeProblem(fault=MergeFault.FILE, path=path, message="no parent has this bank file")
        for path in merge.find_files_of_no_parent()
    )
    for path in merge.committed.blobs:
        if path.endswith(CONFLICT_SUFFIX):
            waiting = find_conflicts(merge.committed.read(path) or b"", path)
            problems += [] if waiting is None else [_unsettled(path, waiting)]
    return replace(
        verdict, files=files, choices=choices, choices_ours=ours, problems=tuple(problems)
    )


def _verify_file(
    merge: ReMerge, paths: MergePaths, *, may_choose: bool
) -> tuple[tuple[MergeProblem, ...], tuple[int, int]]:
    """Return the problems of one file, the number of contested keys, and of those that got ours."""
    path, committed = Path(paths.path), merge.committed.read(paths.path)
    try:
        versions = merge.versions(paths)
        plan, data = _merge_again(merge, paths, versions)
        if is_of_lines(path):
            return tuple(compare_lines(paths.path, committed, data, versions)), (0, 0)
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
        return (MergeProblem(fault=MergeFault.BROKEN, path=paths.path, message=fact),), (0, 0)
    contested = _find_contested(plan, file, may_choose=may_choose)
    if not contested and (committed is None) != (data is None):
        fact = "a parent removed this bank file, the merge commit has it"
        if data is not None:
            fact = "a parent has this bank file, the merge commit does not"
        return (MergeProblem(fault=MergeFault.FILE, path=paths.path, message=fact),), (0, 0)
    choices = plan.conflicts if plan else ()
    unsound = frozenset(found.key for found in choices if found.reason is Reason.UNREADABLE)
    problems = compare_records(file, contested, frozenset() if may_choose else unsound)
    of_ours = sum(is_same_answer(file.committed, file.ours, choice.key) for choice in choices)
    return tuple(problems), (len(choices), of_ours)


def _merge_again(
    merge: ReMerge, paths: MergePaths, versions: Three[bytes | None]
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
        if decision.conflict
        or decision.reason is Reason.CONTAINS  # a rule git's settings can switch off
        or (may_choose and decision.reason not in _NOT_CHOSEN)
    )
