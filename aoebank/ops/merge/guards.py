"""What must not come through a merge: files that do not fit together, records known to be bad."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from aoebank.errors import BankFormatError, BankNotFoundError
from aoebank.formats.faults import find_fault, rank_of
from aoebank.formats.names import plain_soc
from aoebank.formats.protocol import ParsedFile, find_error, raise_if_broken
from aoebank.formats.registry import find_format
from aoebank.formats.text.checks import is_blank
from aoebank.model.quarantine import Quarantine
from aoebank.ops.merge.plan import SOURCE_OF, Action, Source
from aoebank.ops.merge.versions import KeyVersions, Versions
from aoebank.ops.validate.built_in import BuiltInBank, find_built_in
from aoebank.storage.quarantine import (
    FILE,
    FOLDER,
    find_entry,
    find_quarantine_root,
    load_quarantine,
    parse_quarantine,
)
from aoebank.storage.sides.side import PathSide, Side

_TARGET = ("soc_version", "core_num", "core_type", "op_type")
_HINT = "--allow-other-soc merges them all the same"
_USED = {  # the versions whose record an action takes, or whose removal
    Action.KEEP_BOTH: (Source.OURS, Source.THEIRS),
    Action.REMOVE: (Source.THEIRS,),
    **{action: (source,) for action, source in SOURCE_OF.items()},
}


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


@dataclass(slots=True, kw_only=True)
class BadRecords:
    """Tells which actions would give a key to a record with an error.

    | the record taken has an error, and | |
    |---|---|
    | it takes the place of one that has none, or cannot be read while that one can | objection |
    | it is new, and cannot be read | objection |
    | it is new, and stands where its side removed another one | objection, to the removal too |
    | it is new otherwise, or as bad as the one it replaces | none: nothing better is lost |

    Without a base a record only one side has is new.
    """

    versions: Versions
    _mangled: dict[Source, frozenset[str]] = field(default_factory=dict, init=False)

    def find_objection(self, key: KeyVersions, action: Action) -> str:
        """Return why an action is for a person to choose; empty if it is not."""
        for source in _USED[action]:
            if key.of(source) is None:
                is_removal = key.base is not None and key.key in self._find_mangled(source)
                if is_removal:
                    return f"{source} has a record with an error in its place"
                continue
            fault = key.fault(source)
            if fault is not None and self._is_worse(key, source):
                return f"{source}: {fault.problem}"
        return ""

    def _is_worse(self, key: KeyVersions, source: Source) -> bool:
        fault = key.fault(source)
        others = [other for other in Source if other is not source and key.of(other) is not None]
        if others:
            return rank_of(fault) > min(rank_of(key.fault(other)) for other in others)
        if fault is None:
            return False
        return fault.is_unreadable or key.key in self._find_mangled(source)

    def _find_mangled(self, source: Source) -> frozenset[str]:
        """Return the keys a side removed, and those with an error it has in their places."""
        if source not in self._mangled:
            base, side = self.versions.base, self.versions.of(source)
            self._mangled[source] = frozenset()
            if base is not None and side is not None:
                self._mangled[source] = frozenset(_iter_mangled(base, side))
        return self._mangled[source]


def _iter_mangled(base: ParsedFile, side: ParsedFile) -> Iterator[str]:
    """Yield keys that went and keys of bad records that came behind the same record."""
    gone, new = _runs(base, side), _runs(side, base)
    for neighbour in gone.keys() & new.keys():
        bad = [key for key in new[neighbour] if _is_bad(side, key)]
        if bad:
            yield from (*bad, *gone[neighbour])


def _runs(parsed: ParsedFile, other: ParsedFile) -> dict[str, list[str]]:
    """Return the keys another file has not, by the key they follow that it has."""
    found: dict[str, list[str]] = {}
    neighbour = ""
    for key in parsed.keys:
        if other.find(key) is None:
            found.setdefault(neighbour, []).append(key)
        else:
            neighbour = key
    return found


def _is_bad(parsed: ParsedFile, key: str) -> bool:
    number = parsed.find(key)
    return number is not None and find_fault(parsed, number) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Relatedness:
    """Whether the base has anything to do with a side, in one file or in all."""

    base_has_records: bool = False
    side_has_records: bool = False
    share_a_key: bool = False

    @property
    def are_strangers(self) -> bool:
        """Return whether both have records, and no key in common."""
        return self.base_has_records and self.side_has_records and not self.share_a_key

    def __or__(self, other: Relatedness) -> Relatedness:
        return Relatedness(
            base_has_records=self.base_has_records or other.base_has_records,
            side_has_records=self.side_has_records or other.side_has_records,
            share_a_key=self.share_a_key or other.share_a_key,
        )


def demand_mergeable(versions: Versions, name: str, *, may_differ_in_soc: bool) -> None:
    """Raise `BankFormatError` unless the versions are whole, of one format and for one target.

    Args:
        name: Of the file in the result; it tells readers what the file is for.
        may_differ_in_soc: Whether other cores or another soc_version will do.
    """
    for source in Source:
        parsed = versions.of(source)
        # a base without bytes has no record to lose: each side added its own
        if parsed is not None and not (source is Source.BASE and is_blank(parsed.data)):
            raise_if_broken(parsed)
    there = (versions.ours, versions.theirs, versions.base)
    found = [parsed for parsed in there if parsed is not None and not is_blank(parsed.data)]
    result = _empty_file(name) if found else None
    if result is not None:
        _demand_same_kind(result, found[0], may_differ_in_soc=may_differ_in_soc)
    for other in found[1:]:
        _demand_same_kind(found[0], other, may_differ_in_soc=may_differ_in_soc)
    _demand_one_header(versions)


def find_untouched(versions: Versions) -> Source | None:
    """Return the side whose file is the result whatever else is broken; None if both count.

    Where both sides have the same bytes, or only one side changed them, nothing is chosen
    among records. So a file that is broken everywhere stops no merge, and one that a side mended
    comes in. But a broken file never takes the place of a whole one.
    """
    base, ours, theirs = versions.base, versions.ours, versions.theirs
    broken = {source for source in Source if _is_broken(versions.of(source))}
    if not broken or ours is None or theirs is None:
        return None
    if ours.data == theirs.data:
        return Source.OURS
    for changed, kept in ((Source.OURS, theirs), (Source.THEIRS, ours)):
        is_unchanged = base is not None and base.data == kept.data
        if is_unchanged and (changed not in broken or _is_broken(kept)):
            return changed
    return None


def _is_broken(parsed: ParsedFile | None) -> bool:
    return parsed is not None and find_error(parsed) is not None


def demand_one_target(sides: Sequence[Side]) -> None:
    """Raise `BankFormatError` if trees without folders for targets are of different ones.

    `banks/Ascend910B1` and `banks/Ascend910B2` would become one folder, while two trees that
    hold such folders only have more targets together than each alone.
    """
    first = _loose_targets(sides[0])
    for side in sides[1:]:
        found = _loose_targets(side)
        if first and found and first.isdisjoint(found):
            raise BankFormatError(
                "tree is for another soc_version",
                path=Path(side.label),
                got=", ".join(sorted(found)),
                expected=", ".join(sorted(first)),
                hint=_HINT,
            )


def find_relatedness(base: ParsedFile | None, side: ParsedFile | None) -> Relatedness:
    """Return how the base of a file and a side of it are related."""
    has_base, has_side = (parsed is not None and len(parsed) > 0 for parsed in (base, side))
    share = False
    if base is not None and side is not None:
        share = not side.places.keys().isdisjoint(base.keys)
    return Relatedness(base_has_records=has_base, side_has_records=has_side, share_a_key=share)


def find_exclusions(
    sides: Sequence[Side], *, output: Path | None, built_in: Path | None, today: date
) -> Exclusions:
    """Return what the quarantines at the sides and the result, and a built-in bank, keep out.

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


