"""Settle the conflicts of a merge that is long done, from its conflict file alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
from aoebank.formats.text.raw_splice import splice_raw
from aoebank.model.digest import sha256_of
from aoebank.model.json_value import JsonValue
from aoebank.ops.merge.document import (
    CONFLICT_SUFFIX,
    CONFLICTS,
    iter_decisions,
    read_document,
    write_document,
)
from aoebank.ops.merge.guards import Exclusions
from aoebank.ops.merge.plan import Action, Source
from aoebank.storage.bank import load_file, read_file
from aoebank.storage.quarantine import find_quarantine_root, load_quarantine
from aoebank.storage.twins import demand_no_twin
from aoebank.storage.writing.staged import staged_changes

_SOURCES = {
    Action.KEEP_OURS: Source.OURS,
    Action.TAKE_THEIRS: Source.THEIRS,
    Action.TAKE_BASE: Source.BASE,
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


def is_conflict_file(path: Path) -> bool:
    """Return whether a path is one of a conflict file."""
    return path.name.endswith(CONFLICT_SUFFIX)


def settle(path: Path, *, today: date, is_dry_run: bool = False) -> Settlement:
    """Bring the bank beside a conflict file to what a person chose in it.

    Args:
        today: Decides which entries of the quarantine hold.

    Raises:
        BankNotFoundError: the conflict file or its bank is not there.
        BankFormatError: it is no conflict file, or not as it was written.
        HistoryError: the bank has other records by now.
    """
    bank = path.with_name(path.name.removesuffix(CONFLICT_SUFFIX))
    data = read_file(path)
    if data is None:
        raise BankNotFoundError("no such file", path=path, expected="a conflict file")
    document = read_document(data, path, [CONFLICTS])
    decisions = [*iter_decisions(document, path)]
    chosen = [(each, action) for each, action in decisions if action is not None]
    rest: list[JsonValue] = [each for each, action in decisions if action is None]
    old = read_file(bank)
    parsed = load_file(bank) if old is not None else _new_file(bank)
    raise_if_broken(parsed)
    result = _Edits(parsed=parsed, path=path).run(chosen)
    _demand_no_quarantined(parsed, result, today)
    settlement = Settlement(
        bank=bank,
        settled={str(each["key"]): action for each, action in chosen},
        open=tuple(str(each["key"]) for each, action in decisions if action is None),
    )
    if is_dry_run or not chosen:
        return settlement
    with staged_changes() as changes:
        if result != parsed.data:
            digest = None if old is None else sha256_of(parsed.data)
            changes.write(bank, result, old_sha256=digest)
        if rest:
            changes.write(
                path, write_document({**document, "decisions": rest}), old_sha256=sha256_of(data)
            )
        else:
            changes.remove(path, old_sha256=sha256_of(data))
        written = changes.commit()
    return Settlement(bank=bank, settled=settlement.settled, open=settlement.open, written=written)


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


@dataclass(slots=True)
class _Edits:
    """The edits of one bank file."""

    parsed: ParsedFile
    path: Path

    def run(self, chosen: list[tuple[Mapping[str, JsonValue], Action]]) -> bytes:
        parsed = self.parsed
        replaced: dict[int, bytes] = {}
        removed: set[int] = set()
        added: list[tuple[int, bytes]] = []
        for members, action in chosen:
            number = parsed.find(str(members["key"]))
            raw = self._record(members, action)
            self._demand_unchanged(members, number)
            if number is None:
                added += [] if raw is None else [(len(parsed) - 1, raw)]
            elif raw is None:
                removed |= self._all_of(members)
            elif raw != parsed.raw(number):
                replaced[number] = raw
                removed |= self._all_of(members) - {number}
        if removed:
            kept = [number for number in range(len(parsed)) if number not in removed]
            added = [(kept[-1] if kept else -1, raw) for _, raw in added]
        if replaced or removed or added:
            demand_no_twin(parsed.path, parsed.format)
        return splice_raw(parsed, replaced=replaced, removed=removed, added=added)

    def _all_of(self, members: Mapping[str, JsonValue]) -> set[int]:
        """Return the positions of a key, those no reader uses too."""
        return {each for each, key in enumerate(self.parsed.keys) if key == members["key"]}

    def _record(self, members: Mapping[str, JsonValue], action: Action) -> bytes | None:
        if action is Action.REMOVE:
            return None
        if action is Action.KEEP_BOTH:
            ours, theirs = self._raw(members, Source.OURS), self._raw(members, Source.THEIRS)
            if ours is None or theirs is None or not self.parsed.format.keeps_alternatives:
                raise UsageError(
                    "cannot keep both",
                    where=str(members["key"]),
                    got=action,
                    expected="another action",
                )
            return self.parsed.format.unite(ours, theirs)
        if action is Action.TAKE_BASE and members.get(Source.BASE) is None:
            raise UsageError(
                "the base has no such record",
                where=str(members["key"]),
                got=action,
                expected="another action",
            )
        return self._raw(members, _SOURCES[action])

    def _raw(self, members: Mapping[str, JsonValue], source: Source) -> bytes | None:
        version = members.get(source)
        if not isinstance(version, Mapping):
            return None
        raw = str(version["record"]).encode("utf-8", errors="replace")
        if sha256_of(raw) != version["sha256"]:
            raise BankFormatError(
                f"record of {source} was edited",
                path=self.path,
                got=str(members["key"]),
                expected="only actions to be edited",
                hint="change the record in the bank itself",
            )
        return raw

    def _demand_unchanged(self, members: Mapping[str, JsonValue], number: int | None) -> None:
        found = None
        if number is not None:
            found = sha256_of(self.parsed.raw(number))
        if found != members.get("written_sha256"):
            raise HistoryError(
                "record is not what the merge wrote",
                where=f"{self.parsed.path}",
                got=str(members["key"]),
                expected="a bank nobody changed since",
                hint="take the conflict out of the file if it is settled already",
            )
