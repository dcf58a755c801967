"""Compute merges again and compare with what was committed: hosted merges run no drivers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from aoebank.errors import AoebankError
from aoebank.formats.protocol import ParsedFile
from aoebank.model.merge_verdict import MergeFault, MergeProblem, MergeVerdict
from aoebank.ops.git.again import MergeAgain, Place
from aoebank.ops.git.merge_versions import (
    Merged,
    RawVersions,
    is_quarantine,
    is_side_car,
    parse_version,
)
from aoebank.ops.git.verify_lines import compare_lines
from aoebank.ops.git.verify_records import CommittedFile, compare_records
from aoebank.ops.merge.plan import CLEAN, Reason
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
    commits = {commit.name: commit for each in revisions for commit in list_merges(each, cwd=top)}
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
    for place in merge.iter_places():
        check = _PlaceCheck(merge, place, may_choose=may_choose)
        problems += check.iter_problems()
        choices += check.choices
        files += 1
    problems += (
        MergeProblem(fault=MergeFault.FILE, path=path, message="bank file is of no parent")
        for path in merge.find_strangers()
    )
    return replace(verdict, files=files, choices=choices, problems=tuple(problems))


class _PlaceCheck:
    """The check of one file.

    Attributes:
        choices: Keys a person decided.
    """

    def __init__(self, merge: MergeAgain, place: Place, *, may_choose: bool) -> None:
        self.choices = 0
        self._path = Path(place.path)
        self._name = place.path
        self._merge = merge
        self._place = place
        self._may_choose = may_choose
        self._committed = merge.committed.read(place.path)

    def iter_problems(self) -> Iterator[MergeProblem]:
        """Yield what is wrong with the file."""
        try:
            versions = self._merge.versions(self._place)
            merged = self._expected(versions)
            base, ours, theirs = map(self._parse, (versions.base, versions.ours, versions.theirs))
            committed, expected = self._parse(self._committed), self._parse(merged.data)
        except AoebankError as error:
            yield self._problem(MergeFault.BROKEN, f"cannot be merged again: {error.headline}")
            return
        if is_side_car(self._path) or is_quarantine(self._path):
            yield from compare_lines(self._name, self._committed, merged.data, versions)
            return
        contested = self._contested(merged, ours, theirs)
        if not contested and (self._committed is None) != (merged.data is None):
            fact = "back: a parent removed it" if merged.data is None else "lost"
            yield self._problem(MergeFault.FILE, f"bank file is {fact}")
            return
        file = CommittedFile(
            path=self._name,
            committed=committed,
            expected=expected,
            base=base,
            ours=ours,
            theirs=theirs,
            contested=contested,
        )
        self.choices = len(merged.plan.conflicts) if merged.plan else 0
        yield from compare_records(file)

    def _expected(self, versions: RawVersions) -> Merged:
        """Return the merge; git asks no driver where only one side changed the file."""
        if versions.theirs in (versions.ours, versions.base):
            return Merged(data=versions.ours)
        if versions.ours == versions.base:
            return Merged(data=versions.theirs)
        return self._merge.merge(self._place, versions)

    def _contested(
        self, merged: Merged, ours: ParsedFile | None, theirs: ParsedFile | None
    ) -> frozenset[str]:
        """Return the keys a person may decide."""
        if merged.plan is None:
            return frozenset()
        if ours is None or theirs is None:  # git asks which file to keep
            kept = ours or theirs
            return frozenset(kept.keys if kept else ())
        return frozenset(
            each.key
            for each in merged.plan.decisions
            if each.conflict or (self._may_choose and each.reason not in _NOT_CHOSEN)
        )

    def _parse(self, data: bytes | None) -> ParsedFile | None:
        if is_side_car(self._path) or is_quarantine(self._path):
            return None
        return parse_version(data, self._path)

    def _problem(self, fault: MergeFault, message: str) -> MergeProblem:
        return MergeProblem(fault=fault, path=self._name, message=message)
