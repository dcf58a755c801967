"""Decisions as JSON a person edits: what `--decisions` saves, and the conflict file.

The conflict file lies beside the bank file it is about and holds what nobody decided yet: the
records of both sides and of the base, so nothing is lost even where the sides are gone, as after
a merge by git. `aoebank merge --apply FILE` reads both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, TypeAlias

from aoebank.diffing.fields import (
    FieldChange,
    diff_fields,
    diff_steps,
    field_value,
    plain,
    told_changes,
)
from aoebank.errors import (
    BankFormatError,
    BankNotFoundError,
    BankPathError,
    HistoryError,
    UsageError,
    shell_word,
)
from aoebank.formats.protocol import ParsedFile, raise_if_broken
from aoebank.formats.registry import find_format
from aoebank.formats.text.json_text import JsonTextError, dumps, loads
from aoebank.formats.text.splice import splice_checked
from aoebank.merging.decisions import (
    ACTION_OF,
    SOURCE_OF,
    Action,
    Decision,
    KeptRecord,
    PersonalVerdict,
    Source,
    Verdicts,
)
from aoebank.merging.versions import Exclusions
from aoebank.model.digest import sha256_of
from aoebank.model.json_value import JsonValue
from aoebank.report.output import cut
from aoebank.storage.bank import load_file, read_file
from aoebank.storage.binary_caches import demand_no_binary_cache
from aoebank.storage.git.merges import MergePoint, Standing, find_standing
from aoebank.storage.git.program import find_work_tree
from aoebank.storage.quarantine import find_quarantine_root, load_quarantine
from aoebank.storage.tree import CONFLICT_SUFFIX
from aoebank.storage.writing.journal import demand_whole, file_journal, roll_back
from aoebank.storage.writing.staged import FileWrite, write_files

OPEN = "conflict"  # the action of a decision nobody made yet
DECISIONS = "aoebank.merge-decisions/1"
CONFLICTS = "aoebank.merge-conflicts/1"
_ENCODER = json.JSONEncoder(indent=2, ensure_ascii=False, default=dict)
ASIDE_GLOB = f"*.json{CONFLICT_SUFFIX}.old-*"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDecisions:
    """The decisions of merging one side."""

    theirs: str  # How a person wrote that side
    decisions: tuple[Decision, ...]


def serialize_decisions(steps: Sequence[StepDecisions], *, base: str | None, ours: str) -> bytes:
    """Return decisions as a document a person can edit."""
    decisions: list[JsonValue] = [
        {"theirs_side": step.theirs, **decision_document(decision)}
        for step in steps
        for decision in step.decisions
    ]
    choices = ", ".join(Action)
    return serialize_document(
        {
            "schema": DECISIONS,
            "base_side": base,
            "ours_side": ours,
            "how_to_edit": f"An action is one of {choices}; {OPEN!r} is one nobody chose yet. Then "
            "run the merge of the same sides with --apply THIS_FILE.",
            "decisions": decisions,
        }
    )


def conflict_path(path: Path) -> Path:
    """Return the conflict file of a bank file.

    No reader of CANN takes it for a bank: the name does not end in `.json`.
    """
    return path.with_name(path.name + CONFLICT_SUFFIX)


def aside_path(place: Path, old: bytes) -> Path:
    """Return the path an older conflict file with a person's choices is moved to."""
    return place.with_name(f"{place.name}.old-{(sha256_of(old) or '')[:8]}")


def conflict_document(
    conflicts: Iterable[Decision],
    written: Mapping[str, str | None] | None = None,
    *,
    point: MergePoint | None = None,
) -> dict[str, Any]:
    """Return conflicts as a document a person can read and edit; without members for none.

    Args:
        written: SHA-256 of the record the bank has for a key now, None if it has none; for
            keys that do not have what ours had.
        point: The merge they are of, in a git work tree.
    """
    found = [_conflict(decision, written or {}) for decision in conflicts]
    choices = ", ".join(Action)
    document: dict[str, Any] = {
        "schema": CONFLICTS,
        "how_to_settle": f"Replace each action {OPEN!r} by one of {choices} (those that apply), "
        "then run: aoebank merge --apply THIS_FILE. Until then the bank has the record of ours.",
    }
    if point is not None:
        document["git"] = {"head": point.head, "theirs": point.theirs}
    return {**document, "decisions": found} if found else {}


