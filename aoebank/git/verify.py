"""Compute merges again and compare with what was committed: hosted merges run no drivers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aoebank.errors import AoebankError, RecordError
from aoebank.formats.faults import find_fault, rank_of
from aoebank.formats.protocol import ParsedFile, find_error
from aoebank.git.check import (
    ConflictFile,
    find_conflict_files,
    find_conflicts,
    waiting_text,
)
from aoebank.git.re_merge import MergePaths, OctopusMerge, ReMerge, read_trees
from aoebank.merging.decisions import CLEAN, FilePlan, MergeRules, Reason, Three
from aoebank.merging.key_versions import is_same
from aoebank.merging.merge_bytes import is_of_lines, parse_version
from aoebank.model.codes import Severity
from aoebank.model.merge_verdict import MergeFault, MergeProblem, MergeVerdict
from aoebank.report.output import Report, Text, members, plural
from aoebank.storage.git.long_lived import CommitTree, TreeReader
from aoebank.storage.git.merges import Commit, demand_full_history, list_merges
from aoebank.storage.git.program import find_work_tree
from aoebank.storage.tree import CONFLICT_SUFFIX
from aoebank.validation.exchange import annotation

_NAME_LENGTH = 10
_WAY_OUT = "merge again where `aoebank git install` was run, or mend these records and commit that"


_MARKERS = "AB104"
_SHOWN = 80
_MARKER_STARTS = (b"<<<<<<< ", b">>>>>>> ", b"||||||| ")
_FACTS = {
    MergeFault.LOST: "a parent has this record, the merge commit does not",
    MergeFault.RETURNED: "a parent removed this record, the merge commit has it",
    MergeFault.INVENTED: "the merge commit has this record as no parent has it",
    MergeFault.DIFFERENT: "the merge commit has this record as it was, or of the wrong parent",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedFile(Three[ParsedFile | None]):
    """One bank file of a merge: what was committed, what should have been, where both are from."""

    path: str
    committed: ParsedFile | None
    expected: ParsedFile | None
    further: tuple[ParsedFile | None, ...] = ()

    @property
    def parents(self) -> tuple[ParsedFile | None, ...]:
        """Return the versions of all parents; parents after the second are `further`."""
        return (self.ours, self.theirs, *self.further)

    @property
    def sides(self) -> tuple[ParsedFile, ...]:
        """Return the versions that were merged, base included."""
        return tuple(side for side in (self.base, *self.parents) if side is not None)


def compare_records(
    file: CommittedFile, contested: frozenset[str], unsound: frozenset[str] = frozenset()
) -> Iterator[MergeProblem]:
    """Yield each record that is not as it should be, in the order of the committed file.

    Args:
        contested: Keys a person may have decided: any answer of a parent will do.
        unsound: Those among them where a record with an error must not be the answer.
    """
    if file.committed is not None:
        broken = _find_broken(file)
        if broken is not None:
            yield broken
            return
        yield from _duplicates(file, file.committed)
    keys = dict.fromkeys(
        [
            *(file.committed.keys if file.committed else ()),
            *(file.expected.keys if file.expected else ()),
        ]
    )
    for key in dict.fromkeys([*keys, *sorted(unsound)]):
        if key in unsound:
            problem = _compare_unsound(file, key)
        else:
            problem = _compare(file, key, is_contested=key in contested)
        if problem is not None:
            yield problem


def compare_lines(
    path: str,
    committed: bytes | None,
    expected: bytes | None,
    versions: Three[bytes | None],
    further: Sequence[bytes | None] = (),
) -> Iterator[MergeProblem]:
    """Yield lines that are lost or of no parent, and conflict markers."""
    sides = (versions.base, versions.ours, versions.theirs, *further)
    known = {line for data in sides for line in _lines(data)}
    lines = _lines(committed)
    for number, line in enumerate(lines, 1):
        if line.startswith(_MARKER_STARTS):
            yield _line_problem(MergeFault.MARKERS, path, "merge conflict marker left", number)
        elif line and line not in known and line != b"=======":
            yield _line_problem(
                MergeFault.INVENTED, path, f"no parent has this line: {_text(line)}", number
            )
    left = {*lines}
    for line in dict.fromkeys(_lines(expected)):
        if line and line not in left:
            yield _line_problem(
                MergeFault.LOST,
                path,
                f"a parent has this line, the merge commit does not: {_text(line)}",
            )


def _find_broken(file: CommittedFile) -> MergeProblem | None:
    assert file.committed is not None
    marks = [finding for finding in file.committed.findings if finding.code == _MARKERS]
    finding = marks[0] if marks else find_error(file.committed)
    if finding is None:
        return None
    return MergeProblem(
        fault=MergeFault.MARKERS if marks else MergeFault.BROKEN,
        path=file.path,
        message=finding.message,
        line=finding.location.line,
    )


def _duplicates(file: CommittedFile, committed: ParsedFile) -> Iterator[MergeProblem]:
    known = [Counter(side.keys) for side in file.sides]
    for key, number in Counter(committed.keys).items():
        before = max((counts[key] for counts in known), default=0)
        if number > max(before, 1):
            yield MergeProblem(
                fault=MergeFault.DUPLICATE,
                path=file.path,
                key=key,
                line=_line(committed, key),
                message=f"key is there {number} times, in no parent more than {max(before, 1)}",
            )


def _compare(file: CommittedFile, key: str, *, is_contested: bool) -> MergeProblem | None:
    """Return the problem of one key.

    | committed | expected | of a parent or the base | verdict |
    |---|---|---|---|
    | no | yes | | lost |
    | yes | same | | |
    | yes | | no | invented |
    | yes | no | yes | returned |
    | yes | another | yes | different |
    """
    if is_same_answer(file.committed, file.expected, key):
        return None
    if is_contested and any(is_same_answer(file.committed, parent, key) for parent in file.parents):
        return None
    is_there = _has(file.committed, key)
    is_known = any(is_same_answer(file.committed, side, key) for side in file.sides)
    fault = MergeFault.DIFFERENT
    if not is_there:
        fault = MergeFault.LOST
    elif not is_known:
        fault = MergeFault.INVENTED
    elif not _has(file.expected, key):
        fault = MergeFault.RETURNED
    line = _line(file.committed, key) if is_there and file.committed else 0
    return MergeProblem(fault=fault, path=file.path, key=key, line=line, message=_FACTS[fault])


def _compare_unsound(file: CommittedFile, key: str) -> MergeProblem | None:
    """Return the problem of a key one of whose records has an error.

    It must not have taken the place of a better one, nor come in as a new one.
    """
    ranks = {
        number: rank_of(find_fault(side, place))
        for number, side in enumerate(file.sides)
        if (place := side.find(key)) is not None
    }
    best = min(ranks.values(), default=0)
    if not _has(file.committed, key):
        if best or not ranks:
            return None
        fact = f"{_FACTS[MergeFault.LOST]}; what took its place has an error"
        return MergeProblem(fault=MergeFault.LOST, path=file.path, key=key, message=fact)
    is_alone = best > 0 and len(ranks) == 1
    good = [file.sides[number] for number, rank in ranks.items() if rank == best]
    if not is_alone and any(is_same_answer(file.committed, side, key) for side in good):
        return None
    fact = "record has an error" if is_alone else "record has an error, another version has none"
    line = _line(file.committed, key) if file.committed else 0
    return MergeProblem(fault=MergeFault.BROKEN, path=file.path, key=key, line=line, message=fact)


def _has(file: ParsedFile | None, key: str) -> bool:
    return file is not None and file.find(key) is not None


def is_same_answer(a: ParsedFile | None, b: ParsedFile | None, key: str) -> bool:
    """True if two files have the same answer for a key, however it is spelled."""
    left = a.find(key) if a else None
    right = b.find(key) if b else None
    if a is None or b is None or left is None or right is None:
        return left is right is None
    if a.raw(left) == b.raw(right):
        return True
    try:
        return is_same(a.format.record(a, left), b.format.record(b, right))
    except RecordError:
        return False


def _line(file: ParsedFile, key: str) -> int:
    number = file.find(key)
    return 0 if number is None else file.lines.position(file.starts[number])[0]


def _lines(data: bytes | None) -> list[bytes]:
    return [line.strip() for line in (data or b"").split(b"\n")]


def _text(line: bytes) -> str:
    text = line.decode("utf-8", errors="replace")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _line_problem(fault: MergeFault, path: str, message: str, line: int = 0) -> MergeProblem:
    return MergeProblem(fault=fault, path=path, message=message, line=line)


# ---- merges ----


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
    if len(commit.parents) < 2:
        return replace(verdict, note=_NO_MERGE[len(commit.parents)])
    if len(commit.parents) > 2:
        octopus = OctopusMerge(commit, trees=trees, rules=rules)
        names = octopus.iter_paths()
        found = [_verify_octopus_file(octopus, path, may_choose=may_choose) for path in names]
        problems = [*_conflict_files(octopus.committed)]
    else:
        merge = ReMerge(commit, trees=trees, rules=rules)
        found = [_verify_file(merge, paths, may_choose=may_choose) for paths in merge.iter_paths()]
        problems = [
            *(_file_problem(path, _OF_NO_PARENT) for path in merge.find_files_of_no_parent()),
            *(
                _file_problem(path, f"no reader looks here, but where a parent has it: {old}")
                for path, old in merge.find_misplaced()
            ),
            *_conflict_files(merge.committed),
        ]
    return replace(
        verdict,
        files=len(found),
        choices=sum(number for _, (number, _) in found),
        choices_ours=sum(number for _, (_, number) in found),
        problems=(*(problem for of_file, _ in found for problem in of_file), *problems),
    )


_OF_NO_PARENT = "no parent has this bank file"
_Verified = tuple[tuple[MergeProblem, ...], tuple[int, int]]
"""Problems of a file, the number of its contested keys, and how many of them got ours."""


def _file_problem(path: str, message: str) -> MergeProblem:
    return MergeProblem(fault=MergeFault.FILE, path=path, message=message)


def _conflict_files(committed: CommitTree) -> Iterator[MergeProblem]:
    """Yield the conflict files that were committed with a merge."""
    for path in committed.blobs:
        if path.endswith(CONFLICT_SUFFIX):
            waiting = find_conflicts(committed.read(path) or b"", path)
            if waiting is not None:
                yield _unsettled(path, waiting)


def _verify_octopus_file(octopus: OctopusMerge, name: str, *, may_choose: bool) -> _Verified:
    path, committed = Path(name), octopus.committed.read(name)
    ours, theirs, *further = (parent.read(name) for parent in octopus.parents)
    versions = Three(base=octopus.base(name), ours=ours, theirs=theirs)
    try:
        plans, data = octopus.merge(name)
        if is_of_lines(path):
            return tuple(compare_lines(name, committed, data, versions, further)), (0, 0)
        file = _committed_file(name, committed, data, versions, further)
    except AoebankError as error:
        return (_not_merged(name, error),), (0, 0)
    if committed is None and data is None:
        return (), (0, 0)
    if data is None and not any(parent is not None for parent in (ours, theirs, *further)):
        return (_file_problem(name, _OF_NO_PARENT),), (0, 0)
    return _compare_file(file, plans, may_choose=may_choose)


def _committed_file(
    name: str,
    committed: bytes | None,
    expected: bytes | None,
    versions: Three[bytes | None],
    further: Sequence[bytes | None] = (),
) -> CommittedFile:
    """Return the versions of a file, parsed.

    Raises:
        BankFormatError: one is no bank.
    """
    path = Path(name)
    return CommittedFile(
        path=name,
        committed=parse_version(committed, path),
        expected=parse_version(expected, path),
        base=parse_version(versions.base, path),
        ours=parse_version(versions.ours, path),
        theirs=parse_version(versions.theirs, path),
        further=tuple(parse_version(data, path) for data in further),
    )


def _not_merged(path: str, error: AoebankError) -> MergeProblem:
    fact = f"cannot be merged again: {error.headline}"
    return MergeProblem(fault=MergeFault.BROKEN, path=path, message=fact)


def _verify_file(merge: ReMerge, paths: MergePaths, *, may_choose: bool) -> _Verified:
    path, committed = Path(paths.path), merge.committed.read(paths.path)
    try:
        versions = merge.versions(paths)
        plan, data = _merge_again(merge, paths, versions)
        if is_of_lines(path):
            return tuple(compare_lines(paths.path, committed, data, versions)), (0, 0)
        file = _committed_file(paths.path, committed, data, versions)
    except AoebankError as error:
        return (_not_merged(paths.path, error),), (0, 0)
    return _compare_file(file, () if plan is None else (plan,), may_choose=may_choose)


def _compare_file(file: CommittedFile, plans: Sequence[FilePlan], *, may_choose: bool) -> _Verified:
    contested = frozenset[str]().union(
        *(_find_contested(plan, file, may_choose=may_choose) for plan in plans)
    )
    if not contested and (file.committed is None) != (file.expected is None):
        fact = "a parent removed this bank file, the merge commit has it"
        if file.expected is not None:
            fact = "a parent has this bank file, the merge commit does not"
        return (_file_problem(file.path, fact),), (0, 0)
    choices = [choice for plan in plans for choice in plan.conflicts]
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


def _find_contested(plan: FilePlan, file: CommittedFile, *, may_choose: bool) -> frozenset[str]:
    """Return the keys a person may decide."""
    if file.base is not None and None in file.parents:  # git asks which file to keep
        kept = [parent for parent in file.parents if parent is not None]
        return frozenset(key for parent in kept for key in parent.keys)
    return frozenset(
        decision.key
        for decision in plan.decisions
        if decision.conflict
        or decision.reason is Reason.CONTAINS  # a rule git's settings can switch off
        or (may_choose and decision.reason not in _NOT_CHOSEN)
    )


# ---- what is printed ----


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyMergeReport(Report):
    """A line per merge, and one per record that is not as it should be."""

    verdicts: Sequence[MergeVerdict]
    schema: str = "aoebank.git-verify-merge/1"

    @property
    def exit_code(self) -> int:
        """Return 1 if a merge is not what it should be."""
        return 1 if any(verdict.problems for verdict in self.verdicts) else 0

    def document(self) -> Mapping[str, object]:
        return {"merges": [_document(verdict) for verdict in self.verdicts]}

    def write(self, text: Text) -> None:
        for verdict in self.verdicts:
            name = verdict.commit[:_NAME_LENGTH]
            text.line((name, "bold"), f" {verdict.subject}" if name else verdict.subject)
            for problem in verdict.problems:
                text.line("  ", (problem.fault, "red"), f" {_place(problem)}: {problem.message}")
            if verdict.commit:
                text.line(f"  {_summary(verdict)}")
            if verdict.commit and verdict.problems:
                text.line(("  way out: ", "dim"), _WAY_OUT)
        if not self.verdicts:
            text.line("no merge in this range")


def github_annotations(report: VerifyMergeReport) -> str:
    """Return the problems as workflow commands of GitHub, a line each."""
    return "".join(f"{line}\n" for line in _annotations(report.verdicts))


def _annotations(verdicts: Sequence[MergeVerdict]) -> Iterator[str]:
    for verdict in verdicts:
        name = verdict.commit[:_NAME_LENGTH]
        where = f"in merge {name}" if name else f"in the {verdict.subject}"
        if verdict.note:
            yield annotation(
                Severity.NOTE, f"{where}: {verdict.note}", title="aoebank verify-merge"
            )
        for problem in verdict.problems:
            key = f"{problem.key}: " if problem.key else ""
            yield annotation(
                Severity.ERROR,
                f"{key}{problem.message} ({where})",
                path=problem.path,
                line=problem.line,
                title=f"aoebank verify-merge: {problem.fault}",
            )


def _place(problem: MergeProblem) -> str:
    line = f":{problem.line}" if problem.line else ""
    return f"{problem.path}{line}{f' {problem.key}' if problem.key else ''}"


def _summary(verdict: MergeVerdict) -> str:
    if verdict.note:
        return verdict.note
    files = plural(verdict.files, "bank file")
    words = [f"{files} as merging the parents gives {'it' if verdict.files == 1 else 'them'}"]
    if verdict.problems:
        number = plural(len(verdict.problems), "difference")
        words = [f"{files} compared with what merging the parents gives: {number}"]
    if not verdict.files and not verdict.problems:
        words = ["no bank file differs between the parents, or from them"]
    if verdict.choices:
        words.append(f"{plural(verdict.choices, 'record')} in conflict, {_choices(verdict)}")
    return "; ".join(words)


def _choices(verdict: MergeVerdict) -> str:
    """Return the outcome of the contested keys, in words."""
    others = verdict.choices - verdict.choices_ours
    if not others:
        return "all as the first parent has them, which is also what git is left with"
    if verdict.choices_ours:
        return f"{others} of them decided against the first parent"
    return "all decided against the first parent"


def _document(verdict: MergeVerdict) -> Mapping[str, object]:
    return {
        **members(verdict, "commit subject note files choices choices_ours"),
        "problems": [
            members(problem, "fault path line key message") for problem in verdict.problems
        ],
    }
