"""Compare two banks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from aoebank.diffing.change import ChangeKind, RecordChange, TimeVerdict
from aoebank.diffing.compare import FileComparison
from aoebank.diffing.measured import MeasuredPair
from aoebank.diffing.options import DiffOptions
from aoebank.diffing.pair_files import FilePair, pair_files
from aoebank.diffing.result import DiffResult, RollupRow, RollupTally
from aoebank.errors import (
    AoebankError,
    BankFormatError,
    BankNotFoundError,
    BankPathError,
    shell_word,
)
from aoebank.formats.protocol import raise_if_broken
from aoebank.processes import count_processes, map_in_order
from aoebank.selection import demand_case
from aoebank.storage.sides.side import PathSide, Side, SideKind, size_on_disk

_STORED = (SideKind.GIT, SideKind.SNAPSHOT)
_RowKey = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """What came of two files.

    Attributes:
        row: Target and operator type, as the file names tell.
        equal: How many records are the same.
    """

    row: _RowKey
    changes: tuple[RecordChange, ...]
    equal: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Problem:
    """Why two files could not be compared; as a value, so that it hides no other file."""

    error: AoebankError


@dataclass(slots=True)
class _Tally:
    """What was found so far."""

    changes: list[RecordChange] = field(default_factory=list)
    rows: dict[_RowKey, RollupTally] = field(default_factory=dict)
    compared: list[FilePair] = field(default_factory=list)
    problems: list[AoebankError] = field(default_factory=list)

    def add(self, compared: _Compared, *, is_moved: bool) -> None:
        """Add the records of two files."""
        self.changes += compared.changes
        for change in compared.changes:
            self.rows.setdefault(_row_of(change), RollupTally())
        row = self.rows.setdefault(compared.row, RollupTally())
        if is_moved:
            row.moved += compared.equal
        else:
            row.unchanged += compared.equal

    def rollup(self) -> tuple[RollupRow, ...]:
        """Return a row per target and operator type."""
        changes: dict[_RowKey, list[RecordChange]] = {}
        for change in self.changes:
            changes.setdefault(_row_of(change), []).append(change)
        names = sorted(self.rows, key=lambda names: (names[0] or "", names[1] or ""))
        return tuple(
            self.rows[row_key].row(*row_key, changes.get(row_key, [])) for row_key in names
        )


def diff(
    a: Side,
    b: Side,
    options: DiffOptions | None = None,
    *,
    count: Callable[[int], int] = count_processes,
) -> DiffResult:
    """Return the difference of `a` and `b`.

    In trees, a file that cannot be compared is one of `problems` and hides no other.

    Args:
        a: Before.
        b: After.
        options: What is compared, and how.
        count: Says how many processes compare so many bytes.

    Raises:
        BankNotFoundError: one is a tree and the other a file that is not in it, or a tree
            holds no bank file.
        BankFormatError: a side that is one file is broken.
    """
    options = options or DiffOptions()
    tally = _Tally()
    is_one_file = not (a.is_tree and b.is_tree)
    pairs = _pairs(a, b, options)
    demand_case(options.only, [*a.names(), *b.names()])

    def work(pair: FilePair) -> _Compared | _Problem | None:
        try:
            return _compare_files(a, b, pair, options)
        except (BankPathError, BankFormatError) as error:
            if is_one_file:
                raise
            return _Problem(error=error)

    processes = count(size_on_disk((a, b)))
    for pair, found in zip(pairs, map_in_order(work, pairs, processes), strict=True):
        if isinstance(found, _Problem):
            tally.problems.append(found.error)
        elif found is not None:
            tally.add(found, is_moved=pair.move is not None)
            tally.compared.append(pair)
    return DiffResult(
        a=a.label,
        b=b.label,
        changes=tuple(sorted(tally.changes, key=_order)),
        moves=tuple(pair.move for pair in tally.compared if pair.move),
        rollup=tally.rollup(),
        problems=tuple(tally.problems),
        noise_ratio=options.noise_ratio,
    )


def _pairs(a: Side, b: Side, options: DiffOptions) -> list[FilePair]:
    for side in (a, b):
        if side.is_tree and not side.names():
            raise BankNotFoundError(
                "no bank file in this tree",
                path=Path(side.label),
                hint=f"aoebank validate {shell_word(side.label)}"
                if side.kind is SideKind.TREE
                else "",
            )
    if a.is_tree and b.is_tree:
        return pair_files(a, b, has_renames=options.has_renames)
    return [FilePair(a=_name_beside(a, b), b=_name_beside(b, a))]


def _name_beside(side: Side, other: Side) -> str:
    """Return the one file meant by a side, which may be a stored tree against a file on disk."""
    if not side.is_tree:
        return side.names()[0]
    (name,) = other.names()
    if side.kind in _STORED:
        place = other.path.absolute().as_posix() if isinstance(other, PathSide) else name
        inside = [stored for stored in side.names() if f"/{place}".endswith(f"/{stored}")]
        if inside:
            return max(inside, key=len)
        same = [stored for stored in side.names() if stored.rpartition("/")[2] == name]
        if len(same) == 1:
            return same[0]
    raise BankNotFoundError(
        "cannot compare a file with a tree",
        path=Path(other.label),
        got="a file",
        expected="a directory",
    )


def _compare_files(a: Side, b: Side, pair: FilePair, options: DiffOptions) -> _Compared | None:
    """Return the difference of two files, None if no record of them is asked for."""
    measured = MeasuredPair(
        load_a=lambda: a.load_provenance(pair.a or ""),
        load_b=lambda: b.load_provenance(pair.b or ""),
        noise_ratio=options.noise_ratio,
        weights=options.weights,
    )
    old = None if pair.a is None else a.load(pair.a)
    new = None if pair.b is None else b.load(pair.b, like=old)
    comparison = FileComparison(
        name=pair.name,
        name_a=pair.a if pair.a != pair.b else None,
        old=old,
        new=new,
        measured=measured,
        options=options,
    )
    if not comparison.is_wanted():
        return None
    _demand_comparable(comparison)
    found = [*comparison.iter_changes()]
    changes = tuple(change for change in found if change is not None)
    row = (comparison.soc_version, comparison.op_type)
    return _Compared(row=row, changes=changes, equal=len(found) - len(changes))


def _demand_comparable(comparison: FileComparison) -> None:
    old, new = comparison.old, comparison.new
    if old is not None and new is not None and old.data == new.data:
        return  # however broken: nothing changed
    for parsed in (old, new):
        if parsed is not None:
            raise_if_broken(parsed)
    if old is not None and new is not None and old.format.name != new.format.name:
        raise BankFormatError(
            "cannot compare files of different formats",
            path=new.path,
            got=new.format.name,
            expected=old.format.name,
        )


def _row_of(change: RecordChange) -> _RowKey:
    return change.soc_version, change.op_type


def _order(change: RecordChange) -> tuple[bool, float, int, str, float, str]:
    """Return the sort key: regressions, then breakage, the worst first."""
    is_slower = change.verdict is TimeVerdict.SLOWER
    ratio = change.cost_ratio or 0.0
    rank = list(ChangeKind).index(change.kind)
    return not is_slower, -ratio if is_slower else 0.0, rank, change.file, -ratio, change.key
