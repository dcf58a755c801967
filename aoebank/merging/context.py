"""What decides about the keys of a file besides its records.

Rules, a person's verdicts, how times were measured, and the records that stay out: those in a
quarantine, those a built-in bank does better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from aoebank.errors import BankNotFoundError
from aoebank.formats.protocol import ParsedFile
from aoebank.merging.decisions import MergeRules
from aoebank.merging.document import PersonalVerdict
from aoebank.model.quarantine import Quarantine
from aoebank.model.timing import Measurements
from aoebank.storage.quarantine import (
    FILE,
    FOLDER,
    find_entry,
    find_quarantine_root,
    load_quarantine,
    parse_quarantine,
)
from aoebank.storage.sides.side import PathSide, Side
from aoebank.validation.built_in import BuiltInBank, find_built_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusions:
    """What to keep out.

    Attributes:
        quarantines: Of the result and of the sides.
        today: Decides which entries still hold.
        built_in: Records slower than the ones here they hide go.
    """

    quarantines: tuple[Quarantine, ...] = ()
    today: date = date.min
    built_in: BuiltInBank | None = None

    def find_quarantined(self, parsed: ParsedFile | None) -> Mapping[int, str]:
        """Return by position the records of a file under quarantine, each with the reason."""
        found: dict[int, str] = {}
        filled = [quarantine for quarantine in self.quarantines if len(quarantine)]
        if parsed is None or not filled:
            return found
        for number in range(len(parsed)):
            for quarantine in filled:
                entry = find_entry(parsed, number, quarantine, today=self.today)
                if entry is not None:
                    ticket = f" ({entry.ticket})" if entry.ticket else ""
                    found[number] = f"{entry.reason}{ticket}"
        return found

    def find_slower(self, parsed: ParsedFile) -> Mapping[int, str]:
        """Return by position the records that hide a faster built-in one, each with times."""
        if self.built_in is None:
            return {}
        numbers = {start: number for number, start in enumerate(parsed.starts)}
        return {
            numbers[finding.location.start]: f"{finding.got}, {finding.expected} in the built-in"
            for finding in self.built_in.check(parsed)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeContext:
    """What decides about the keys of one file, besides the records themselves.

    Attributes:
        is_two_way: There is no base at all: an absent record was never there.
        exclusions: Records that stay out.
        verdicts: What a person decided, by key.
        times_of_ours: How ours was measured; asked only if two times are compared.
        takes_base: Whether a conflict ends in the record of the base; else in that of ours.
        verbose: Whether every decision becomes a value; else conflicts do, and what keeps a
            record out, and the rest is counted.
        tells_reasons: Whether the plan has the reason of each key, for merges of several steps.
    """

    rules: MergeRules = field(default_factory=MergeRules)
    is_two_way: bool = False
    exclusions: Exclusions = field(default_factory=Exclusions)
    verdicts: Mapping[str, PersonalVerdict] = field(default_factory=dict)
    times_of_ours: Measurements = field(default_factory=lambda: Measurements(tuple))
    times_of_theirs: Measurements = field(default_factory=lambda: Measurements(tuple))
    takes_base: bool = False
    verbose: bool = False
    tells_reasons: bool = False


def find_exclusions(
    sides: Sequence[Side], *, output: Path | None, built_in: Path | None, today: date
) -> Exclusions:
    """Return the exclusions: quarantines of the sides and of the result, and a built-in bank.

    Args:
        output: Where the result goes, if that is known.
        built_in: Directory of a built-in bank.

    Raises:
        BankFormatError: a quarantine is broken: what it keeps out is not known.
        BankNotFoundError: there is no such built-in bank.
    """
    quarantines = [_quarantine(side) for side in sides]
    root = find_quarantine_root(output) if output is not None else None
    if root is not None:
        quarantines.append(load_quarantine(root))
    found = None if built_in is None else find_built_in(built_in, env={}, cwd=Path())
    if found is not None and next(found.findings(), None) is not None:
        raise BankNotFoundError(
            "holds no built-in bank file", path=built_in, expected="the directory of a bank"
        )
    return Exclusions(quarantines=tuple(quarantines), today=today, built_in=found)


def _quarantine(side: Side) -> Quarantine:
    if isinstance(side, PathSide):
        root = find_quarantine_root(side.path)
        return load_quarantine(root) if root is not None else Quarantine()
    data = side.read_bytes(f"{FOLDER}/{FILE}")
    return parse_quarantine(data or b"", Path(side.label, FOLDER, FILE))
