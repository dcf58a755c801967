"""Open conflicts, walked through by a person at a terminal."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from aoebank.diffing.fields import diff_fields, diff_steps, field_value, told_changes
from aoebank.errors import AoebankError, BankPathError, RecordError, UsageError
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.text.splice import splice_raw
from aoebank.formats.words import words_of, workload_line
from aoebank.merging.decisions import REASON_WORDS, SOURCE_OF, Action, Source
from aoebank.model.digest import sha256_of
from aoebank.model.record import Record
from aoebank.model.resolution import Query, Tier
from aoebank.model.timing import NOISE_RATIO, is_beyond
from aoebank.report.output import ColorMode, Text
from aoebank.storage.bank import load_file
from aoebank.storage.readers.environment import current_environment, find_answer, surroundings
from aoebank.storage.readers.rules import RULES

BUILT_IN = "built-in"
SIDES = (*Source, BUILT_IN)
Members = Mapping[str, Any]  # of one decision of a conflict file
Chosen = tuple[Members, Action | None]
Check = Callable[[Members, Action], object]
"""Raises `AoebankError` where an action cannot be carried out."""
_KEYS = {
    "o": Action.KEEP_OURS,
    "t": Action.TAKE_THEIRS,
    "b": Action.TAKE_BASE,
    "i": Action.REMOVE,  # so that the built-in record answers
    "k": Action.KEEP_BOTH,
    "r": Action.REMOVE,
}
_ACTIONS = {
    Action.KEEP_OURS: "ours",
    Action.TAKE_THEIRS: "theirs",
    Action.TAKE_BASE: "the base",
    Action.KEEP_BOTH: "both",
    Action.REMOVE: "none: removed, so that a built-in record answers",
}
_HELP = "o ours, t theirs, b base, i built-in, k both, r remove, e edit, s skip, u undo, q quit"
_REASONS = {str(reason): words.removeprefix("conflict: ") for reason, words in REASON_WORDS.items()}
_END = "q"  # also of a terminal that is closed: what was decided is kept


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictView:
    """A conflict as people look at it: the records of all sides, beside each other."""

    key: str
    computes: str  # The workload in words; what a merge wrote down where no record can be read
    reason: str
    records: Mapping[str, Record | None]  # By side; None where there is none that can be read
    is_there: Mapping[str, bool]  # Whether a side has a record, be it readable or not
    keeps_both: bool  # Whether its format can keep the answers of both

    @property
    def sides(self) -> tuple[str, ...]:
        """The sides with a record, and those that are always named."""
        named = (Source.OURS, Source.THEIRS)
        return tuple(side for side in SIDES if self.is_there[side] or side in named)

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield a row for the times, one for the answers in short, one for each difference."""
        yield ("time", *map(self._time, self.sides))
        yield ("answer", *map(self._words, self.sides))
        yield from self._differences()

    def choices(self) -> Iterator[tuple[Action, str]]:
        """Yield the actions there are records for, each in words."""
        for action, words in _ACTIONS.items():
            source = SOURCE_OF.get(action)
            is_one = source is None or self.is_there[source] or source is not Source.BASE
            if is_one and (action is not Action.KEEP_BOTH or self.keeps_both):
                is_none = source is not None and not self.is_there[source]
                yield action, f"{words} (no record)" if is_none else words

    def _time(self, side: str) -> str:
        record = self.records[side]
        if record is None or record.cost_us is None:
            return "-"
        ours = self.records[Source.OURS]
        text = f"{record.cost_us:g} us"
        if side == Source.OURS or ours is None or ours.cost_us is None:
            return text
        slow, fast = max(record.cost_us, ours.cost_us), min(record.cost_us, ours.cost_us)
        if not is_beyond(fast, slow, NOISE_RATIO):
            return f"{text}, as ours within {NOISE_RATIO:.0%} noise"
        return f"{text}, {ours.cost_us / record.cost_us:.2f}x as fast as ours"

    def _words(self, side: str) -> str:
        record = self.records[side]
        if record is None:
            return "cannot be read" if self.is_there[side] else "no record"
        return words_of(record).strategy_line

    def _differences(self) -> Iterator[tuple[str, ...]]:
        """Yield the members in which a side is not as the first one that can be read."""
        known = [side for side in self.sides if self.records[side] is not None]
        cells: dict[str, dict[str, str]] = {}
        first = self.records[known[0]] if known else None
        for side in known[1:]:
            record = self.records[side]
            assert first is not None
            assert record is not None
            fields = diff_fields(first.strategy, record.strategy)
            for change in told_changes(fields, diff_steps(first.strategy, record.strategy)):
                row = cells.setdefault(change.pointer or "/", {})
                row[known[0]] = field_value(change, of_b=False)
                row[side] = field_value(change, of_b=True)
        for pointer, row in cells.items():
            same = row[known[0]]
            yield (pointer, *(row.get(side, same if side in known else "") for side in self.sides))


def conflict_view(parsed: ParsedFile, members: Members) -> ConflictView:
    """Return a conflict of a file with the records the conflict file holds of it."""
    records: dict[str, Record | None] = {
        source: _record(parsed, members.get(source)) for source in Source
    }
    records[BUILT_IN] = _built_in(parsed, str(members["key"]))
    found = next((record for record in records.values() if record is not None), None)
    return ConflictView(
        key=str(members["key"]),
        computes=workload_line(found) if found is not None else str(members.get("workload", "")),
        reason=_REASONS.get(str(members.get("reason", "")), ""),
        records=records,
        keeps_both=parsed.format.keeps_alternatives
        and None not in (members.get(Source.OURS), members.get(Source.THEIRS)),
        is_there={
            **{source: members.get(source) is not None for source in Source},
            BUILT_IN: records[BUILT_IN] is not None,
        },
    )