def _conflict(decision: Decision, written: Mapping[str, str | None]) -> dict[str, JsonValue]:
    members = decision_document(decision)
    ours = decision.ours.sha256 if decision.ours else None
    return {**members, "written_sha256": written.get(decision.key, ours)}


def decision_document(decision: Decision) -> dict[str, JsonValue]:
    """Return a decision as members; each record with its bytes and their digest."""
    action = OPEN if decision.conflict else str(decision.action)
    members: dict[str, JsonValue] = {
        "file": decision.file,
        "key": decision.key,
        "soc_version": decision.soc_version,
        "op_type": decision.op_type,
        "action": action,
        "reason": str(decision.reason),
    }
    if decision.workload:
        members["workload"] = decision.workload
    if decision.note:
        members["note"] = decision.note
    if (
        decision.ours
        and decision.theirs
        and None
        not in (
            decision.ours.strategy,
            decision.theirs.strategy,
        )
    ):
        members["differs"] = [
            change.pointer
            for change in diff_fields(decision.ours.strategy, decision.theirs.strategy)
        ]
    records = (decision.base, decision.ours, decision.theirs)
    for source, record in zip(Source, records, strict=True):
        members[source] = None if record is None else _record_document(record)
    if decision.left_out:
        members["left_out"] = [
            {"side": str(kept.side), **_record_document(kept.record)} for kept in decision.left_out
        ]
    return members


def _record_document(record: KeptRecord) -> dict[str, JsonValue]:
    members: dict[str, JsonValue] = {"cost_us": plain(record.cost_us), "sha256": record.sha256}
    if record.words:
        members["words"] = list(record.words)
    return {**members, "record": record.raw.decode("utf-8", errors="replace")}


def serialize_document(members: Mapping[str, JsonValue]) -> bytes:
    """Return a document as a person edits it: indented, one member per line."""
    text = _ENCODER.encode(members) + "\n"
    return text.encode("utf-8", errors="backslashreplace")  # JSON spells a lone surrogate so too


def read_document(data: bytes, path: Path, schemas: Iterable[str]) -> Mapping[str, JsonValue]:
    """Return the members of a document of one of these schemas.

    Raises:
        BankFormatError: it is no such document.
    """
    try:
        value = loads(data.decode("utf-8"))
    except (UnicodeDecodeError, JsonTextError) as error:
        raise BankFormatError(
            "is no JSON document", path=path, got=str(error)[:80], expected="saved decisions"
        ) from error
    schema = value.get("schema") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or schema not in tuple(schemas):
        raise BankFormatError(
            "is no list of decisions",
            path=path,
            got=f"schema {dumps(schema)}",
            expected=" or ".join(schemas),
        )
    return value


def iter_decisions(
    document: Mapping[str, JsonValue], path: Path, *, all_open: Source | None = None
) -> Iterable[tuple[Mapping[str, JsonValue], Action | None]]:
    """Yield the decisions of a document with their actions, None for one still open.

    Args:
        all_open: Whose records those still open take, which may be none.

    Raises:
        BankFormatError: a decision is none.
    """
    decisions = document.get("decisions")
    if not isinstance(decisions, list):
        raise BankFormatError("decisions is no list", path=path, expected="a list of decisions")
    for number, decision in enumerate(decisions):
        problem = _problem(decision)
        if problem:
            raise BankFormatError(
                f"decision {number} {problem}",
                path=path,
                expected="what --decisions saved, only its actions edited",
            )
        action = decision["action"]
        chosen = ACTION_OF[all_open] if all_open is not None else None
        yield decision, chosen if action == OPEN else Action(action)


def _problem(value: JsonValue) -> str:
    if not isinstance(value, Mapping):
        return "is no object"
    for name in ("file", "key", "action"):
        if not isinstance(value.get(name), str):
            return f"has no {name}"
    if value["action"] not in (OPEN, *Action):
        return f"has an unknown action {value['action']}"
    for source in Source:
        version = value.get(source)
        if version is None:
            continue
        if not isinstance(version, Mapping) or not all(
            isinstance(version.get(name), str) for name in ("sha256", "record")
        ):
            return f"has a bad {source}"
    return ""


# ---- what a person decided ----