def _loose_targets(side: Side) -> frozenset[str]:
    """Return the soc_versions of files that are not in a folder of that name."""
    found = set()
    for name in side.names() if side.is_tree else ():
        parsed = _empty_file(name)
        soc = parsed.name.soc_version if parsed is not None and parsed.name else None
        if soc and all(plain_soc(part) != plain_soc(soc) for part in Path(name).parts[:-1]):
            found.add(plain_soc(soc))
    return frozenset(found)


def _empty_file(name: str) -> ParsedFile | None:
    """Return an empty file of this name, which tells its format and its target."""
    known = find_format(Path(name))
    return None if known is None else known.parse(known.empty, Path(name))


def _demand_same_kind(a: ParsedFile, b: ParsedFile, *, may_differ_in_soc: bool) -> None:
    if a.format.name != b.format.name:
        raise BankFormatError(
            "banks of different formats cannot be merged",
            path=b.path,
            got=b.format.name,
            expected=a.format.name,
        )
    for member in _TARGET:
        one, other = getattr(a.name, member, None), getattr(b.name, member, None)
        if None in (one, other) or one == other:
            continue
        if may_differ_in_soc and member != "op_type":
            continue
        raise BankFormatError(
            f"bank file is for another {member}",
            path=b.path,
            got=other,
            expected=one,
            hint="" if member == "op_type" else _HINT,
        )


def _demand_one_header(versions: Versions) -> None:
    """Raise if two version lines would have to become one."""
    ours, theirs, base = versions.ours, versions.theirs, versions.base
    if ours is None or theirs is None or not (len(ours) and len(theirs)):
        return
    one, other = ours.format.header(ours), theirs.format.header(theirs)
    is_one_sided = base is not None and base.data in (ours.data, theirs.data)
    if one != other and not is_one_sided:
        raise BankFormatError(
            "version line differs",
            path=theirs.path,
            got=other,
            expected=one,
            hint="bring both to one version first",
        )


def _quarantine(side: Side) -> Quarantine:
    if isinstance(side, PathSide):
        root = find_quarantine_root(side.path)
        return load_quarantine(root) if root is not None else Quarantine()
    data = side.read_bytes(f"{FOLDER}/{FILE}")
    return parse_quarantine(data or b"", Path(side.label, FOLDER, FILE))
