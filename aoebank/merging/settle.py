"""Settle the conflicts of a merge that is long done, from its conflict file alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from aoebank.errors import (
    BankFormatError,
    BankNotFoundError,
    HistoryError,
    UsageError,
)
from aoebank.formats.protocol import ParsedFile, raise_if_broken
from aoebank.formats.registry import find_format
from aoebank.formats.text.splice import splice_raw
from aoebank.merging.context import Exclusions
from aoebank.merging.decisions import SOURCE_OF, Action, Source
from aoebank.merging.document import (
    CONFLICTS,
    iter_decisions,
    point_of,
    read_document,
    serialize_document,
)
from aoebank.model.digest import sha256_of
from aoebank.model.json_value import JsonValue
from aoebank.storage.bank import load_file, read_file
from aoebank.storage.binary_caches import demand_no_binary_cache
from aoebank.storage.git.merges import MergePoint, Standing, find_standing
from aoebank.storage.git.program import find_work_tree
from aoebank.storage.quarantine import find_quarantine_root, load_quarantine
from aoebank.storage.tree import CONFLICT_SUFFIX
from aoebank.storage.writing.journal import demand_whole, file_journal, roll_back
from aoebank.storage.writing.staged import FileWrite, write_files

_Members = Mapping[str, JsonValue]  # of one decision of a conflict file
STALE = {
    Standing.COMMITTED: "commits were made since the merge these conflicts are of",
    Standing.GIVEN_UP: "the merge these conflicts are of was given up",
    Standing.ELSEWHERE: "these conflicts are of another branch, or of another merge",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What settling did.

    Attributes:
        settled: Keys with the action a person chose.
        open: Keys that still wait; the conflict file holds on to them.
    """

    bank: Path
    settled: Mapping[str, Action]
    open: tuple[str, ...]
    written: tuple[Path, ...] = ()


def settle(
    path: Path, *, today: date, all_open: Source | None = None, is_dry_run: bool = False
) -> Settlement:
    """Bring the bank beside a conflict file to what a person chose in it.

    Args:
        all_open: Whose records the conflicts take for which nothing is chosen yet.
        today: Decides which entries of the quarantine hold.

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
    chosen = [(members, action) for members, action in decisions if action is not None]
    rest: list[JsonValue] = [members for members, action in decisions if action is None]
    old = read_file(bank)
    parsed = load_file(bank) if old is not None else _new_file(bank)
    raise_if_broken(parsed)
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
        digest = None if old is None else sha256_of(parsed.data)
        changes.insert(0, FileWrite(path=bank, data=result, old_sha256=digest))
    return replace(settlement, written=write_files(changes, journal=journal, root=bank.parent))


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
    last = max({*range(len(parsed))} - removed, default=-1)
    behind = [(last, raw) for raw in added]
    return splice_raw(parsed, replaced=replaced, removed=removed, added=behind)


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