def load_verdicts(path: Path, *, all_open: Source | None = None) -> Verdicts:
    """Read decisions a person may have edited.

    Args:
        all_open: Whose records the conflicts still open take.

    Raises:
        BankNotFoundError: there is no such file.
        BankFormatError: it is no list of decisions, or one of them is none.
    """
    data = read_file(path)
    if data is None:
        raise BankNotFoundError("no such file", path=path, expected="saved decisions")
    document = read_document(data, path, [DECISIONS])
    steps: dict[str, dict[str, dict[str, PersonalVerdict]]] = {}
    for members, action in iter_decisions(document, path, all_open=all_open):
        side, file, key = (str(members.get(name)) for name in ("theirs_side", "file", "key"))
        verdicts = steps.setdefault(side, {}).setdefault(file, {})
        if key in verdicts:
            raise BankFormatError("decision comes twice", path=path, got=key)
        verdicts[key] = PersonalVerdict(action=action, sha256=_digests(members))
    return steps


def _digests(members: Mapping[str, JsonValue]) -> dict[Source, str]:
    found = {}
    for source in Source:
        version = members.get(source)
        if isinstance(version, Mapping):
            found[source] = str(version["sha256"])
    return found


# ---- conflict files that are there ----


def point_of(document: Mapping[str, JsonValue]) -> MergePoint | None:
    """Return the merge a conflict document is of; None if it does not say."""
    members = document.get("git")
    if not isinstance(members, Mapping) or not isinstance(members.get("head"), str):
        return None
    theirs = members.get("theirs")
    return MergePoint(head=str(members["head"]), theirs=theirs if isinstance(theirs, str) else None)


def keep_choices(
    old: bytes, new: Mapping[str, Any], path: Path
) -> tuple[Mapping[str, Any], int, bool]:
    """Return a conflict document with what a person chose in an older one of the same file.

    Args:
        old: The conflict file at `path`.
        new: As `conflict_document` gives it; without members if there is no conflict any more.

    Returns:
        The document; how many choices it took over; whether that is all there was to keep: not
        so where the old one cannot be read, or chose about records that are no conflict now.
    """
    try:
        chosen = {
            _identity(members): action
            for members, action in iter_decisions(read_document(old, path, [CONFLICTS]), path)
            if action is not None
        }
    except BankFormatError:
        return new, 0, not old.strip()
    if not chosen or not new:
        return new, 0, not chosen
    # equal digests of all three records: the same conflict, so the same choice
    decisions = []
    taken = 0
    for members in new["decisions"]:
        choice = chosen.get(_identity(members))
        taken += choice is not None
        decisions.append({**members, "action": str(choice)} if choice else members)
    return {**new, "decisions": decisions}, taken, taken == len(chosen)


def conflict_file(
    conflicts: Iterable[Decision],
    written: Mapping[str, str | None],
    old: bytes | None,
    place: Path,
    point: MergePoint | None,
) -> bytes | None:
    """Return the conflict file to write; None if the one there has these very conflicts.

    Args:
        written: As `conflict_document` has it; so is `point`.
        old: The conflict file there, some of its conflicts decided by now perhaps.
        place: Where it is.

    Raises:
        BankPathError: the conflicts there are of another merge.
    """
    document = conflict_document(conflicts, written, point=point)
    if old is None:
        return serialize_document(document)
    kept, _, is_all = keep_choices(old, document, place)
    if serialize_document(kept) == old and is_all:
        return None
    raise BankPathError(
        "conflicts of an earlier merge are not settled yet",
        path=place,
        hint=f"settle them: aoebank merge --apply {shell_word(place)}",
    )


def _identity(members: Mapping[str, JsonValue]) -> tuple[str, ...]:
    versions = (members.get(source) for source in Source)
    digests = (
        str(version["sha256"]) if isinstance(version, Mapping) else "" for version in versions
    )
    return str(members["key"]), *digests


_SHOWN = 4
_WIDTH = 40  # of one value


def conflict_lines(decision: Decision) -> Iterator[str]:
    """Yield the workload, then each field of the strategies that differs, the first few."""
    if decision.workload:
        is_named = not decision.op_type or decision.op_type in decision.workload
        yield decision.workload if is_named else f"{decision.op_type} {decision.workload}"
    left, right = decision.ours, decision.theirs
    words = ("ours", "theirs")
    if left is None or right is None:  # removed on one side: what the other one did to it
        words = ("base", "ours" if right is None else "theirs")
        left, right = decision.base, left or right
    changes = _changes(left, right)
    for change in changes[:_SHOWN]:
        a, b = (cut(field_value(change, of_b=of_b), _WIDTH) for of_b in (False, True))
        yield f"{change.pointer or 'strategy'}: {words[0]} {a}, {words[1]} {b}"
    if len(changes) > _SHOWN:
        yield f"and {len(changes) - _SHOWN} more that differ"


