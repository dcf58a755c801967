"""Compare a merged file that was committed with the one the driver would have left.

A bank file is compared record by record, a side-car or a quarantine line by line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from aoebank.errors import RecordError
from aoebank.formats.faults import find_fault, rank_of
from aoebank.formats.protocol import ParsedFile, find_error
from aoebank.merging.decide import is_same
from aoebank.merging.decisions import Three
from aoebank.model.merge_verdict import MergeFault, MergeProblem

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

    @property
    def sides(self) -> tuple[ParsedFile, ...]:
        """Return the versions that were merged, base included."""
        return tuple(side for side in (self.base, self.ours, self.theirs) if side is not None)


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
    path: str, committed: bytes | None, expected: bytes | None, versions: Three[bytes | None]
) -> Iterator[MergeProblem]:
    """Yield lines that are lost or of no parent, and conflict markers."""
    known = {
        line for data in (versions.base, versions.ours, versions.theirs) for line in _lines(data)
    }
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
    parents = (file.ours, file.theirs)
    if is_contested and any(is_same_answer(file.committed, parent, key) for parent in parents):
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
    """Return whether two files answer a key alike, however the answer is spelled."""
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
