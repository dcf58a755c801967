"""The ways back: a bank as a version has it, or without what one version changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from aoebank.errors import BankPathError, HistoryError, shell_word
from aoebank.formats.protocol import ParsedFile, find_error
from aoebank.formats.provenance import SUFFIX, provenance_path
from aoebank.history.changes import (
    RecordMove,
    count_moves,
    file_moves,
    find_quarantine_entry,
    get_record,
    is_same_record,
    iter_moves,
    raw_of,
)
from aoebank.history.edits import (
    EditPlan,
    FileEdit,
    Kept,
    edit_records,
    kept_document,
    load_if_there,
    write_kept,
)
from aoebank.history.log import version_document
from aoebank.history.snapshot import (
    move_document,
    moves_summary,
    write_moves,
)
from aoebank.model.quarantine import Quarantine, QuarantineEntry
from aoebank.model.snapshot import Snapshot
from aoebank.report.output import Report, Text, members, plural
from aoebank.selection import (
    RecordFilter,
    bank_name_of,
    demand_case,
    holds_file,
    holds_whole_file,
    is_whole,
    parts_of,
)
from aoebank.storage.binary_caches import binary_cache_of
from aoebank.storage.history.recording import iter_bank_files
from aoebank.storage.quarantine import load_quarantine
from aoebank.storage.sides.open import open_versions, split_reference
from aoebank.storage.sides.side import PathSide, SideKind, StoredSide
from aoebank.storage.sides.versions import Version

# ---- revert ----


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertConflict:
    """A record that is no longer as the version left it, so it stays as it is."""

    move: RecordMove  # What the version did
    now: bytes | None  # The record as it is; None when it is not there
    # Why the record before the version cannot come back, if that is it.
    quarantine: QuarantineEntry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertPlan(EditPlan):
    """Edits that take back the changes of one version."""

    version: Version  # The version that is taken back
    taken_back: tuple[RecordMove, ...]  # What the version did to the records that are put back
    conflicts: tuple[RevertConflict, ...]
    done: int  # How many records are already as they were before the version

    @property
    def message(self) -> str:
        return f"revert {self.version.label}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertResult:
    """A plan and the snapshots around its edits; `kept` is None for a dry run."""

    plan: RevertPlan
    kept: Kept | None


def plan_revert(
    root: Path, reference: str, wanted: RecordFilter, *, today: date | None = None
) -> RevertPlan:
    """Return the changes that take back a version from the bank as it is now.

    Args:
        reference: `git:COMMIT`, or a snapshot by tag, id, the start of one, `latest~N`.
        wanted: Records to take back; the others stay.
        today: Records in quarantine on this day do not come back; None: all do.

    Raises:
        HistoryError: there is no such version.
        BankFormatError: a file to change is broken.
    """
    source, rest = split_reference(reference)
    history = open_versions(root, source)
    version = history.get(rest)
    parent = history.side(version.parents[0]) if version.parents else history.side("")
    moves = tuple(iter_moves(parent, history.side(version.id), wanted))
    if not moves:
        raise HistoryError(
            "this version changed none of these records", where=version.label, hint="aoebank log"
        )
    quarantine = load_quarantine(root) if today else Quarantine()
    plan = _Planning(root, parent, quarantine, today or date.min)
    for name in dict.fromkeys(move.file for move in moves):
        plan.add_file(name, [move for move in moves if move.file == name])
    return RevertPlan(
        root=root,
        version=version,
        edits=tuple(plan.edits),
        taken_back=tuple(plan.taken_back),
        conflicts=tuple(plan.conflicts),
        done=plan.done,
    )


class _Planning:
    """Sorts the moves of a version into what goes back, what cannot, and what is done."""

    def __init__(self, root: Path, parent: StoredSide, quarantine: Quarantine, today: date) -> None:
        self._root = root
        self._parent = parent
        self._quarantine = quarantine
        self._today = today
        self.edits: list[FileEdit] = []
        self.taken_back: list[RecordMove] = []
        self.conflicts: list[RevertConflict] = []
        self.done = 0

    def add_file(self, name: str, moves: list[RecordMove]) -> None:
        path = self._root / name
        here, old = load_if_there(path), self._parent.load(name)
        clean = [*self._clean(here, old, moves)]
        if not clean:
            return
        self.taken_back += clean
        changes = {move.key: get_record(old, move.key) for move in clean}
        like = here or old
        assert like is not None  # a clean move has its record here, or had it before
        data = here.data if here is not None else None
        result = edit_records(path, here, like, changes)
        is_empty = old is None and not len(like.format.parse(result, path))
        has_side_car = provenance_path(path).exists()  # it does not stay alone
        after = None if is_empty and data is not None and not has_side_car else result
        self.edits.append(FileEdit(name=name, before=data, after=after))

    def _clean(
        self, here: ParsedFile | None, old: ParsedFile | None, moves: list[RecordMove]
    ) -> Iterator[RecordMove]:
        for move in moves:
            now = raw_of(here, move.key)
            entry = find_quarantine_entry(old, move.key, self._quarantine, self._today)
            if is_same_record(now, move.before):
                self.done += 1
            elif entry is None and is_same_record(now, move.after):
                yield move
            else:
                self.conflicts.append(RevertConflict(move=move, now=now, quarantine=entry))


# ---- restore ----


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptOut:
    """A record that did not come back, and the entry that says why."""

    file: str
    key: str
    entry: QuarantineEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan(EditPlan):
    """Edits that bring a bank back to a version."""

    version: Version  # Where the way leads to
    # Records that are not the same; none for files that only change their spelling.
    moves: tuple[RecordMove, ...]
    # Files that stay because the version does not know their soc_version.
    unknown: tuple[str, ...] = ()
    # Records of the version that do not come back, being in quarantine.
    kept_out: tuple[KeptOut, ...] = ()

    @property
    def message(self) -> str:
        return f"restore {self.version.label}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreResult:
    """A plan and the snapshots around its edits; `kept` is None for a dry run."""

    plan: RestorePlan
    kept: Kept | None


def plan_restore(
    root: Path, reference: str, wanted: RecordFilter, *, today: date | None = None
) -> RestorePlan:
    """Return the changes that bring the bank back to a version.

    Args:
        reference: `git:REV`, or a snapshot by tag, id, the start of one, `latest~N`.
        wanted: With patterns for keys, single records are put back; else whole files with
            their side-cars, byte for byte.
        today: Records in quarantine on this day stay out; None: everything comes back.

    Raises:
        HistoryError: there is no such version, or nothing of what is wanted in it or here.
        BankFormatError: a file is broken and only some of its records are wanted, or the
            quarantine is broken.
    """
    source, rest = split_reference(reference)
    history = open_versions(root, source)
    version = history.get(rest)
    side = history.side(version.id)
    demand_case(wanted, side.names())
    known, unknown = _known(root, version, side, wanted)
    if not known and not unknown and not is_whole(wanted):
        raise HistoryError(
            "nothing of what was asked for is in this version or in the bank",
            where=version.label,
            hint=f"aoebank ls {shell_word(root)}",
        )
    quarantine = load_quarantine(root) if today else Quarantine()
    guard = _Guard(quarantine, today or date.min, side)
    edits: list[FileEdit] = []
    moves: list[RecordMove] = []
    for name in known:
        before, after = load_if_there(root / name), guard.clean(name, side.load(name))
        moves += file_moves(name, before, after, wanted)
        if not holds_whole_file(wanted, name):
            edits += _record_edit(root, name, before, after, moves)
    edits += _file_edits(root, side, wanted, frozenset(unknown), guard)
    return RestorePlan(
        root=root,
        version=version,
        edits=tuple(edits),
        moves=tuple(moves),
        unknown=unknown,
        kept_out=tuple(kept for kept in guard.kept_out if wanted.holds_key(kept.key)),
    )


class _Guard:
    """Takes records in quarantine out of the files of a version."""

    def __init__(self, quarantine: Quarantine, today: date, side: StoredSide) -> None:
        self._stored = side.contents.keys()
        self._quarantine = quarantine
        self._today = today
        self.kept_out: list[KeptOut] = []
        self.cleaned: dict[str, bytes] = {}

    def clean(self, name: str, parsed: ParsedFile | None) -> ParsedFile | None:
        """Return a file of a version as it may come back."""
        if parsed is None or not len(self._quarantine):
            return parsed
        found = [
            KeptOut(file=name, key=key, entry=entry)
            for key in dict.fromkeys(parsed.keys)
            if (entry := find_quarantine_entry(parsed, key, self._quarantine, self._today))
        ]
        if not found:
            return parsed
        if _binary_cache_name(name) in self._stored:
            raise BankPathError(
                "a record of this file is in quarantine, and only its tuner can take it out of "
                "the binary twin",
                path=Path(name),
                got=found[0].key,
                hint="--with-quarantined brings the file back as it was",
            )
        if find_error(parsed) is not None:
            return parsed
        data = parsed.format.serialize(parsed, dict.fromkeys(kept.key for kept in found))
        if data == parsed.data:
            return parsed
        self.kept_out += found
        self.cleaned[name] = data
        return parsed.format.parse(data, parsed.path)


def _known(
    root: Path, version: Version, side: StoredSide, wanted: RecordFilter
) -> tuple[list[str], tuple[str, ...]]:
    """Return the bank files in question, and the files of targets the version does not know."""
    here = PathSide(label=str(root), path=root).names() if root.is_dir() else ()
    names = [name for name in sorted({*here, *side.names()}) if holds_file(wanted, name)]
    snapshot = version.snapshot
    if snapshot is None or snapshot.scope is None:
        return names, ()
    unknown = tuple(name for name in names if not _is_covered(snapshot, name))
    return [name for name in names if name not in unknown], unknown


def _is_covered(snapshot: Snapshot, name: str) -> bool:
    """True if a snapshot of some targets looked at a file; at one of any target all of them do."""
    parts = parts_of(name)
    return parts.has_target_in_rows or any(map(snapshot.covers, parts.soc_versions))


def _record_edit(
    root: Path,
    name: str,
    before: ParsedFile | None,
    after: ParsedFile | None,
    moves: list[RecordMove],
) -> Iterator[FileEdit]:
    """Yield the edit of a file of which only some records are put back."""
    changes = {move.key: get_record(after, move.key) for move in moves if move.file == name}
    like = before or after
    if not changes or like is None:
        return
    data = before.data if before is not None else None
    result = edit_records(root / name, before, like, changes)
    if result != data:
        yield FileEdit(name=name, before=data, after=result)


def _file_edits(
    root: Path, side: StoredSide, wanted: RecordFilter, unknown: frozenset[str], guard: _Guard
) -> Iterator[FileEdit]:
    """Yield the edits of files that are put back whole, side-cars and twins included."""

    def is_meant(name: str) -> bool:
        return holds_whole_file(wanted, name) and bank_name_of(name) not in unknown

    before = {file.name: file.data for file in iter_bank_files(root, is_meant)}
    then = [name for name in _stored_files(side) if is_meant(name)]
    for name in sorted({*before, *then}):
        after = guard.cleaned.get(name)
        if after is None and name in then:
            after = side.read_bytes(name)
        if before.get(name) != after:
            yield FileEdit(name=name, before=before.get(name), after=after)


def _stored_files(side: StoredSide) -> list[str]:
    """Return the bank files of a version, their side-cars and their binary twins."""
    if side.kind is SideKind.SNAPSHOT:
        return [*side.contents]
    banks = side.names()
    companions = {*banks, *(f"{name}{SUFFIX}" for name in banks)}
    companions |= {
        binary_cache for name in banks if (binary_cache := _binary_cache_name(name)) is not None
    }
    return [name for name in side.contents if name in companions]


def _binary_cache_name(name: str) -> str | None:
    binary_cache = binary_cache_of(Path(name))
    return binary_cache.as_posix() if binary_cache else None


# ---- what is printed ----


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport(Report):
    """The records and files that are as the version has them now."""

    result: RestoreResult
    schema: str = "aoebank.restore/1"

    def document(self) -> Mapping[str, object]:
        plan = self.result.plan
        return {
            **_plan_document(plan, self.result.kept),
            "unknown": list(plan.unknown),
            "records": [move_document(move) for move in plan.moves],
            "kept_out": [
                {"file": record.file, "key": record.key, "reason": record.entry.reason}
                for record in plan.kept_out
            ],
        }

    def write(self, text: Text) -> None:
        plan, kept = self.result.plan, self.result.kept
        write_moves(text, plan.moves)
        for name in plan.unknown:
            text.line(f"{name}: stays, {plan.version.label} does not know its soc_version")
        for record in plan.kept_out:
            text.line(
                ("in quarantine: ", "red"),
                f"{record.file}: {record.key}: {record.entry.reason}, ",
                "so it does not come back",
            )
        if not plan.edits:
            text.line(f"already as {plan.version.label} has it")
            return
        _write_files(text, plan.edits, is_dry_run=kept is None)
        write_kept(text, kept)
        moves = moves_summary(count_moves(iter(plan.moves)))
        verb = "would restore" if kept is None else "restored"
        text.line(f"{verb} {plan.version.label}: {plural(len(plan.edits), 'file')}, {moves}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertReport(Report):
    """The records that are as they were before the version, and the conflicts."""

    result: RevertResult
    schema: str = "aoebank.revert/1"

    @property
    def exit_code(self) -> int:
        """Return 1 if a record could not be put back."""
        return 1 if self.result.plan.conflicts else 0

    def document(self) -> Mapping[str, object]:
        plan = self.result.plan
        return {
            **_plan_document(plan, self.result.kept),
            "already": plan.done,
            "records": [move_document(move, is_back=True) for move in plan.taken_back],
            "conflicts": [_conflict(conflict) for conflict in plan.conflicts],
        }

    def write(self, text: Text) -> None:
        plan, kept = self.result.plan, self.result.kept
        write_moves(text, plan.taken_back, is_back=True)
        for conflict in plan.conflicts:
            text.line(
                ("conflict: ", "bold red"),
                f"{conflict.move.file}: {conflict.move.key}: ",
                f"{_why(conflict)}, so it stays",
            )
        _write_files(text, plan.edits, is_dry_run=kept is None)
        write_kept(text, kept)
        verb = "would take back" if kept is None else "took back"
        done = f", {plan.done} were as before already" if plan.done else ""
        text.line(
            f"{verb} {plural(len(plan.taken_back), 'record')} of {plan.version.label}{done}, "
            f"{plural(len(plan.conflicts), 'conflict')}"
        )


def _plan_document(plan: RestorePlan | RevertPlan, kept: Kept | None) -> dict[str, object]:
    return {
        "root": str(plan.root),
        "version": version_document(plan.version),
        "dry_run": kept is None,
        "snapshots": kept_document(kept),
        "files": [{"name": edit.name, "what": _what(edit)} for edit in plan.edits],
    }


def _what(edit: FileEdit) -> str:
    if edit.before is None:
        return "created"
    return "removed" if edit.after is None else "changed"


def _write_files(text: Text, edits: Sequence[FileEdit], *, is_dry_run: bool) -> None:
    for edit in edits:
        text.line(f"{'would be ' if is_dry_run else ''}{_what(edit)}: {edit.name}")


def _why(conflict: RevertConflict) -> str:
    if conflict.quarantine is not None:
        return f"what was before it is in quarantine ({conflict.quarantine.reason})"
    if conflict.now is None:
        return "it was removed since"
    return "it came back since" if conflict.move.after is None else "it was changed since"


def _conflict(conflict: RevertConflict) -> dict[str, object]:
    texts = {"before": conflict.move.before, "version": conflict.move.after, "now": conflict.now}
    return {
        **members(conflict.move, "file key"),
        "reason": _why(conflict),
        **{
            name: None if data is None else data.decode("utf-8", errors="replace")
            for name, data in texts.items()
        },
    }