def _changes(a: KeptRecord | None, b: KeptRecord | None) -> tuple[FieldChange, ...]:
    if a is None or b is None or a.strategy is None or b.strategy is None:
        return ()
    return told_changes(diff_fields(a.strategy, b.strategy), diff_steps(a.strategy, b.strategy))


_Members = Mapping[str, JsonValue]  # of one decision of a conflict file
STALE = {
    Standing.COMMITTED: "commits were made since the merge these conflicts are of",
    Standing.GIVEN_UP: "the merge these conflicts are of was given up",
    Standing.ELSEWHERE: "these conflicts are of another branch, or of another merge",
}


Choose: TypeAlias = Callable[
    [
        ParsedFile,
        Sequence[tuple[_Members, Action | None]],
        Callable[[_Members, Action], object],
    ],
    list[tuple[_Members, Action | None]],
]
"""Decides about a bank's conflicts; the last argument raises where an action cannot be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """Result of settling conflicts."""

    bank: Path
    settled: Mapping[str, Action]  # Keys with the action a person chose
    open: tuple[str, ...]  # Keys that still wait; the conflict file holds on to them
    written: tuple[Path, ...] = ()


def settle(
    path: Path,
    *,
    today: date,
    all_open: Source | None = None,
    is_dry_run: bool = False,
    choose: Choose | None = None,
) -> Settlement:
    """Bring the bank beside a conflict file to what a person chose in it.

    Args:
        all_open: Whose records the conflicts take for which nothing is chosen yet.
        today: Decides which entries of the quarantine hold.
        choose: Decides what is still open then.

    Raises:
        BankNotFoundError: the conflict file or its bank is not there.
        BankFormatError: it is no conflict file, or not as it was written.
        HistoryError: the bank has other records by now, or the work tree is at another merge.
    """
    bank = path.with_name(path.name.removesuffix(CONFLICT_SUFFIX))
    demand_whole(bank)
    journal = file_journal(bank, "settle")
    if not is_dry_run:
        roll_back(journal)
    data = read_file(path)
    if data is None:
        raise BankNotFoundError("no such file", path=path, expected="a conflict file")
    document = read_document(data, path, [CONFLICTS])
    decisions = [*iter_decisions(document, path, all_open=all_open)]
    _demand_current(path, point_of(document))
    parsed, is_new = bank_beside(path)
    if choose is not None:
        decisions = choose(parsed, decisions, lambda one, do: _apply(parsed, [(one, do)], path))
    chosen = [(members, action) for members, action in decisions if action is not None]
    rest: list[JsonValue] = [members for members, action in decisions if action is None]
    result = _apply(parsed, chosen, path)
    _demand_no_quarantined(parsed, result, today)
    settlement = Settlement(
        bank=bank,
        settled={str(members["key"]): action for members, action in chosen},
        open=tuple(str(members["key"]) for members, action in decisions if action is None),
    )
    if is_dry_run or not chosen:
        return settlement
    waiting = serialize_document({**document, "decisions": rest}) if rest else None
    changes = [FileWrite(path=path, data=waiting, old_sha256=sha256_of(data))]
    if result != parsed.data:
        digest = None if is_new else sha256_of(parsed.data)
        changes.insert(0, FileWrite(path=bank, data=result, old_sha256=digest))
    return replace(settlement, written=write_files(changes, journal=journal, root=bank.parent))


def bank_beside(path: Path) -> tuple[ParsedFile, bool]:
    """Return the bank a conflict file is about, and whether it has yet to be made.

    Raises:
        BankNotFoundError: it is not there, and its name does not say its format.
        BankFormatError: it is broken.
    """
    bank = path.with_name(path.name.removesuffix(CONFLICT_SUFFIX))
    is_new = read_file(bank) is None
    parsed = _new_file(bank) if is_new else load_file(bank)
    raise_if_broken(parsed)
    return parsed, is_new


def _demand_current(path: Path, point: MergePoint | None) -> None:
    """Raise `HistoryError` if the work tree is not where a conflict file was made.

    Args:
        path: Of the conflict file.
    """
    top = find_work_tree(path) if point is not None else None
    if point is None or top is None:
        return
    bank = path.resolve().relative_to(top.resolve()).as_posix().removesuffix(CONFLICT_SUFFIX)
    standing = find_standing(point, bank, top=top)
    if standing is not Standing.CURRENT:
        raise HistoryError(
            STALE[standing],
            where=str(path),
            expected=f"the work tree as the merge left it, at commit {point.head[:10]}",
            hint="merge again; or choose in the bank itself, and remove this file",
        )


def _demand_no_quarantined(before: ParsedFile, result: bytes, today: date) -> None:
    """Raise if a choice would bring a known-bad record back."""
    root = find_quarantine_root(before.path)
    if root is None or result == before.data:
        return
    exclusions = Exclusions(quarantines=(load_quarantine(root),), today=today)
    after = before.format.parse(result, before.path)
    # records that were in the bank before are not this choice's doing
    old = {before.raw(number) for number in exclusions.find_quarantined(before)}
    for number, reason in exclusions.find_quarantined(after).items():
        if after.raw(number) not in old:
            raise UsageError(
                "record is under quarantine",
                where=after.keys[number],
                got=reason,
                expected="another action",
            )


def _new_file(bank: Path) -> ParsedFile:
    """Return the file a merge left out, since ours had deleted it."""
    known = find_format(bank)
    if known is None:
        raise BankNotFoundError("no such bank file", path=bank, hint="restore it first")
    return known.parse(known.empty, bank)


def _apply(parsed: ParsedFile, chosen: Sequence[tuple[_Members, Action]], path: Path) -> bytes:
    """Return the bank with what a person chose in the conflict file at `path`."""
    replaced: dict[int, bytes] = {}
    changed: set[str] = set()
    added: list[bytes] = []
    for members, action in chosen:
        key = str(members["key"])
        number = parsed.find(key)
        raw = _record(parsed, members, action, path)
        _demand_unchanged(parsed, members, number)
        if number is None:
            added += [] if raw is None else [raw]
        elif raw != parsed.raw(number):
            changed.add(key)
            replaced |= {} if raw is None else {number: raw}
    # records of a key that no reader uses go with the one they hide behind
    removed = {number for number, key in enumerate(parsed.keys) if key in changed} - {*replaced}
    if replaced or removed or added:
        demand_no_binary_cache(parsed.path, parsed.format)
    # a conflict file does not tell where a record stood, so added records come last
    last = max({*range(len(parsed))} - removed, default=-1)
    behind = [(last, raw) for raw in added]
    return splice_checked(parsed, replaced=replaced, removed=removed, added=behind).data


def _record(parsed: ParsedFile, members: _Members, action: Action, path: Path) -> bytes | None:
    """Return the record an action gives to its key, None for none."""
    if action is Action.REMOVE:
        return None
    if action is Action.TAKE_BASE and members.get(Source.BASE) is None:
        raise _impossible("the base has no such record", members, action)
    if action is not Action.KEEP_BOTH:
        return _raw(members, SOURCE_OF[action], path)
    ours, theirs = _raw(members, Source.OURS, path), _raw(members, Source.THEIRS, path)
    if ours is None or theirs is None or not parsed.format.keeps_alternatives:
        raise _impossible("cannot keep both", members, action)
    return parsed.format.unite(ours, theirs)


def _raw(members: _Members, source: Source, path: Path) -> bytes | None:
    """Return the record of one version as the conflict file has it."""
    version = members.get(source)
    if not isinstance(version, Mapping):
        return None
    raw = str(version["record"]).encode("utf-8", errors="replace")
    if sha256_of(raw) != version["sha256"]:
        raise BankFormatError(
            f"record of {source} was edited",
            path=path,
            got=str(members["key"]),
            expected="only actions to be edited",
            hint="change the record in the bank itself",
        )
    return raw


def _impossible(problem: str, members: _Members, action: Action) -> UsageError:
    return UsageError(problem, where=str(members["key"]), got=action, expected="another action")


def _demand_unchanged(parsed: ParsedFile, members: _Members, number: int | None) -> None:
    found = None if number is None else sha256_of(parsed.raw(number))
    if found != members.get("written_sha256"):
        raise HistoryError(
            "record is not what the merge wrote",
            where=f"{parsed.path}",
            got=str(members["key"]),
            expected="a bank nobody changed since",
            hint="take the conflict out of the file if it is settled already",
        )
