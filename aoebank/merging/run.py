"""The verb: merge sides into one file or tree, or tell what a merge would do.

Sides come into the first one after the other, a `Step` each; a step merges file by file, and
nothing is written before the last one has ended.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aoebank.diffing.pair_files import FollowedFile, follow_moves
from aoebank.errors import AoebankError, UsageError
from aoebank.merging.decisions import Decision, FilePlan, Reason, RecordMoves
from aoebank.merging.destination import MergedFile
from aoebank.merging.document import StepDecisions, Verdicts
from aoebank.merging.lines import QUARANTINE
from aoebank.merging.sides import OtherFile, ThreeSides, check_sides
from aoebank.merging.steps import Carried, MergeRequest, Step, merge_sides
from aoebank.storage.sides.side import PathSide, Side, SideKind, StoredSide
from aoebank.storage.writing.journal import demand_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """What was decided, and what was written.

    Attributes:
        counts: Keys by reason, over all files; of several steps the last one with news counts.
        written: Files with a new content, side-cars and conflict files too.
        conflict_files: Those of all open conflicts; one that has them already is not in `written`.
        skipped: Why files were left as ours has them, or as they are where the result goes.
        hidden: Records left out since their key comes several times, by the side they are in.
        followed: Files one side moved and the other one changed.
        moves: How many records change for who has our side.
    """

    base: str | None
    sides: tuple[str, ...]
    steps: tuple[StepDecisions, ...]
    counts: Mapping[Reason, int]
    files: int
    other_files: tuple[OtherFile, ...] = ()
    hidden: Mapping[str, int] = field(default_factory=dict)
    written: tuple[Path, ...] = ()
    conflict_files: tuple[Path, ...] = ()
    skipped: tuple[AoebankError, ...] = ()
    followed: tuple[FollowedFile, ...] = ()
    moves: RecordMoves = field(default_factory=RecordMoves)

    @property
    def conflicts(self) -> int:
        """Return the number of keys left for a person."""
        return sum(decision.conflict for step in self.steps for decision in step.decisions)


def merge(request: MergeRequest) -> MergeResult:
    """Merge and write, all or nothing.

    Raises:
        AoebankError: a side cannot be merged, or the result not be written; nothing is changed.
    """
    ours, *others = request.sides
    base, destination = request.base, request.destination
    _demand_known(request.verdicts, others)
    for side in (*request.sides, base):
        if isinstance(side, PathSide):
            demand_whole(side.path)
    other_files = check_sides(
        request.sides, base, may_differ_in_soc=request.rules.may_differ_in_soc
    )
    tally = _Tally()
    written: tuple[Path, ...] = ()
    for number, theirs in enumerate(others):
        followed: tuple[FollowedFile, ...] = ()
        if base is not None and ours.is_tree and request.rules.follows_renames:
            followed = follow_moves(base, ours, theirs)
        sides = ThreeSides(
            base=base,
            ours=ours,
            theirs=theirs,
            name=destination.path.name if destination else request.sides[0].names()[0],
            followed={file.name: file for file in followed},
        )
        step = Step(request=request, number=number, sides=sides, carried=dict(tally.carried))
        merged = merge_sides(step)
        files = _tallied(step, merged, tally)
        if not step.is_last:
            ours = _fold(step, files)
        elif destination is not None:
            written = destination.write_merged(files)
        else:
            deque(files, maxlen=0)  # decided is all they are to be
    waiting = map(destination.conflict_path, tally.waiting) if destination is not None else ()
    return MergeResult(
        base=base.label if base else None,
        sides=tuple(side.label for side in request.sides),
        steps=tuple(tally.steps),
        counts=tally.counts,
        files=tally.files,
        other_files=other_files,
        hidden=tally.hidden,
        written=written,
        conflict_files=tuple(waiting),
        skipped=tuple(tally.skipped),
        followed=tuple(tally.followed),
        moves=tally.moves,
    )


@dataclass(slots=True)
class _Tally:
    """What the steps gave so far.

    Attributes:
        carried: What is open, and what was found where the result goes, by file.
        waiting: Files of the result with conflicts.
        reasons: Why each key is as it is, by file; of merges of several steps.
    """

    steps: list[StepDecisions] = field(default_factory=list)
    counts: Counter[Reason] = field(default_factory=Counter)
    hidden: Counter[str] = field(default_factory=Counter)
    files: int = 0
    carried: dict[str, Carried] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    followed: list[FollowedFile] = field(default_factory=list)
    skipped: list[AoebankError] = field(default_factory=list)
    moves: RecordMoves = field(default_factory=RecordMoves)
    reasons: dict[str, dict[str, Reason]] = field(default_factory=dict)

    def count_once(self, plan: FilePlan, earlier: str) -> None:
        """Count the keys of a file that no earlier step counted, or counted for less.

        Args:
            earlier: Name of the file in the steps before.
        """
        known = self.reasons.setdefault(plan.name, self.reasons.get(earlier, {}))
        for key, reason in plan.reasons.items():
            before = known.get(key)
            if before is not None and reason in (Reason.SAME, Reason.OURS_CHANGED):
                continue  # ours is what the earlier steps made of it
            self.counts[reason] += 1
            if before is not None:
                self.counts[before] -= 1
            known[key] = reason


def _demand_known(verdicts: Verdicts, sides: Sequence[Side]) -> None:
    labels = [side.label for side in sides]
    unknown = {*verdicts} - {*labels}
    if unknown:
        raise UsageError(
            "decisions are about other sides",
            got=", ".join(sorted(unknown)),
            expected=", ".join(labels),
        )


def _fold(step: Step, files: Iterable[MergedFile]) -> Side:
    """Return the result of a step that is not the last as a side."""
    contents = {
        name: data for file in files for name, data in file.contents.items() if data is not None
    }
    label = f"{step.sides.ours.label} + {step.sides.theirs.label}"
    return StoredSide(
        label=label,
        kind=SideKind.TREE if step.sides.is_tree else SideKind.FILE,
        is_tree=step.sides.is_tree,
        place=label,
        contents={name: name for name in contents},
        read=contents.__getitem__,
    )


def _tallied(step: Step, files: Iterable[MergedFile], tally: _Tally) -> Iterator[MergedFile]:
    """Yield the files of a step, each counted."""
    destination = step.request.destination
    decisions: list[Decision] = []
    tally.followed += step.sides.followed.values()
    for file in files:
        plan = file.plan
        if step.is_one_of_several:
            tally.count_once(plan, step.carried_name(plan.name))
        else:
            tally.counts.update(plan.counts)
        for source, number in plan.hidden.items():
            side = step.sides.of(source)
            tally.hidden[side.label if side else source] += number
        decisions += plan.decisions
        tally.skipped += [file.error] if file.error is not None else []
        tally.carried[plan.name] = Carried(
            conflicts=file.conflicts,
            found=file.found,
            stays=file.stays,
            first=step.first_name(plan.name),
        )
        if step.is_last and plan.name != QUARANTINE:
            tally.files += file.data is not None
            if destination is None or not destination.skips(file):
                tally.moves = tally.moves.plus(plan.moves)
                tally.waiting += [plan.name] if file.conflicts else []
        yield file
    label = step.sides.theirs.label
    tally.steps.append(StepDecisions(theirs=label, decisions=tuple(decisions)))
