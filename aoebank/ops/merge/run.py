"""The verb: merge sides into one file or tree, or tell what a merge would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from aoebank.errors import UsageError
from aoebank.formats.provenance import SUFFIX
from aoebank.ops.merge.conflicts import conflict_path
from aoebank.ops.merge.destination import Destination
from aoebank.ops.merge.exclusions import Exclusions
from aoebank.ops.merge.guards import demand_one_target
from aoebank.ops.merge.inputs import Trio, demand_banks, iter_strays
from aoebank.ops.merge.plan import Decision, Reason
from aoebank.ops.merge.policy import MergeRules
from aoebank.ops.merge.saved import SavedVerdicts, StepDecisions
from aoebank.ops.merge.steps import QUARANTINE_NAME, Found, MergedFile, Step
from aoebank.storage.sides.side import Side, SideKind, StoredSide
from aoebank.storage.writing.staged import StagedChanges, staged_changes


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRequest:
    """What to merge, how, and where to.

    Attributes:
        sides: Two or more; the first is ours, the others come into it one after the other.
        destination: None to write nothing.
        says_all: Whether clean decisions are wanted as values, not only as counts.
    """

    sides: tuple[Side, ...]
    base: Side | None = None
    rules: MergeRules = field(default_factory=MergeRules)
    exclusions: Exclusions = field(default_factory=Exclusions)
    destination: Destination | None = None
    verdicts: SavedVerdicts = field(default_factory=SavedVerdicts)
    says_all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """Something in a tree that is no bank file; a merge leaves it where it is."""

    side: str
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """What was decided, and what was written.

    Attributes:
        counts: Keys by reason, over all files and steps.
        written: Files with a new content, side-cars and conflict files too.
        conflict_files: The conflict files among them.
        hidden: Records no reader uses, by the side they are in.
    """

    base: str | None
    sides: tuple[str, ...]
    steps: tuple[StepDecisions, ...]
    counts: Mapping[Reason, int]
    files: int
    strays: tuple[Stray, ...] = ()
    hidden: Mapping[str, int] = field(default_factory=dict)
    written: tuple[Path, ...] = ()
    conflict_files: tuple[Path, ...] = ()

    @property
    def conflicts(self) -> int:
        """Return how many keys are left for a person."""
        return sum(each.conflict for step in self.steps for each in step.decisions)


def merge(request: MergeRequest) -> MergeResult:
    """Merge and write, all or nothing.

    Raises:
        AoebankError: a side cannot be merged, or the result not be written; nothing is changed.
    """
    sides, base = request.sides, request.base
    if len(sides) < 2:
        raise UsageError("needs two sides or more", where="merge", got=f"{len(sides)}")
    demand_banks([*sides, *([base] if base else [])])
    if not request.rules.may_differ_in_soc:
        demand_one_target(sides)
    unknown = {*request.verdicts.by_step} - {each.label for each in sides[1:]}
    if unknown:
        raise UsageError(
            "decisions are about other sides",
            got=", ".join(sorted(unknown)),
            expected=", ".join(each.label for each in sides[1:]),
        )
    return _Merge(request).run()


@dataclass(slots=True)
class _Merge:
    """One run: folds the sides from the left, writes what the last step gives."""

    request: MergeRequest
    _steps: list[StepDecisions] = field(default_factory=list)
    _counts: Counter[Reason] = field(default_factory=Counter)
    _hidden: Counter[str] = field(default_factory=Counter)
    _conflict_files: list[Path] = field(default_factory=list)
    _open: dict[str, tuple[Decision, ...]] = field(default_factory=dict)
    _found: dict[str, Found] = field(default_factory=dict)
    _found_quarantine: str | None = None
    _files: int = 0

    def run(self) -> MergeResult:
        request = self.request
        strays = tuple(self._strays())  # before there are new files
        ours, *others = request.sides
        for number, theirs in enumerate(others[:-1]):
            ours = self._fold(number, ours, theirs)
        step = self._step(len(others) - 1, ours, others[-1])
        with ExitStack() as stack:
            changes = stack.enter_context(staged_changes()) if request.destination else None
            self._finish(step, others[-1], changes)
            written = changes.commit() if changes is not None else ()
        return MergeResult(
            base=request.base.label if request.base else None,
            sides=tuple(each.label for each in request.sides),
            steps=tuple(self._steps),
            counts=self._counts,
            files=self._files,
            strays=strays,
            hidden=self._hidden,
            written=written,
            conflict_files=tuple(self._conflict_files),
        )

    def _step(self, number: int, ours: Side, theirs: Side) -> Step:
        request = self.request
        destination = request.destination
        name = destination.path.name if destination else request.sides[0].names()[0]
        return Step(
            target=destination.version(number) if destination else None,
            trio=Trio(base=request.base, ours=ours, theirs=theirs, name=name),
            rules=request.rules,
            exclusions=request.exclusions,
            says_all=request.says_all,
            verdicts=request.verdicts.by_step.get(theirs.label, {}),
        )

    def _fold(self, number: int, ours: Side, theirs: Side) -> Side:
        """Return the result of a step that is not the last as a side."""
        contents: dict[str, bytes] = {}
        step = self._step(number, ours, theirs)
        for file in self._remember(step, theirs):
            name = file.plan.name
            self._open[name] = (*self._open.get(name, ()), *file.conflicts)
            stored = {Path(name): file.data, Path(name + SUFFIX): file.side_car}
            stored |= {twin: file.twin for twin in [file.twin_of(Path(name))] if twin}
            contents |= {path.as_posix(): data for path, data in stored.items() if data is not None}
        quarantine = self._quarantine(step)
        if quarantine is not None:
            contents[QUARANTINE_NAME] = quarantine
        kind = SideKind.TREE if ours.is_tree else SideKind.FILE
        return _side_of(f"{ours.label} + {theirs.label}", kind, contents)

    def _finish(self, step: Step, theirs: Side, changes: StagedChanges | None) -> None:
        destination = self.request.destination
        for file in self._remember(step, theirs):
            self._files += file.data is not None
            earlier = self._open.pop(file.plan.name, ())
            file = replace(file, conflicts=(*earlier, *file.conflicts))
            if destination is None or changes is None:
                continue
            destination.stage(file, self._found.get(file.plan.name) or Found(), changes)
            if file.conflicts:
                place = destination.place(file.plan.name)
                self._conflict_files.append(conflict_path(place))
        quarantine = self._quarantine(step)
        if destination is not None and changes is not None:
            destination.stage_quarantine(quarantine, self._found_quarantine, changes)

    def _quarantine(self, step: Step) -> bytes | None:
        data, found = step.quarantine()
        self._found_quarantine = self._found_quarantine or found
        return data

    def _remember(self, step: Step, theirs: Side) -> Iterator[MergedFile]:
        decisions: list[Decision] = []
        for file in step.run():
            self._counts.update(file.plan.counts)
            for source, number in file.plan.hidden.items():
                side = step.trio.of(source)
                self._hidden[side.label if side else source] += number
            decisions += file.plan.decisions
            if file.found is not None:
                self._found[file.plan.name] = file.found
            yield file
        self._steps.append(StepDecisions(theirs=theirs.label, decisions=tuple(decisions)))

    def _strays(self) -> Iterator[Stray]:
        for side in self.request.sides:
            for entry in iter_strays(side):
                yield Stray(side=side.label, path=entry.path)


def _side_of(label: str, kind: SideKind, contents: Mapping[str, bytes]) -> StoredSide:
    """Return bytes in memory as a side."""
    return StoredSide(
        label=label,
        kind=kind,
        is_tree=kind is SideKind.TREE,
        place=label,
        contents={name: name for name in contents},
        read=contents.__getitem__,
    )


def decide(request: MergeRequest) -> Sequence[StepDecisions]:
    """Return what a merge would decide; nothing is written."""
    return merge(replace(request, destination=None, says_all=True)).steps