def _record(parsed: ParsedFile, version: object) -> Record | None:
    """Return the record a conflict file holds, read as the bank beside it is."""
    if not isinstance(version, Mapping):
        return None
    known, path = parsed.format, parsed.path
    raw = str(version["record"]).encode("utf-8", errors="replace")
    alone = known.parse(
        splice_raw(_emptied(parsed), replaced={}, removed=frozenset(), added=[(-1, raw)]), path
    )
    try:
        return known.record(alone, 0) if len(alone) else None
    except RecordError:
        return None


@lru_cache(maxsize=1)
def _emptied(parsed: ParsedFile) -> ParsedFile:
    """Return a bank without its records: what stands before them says what they mean."""
    gone = frozenset(range(len(parsed)))
    data = splice_raw(parsed, replaced={}, removed=gone, added=())
    return parsed.format.parse(data, parsed.path)


def _built_in(parsed: ParsedFile, key: str) -> Record | None:
    """Return the record of the built-in bank that answers where the custom one has none."""
    name = parsed.name
    if name is None:
        return None
    around = surroundings(env=current_environment(), cwd=Path.cwd())
    query = Query(soc_version=name.soc_version, core_num=name.core_num, op_type=name.op_type)
    readers = [one for one in RULES.values() if one.format == parsed.format.name and one.is_reader]
    for rules in readers:
        for file in find_answer(rules.reader, around, query).files:
            try:
                other = load_file(file.path) if file.tier is Tier.BUILT_IN else None
                number = other.find(key) if other is not None else None
                if other is not None and number is not None:
                    return other.format.record(other, number)
            except (BankPathError, RecordError):
                continue
    return None


# ---- the walk ----


@dataclass(slots=True, kw_only=True)
class ConflictWalk:
    """A person's way through the open conflicts of a file.

    Args:
        text: Where conflicts are shown.
        ask: Returns what a person typed for a prompt, `q` at the end of input.
        edit: Returns a text as a person left it in an editor.
    """

    text: Text
    ask: Callable[[str], str]
    edit: Callable[[str], str]
    _done: list[int] = field(default_factory=list)  # Positions decided or skipped, in that order

    def choose(self, parsed: ParsedFile, decisions: Sequence[Chosen], check: Check) -> list[Chosen]:
        """Return the decisions with what was chosen; those skipped, or not reached, stay open."""
        found = [*decisions]
        waiting = [number for number, (_, action) in enumerate(found) if action is None]
        at = 0
        while at < len(waiting):
            number = waiting[at]
            self._show(conflict_view(parsed, found[number][0]), f"{at + 1} of {len(waiting)}")
            answer = self._decide(found, number, check)
            if answer == _END:
                break
            if answer == "u":
                at = max(at - 1, 0)
                found[waiting[at]] = decisions[waiting[at]]
            else:
                at += 1
        return found

    def _show(self, view: ConflictView, place: str) -> None:
        self.text.line()
        self.text.line((f"conflict {place}  {view.key}  ", "bold"), (view.reason, "red"))
        if view.computes:
            self.text.line(f"  {view.computes}")
        self.text.table(["", *view.sides], [*view.rows()])

    def _decide(self, found: list[Chosen], number: int, check: Check) -> str:
        """Ask until there is an answer that can be carried out; return its letter."""
        members = found[number][0]
        while True:
            letter = self.ask(f"{_HELP}: ").strip().lower()[:1]
            if letter in ("s", "u", _END):
                return letter
            try:
                if letter == "e":
                    found[number] = self._edited(members)
                elif letter in _KEYS:
                    found[number] = (members, _KEYS[letter])
                else:
                    continue
                chosen, action = found[number]
                assert action is not None
                check(chosen, action)
            except AoebankError as error:
                found[number] = (members, None)
                self.text.line((error.headline, "red"))
                continue
            return letter

    def _edited(self, members: Members) -> Chosen:
        """Return a conflict settled with a record of a person's own, in the place of theirs."""
        version = members.get(Source.THEIRS) or members.get(Source.OURS) or members[Source.BASE]
        before = str(version["record"])
        after = self.edit(before).strip()
        if after == before.strip():
            raise UsageError("record was not changed", where=str(members["key"]))
        theirs = {**version, "record": after, "sha256": sha256_of(after.encode())}
        return {**members, Source.THEIRS: theirs}, Action.TAKE_THEIRS


def walk_at_terminal() -> ConflictWalk:
    """Return a walk at the terminal this process has.

    Raises:
        UsageError: it has none.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("needs a terminal", where="-i", hint="edit the file, then --apply it")
    env = current_environment()
    text = Text(ColorMode.AUTO, no_color=bool(env.get("NO_COLOR")))

    def ask(prompt: str) -> str:
        text.line((prompt, "bold"))
        return sys.stdin.readline() or _END

    def edit(record: str) -> str:
        # the folder goes at the end, for an editor may replace the file, or remove it
        with tempfile.TemporaryDirectory() as folder:
            with tempfile.NamedTemporaryFile(
                "w", suffix=".json", dir=folder, delete=False, encoding="utf-8"
            ) as file:
                file.write(f"{record}\n")
            try:
                command = shlex.split(env.get("VISUAL") or env.get("EDITOR") or "vi")
                subprocess.run([*command, file.name], check=True)
                return Path(file.name).read_text(encoding="utf-8")
            except (OSError, ValueError, subprocess.CalledProcessError) as error:
                raise UsageError("editor failed", where="EDITOR", got=str(error)) from error

    return ConflictWalk(text=text, ask=ask, edit=edit)
