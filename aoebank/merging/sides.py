"""The sides of a merge, files or trees of banks for one target: checked, then read file by file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aoebank.diffing.pair_files import FollowedFile
from aoebank.errors import BankFormatError, BankNotFoundError
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.registry import HEAD_BYTES, find_format, find_loose_targets, parse_name
from aoebank.formats.text.checks import is_blank
from aoebank.merging.decisions import Source, Three
from aoebank.merging.versions import OTHER_TARGET_HINT, Versions
from aoebank.storage.bank import demand_no_backup
from aoebank.storage.sides.side import Side, SideKind


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherFile:
    """Something in a tree that is no bank file; a merge leaves it where it is."""

    side: str
    path: Path


def check_sides(
    sides: Sequence[Side], base: Side | None, *, may_differ_in_soc: bool
) -> tuple[OtherFile, ...]:
    """Return the other files of the sides; raise unless the sides can be merged.

    All are files or all are trees, each has a bank file, and all of it can be read.

    Raises:
        BankNotFoundError: one is of another kind, or no bank.
        BankPathError: something in one cannot be read, so what is there is not known.
        BankFormatError: they are for different targets.
    """
    others: list[OtherFile] = []
    for side in (*sides, *([base] if base else [])):
        if side.is_tree != sides[0].is_tree:
            raise BankNotFoundError(
                "cannot merge a file with a tree",
                where=side.label,
                got="a tree" if side.is_tree else "a file",
                expected="a tree" if sides[0].is_tree else "a file",
            )
        for entry in side.other_files():
            if side is not base:
                others.append(OtherFile(side=side.label, path=entry.path))
        if side.is_tree and not side.names():
            raise BankNotFoundError(
                "holds no bank file", where=side.label, expected="a tree with bank files"
            )
    if sides[0].is_tree and not may_differ_in_soc:
        _demand_one_target([(side.label, find_loose_targets(side.names())) for side in sides])
    return tuple(others)


def _demand_one_target(found: Sequence[tuple[str, frozenset[str]]]) -> None:
    """Raise `BankFormatError` if trees without folders for targets are of different ones.

    `banks/Ascend910B1` and `banks/Ascend910B2` would become one folder, while two trees that
    hold such folders only have more targets together than each alone.

    Args:
        found: Label of each side, and the soc_versions of its files outside of such folders; ours
            first.
    """
    first, *others = found
    for label, targets in others:
        if first[1] and targets and first[1].isdisjoint(targets):
            raise BankFormatError(
                "tree is for another soc_version",
                path=Path(label),
                got=", ".join(sorted(targets)),
                expected=", ".join(sorted(first[1])),
                hint=OTHER_TARGET_HINT,
            )


# ---- read ----


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreeSides:
    """The three sides of one merge.

    Attributes:
        name: What a single file is called in the result.
        followed: Files that are called in another way on a side, by their names in the result.
    """

    base: Side | None
    ours: Side
    theirs: Side
    name: str = ""
    followed: Mapping[str, FollowedFile] = field(default_factory=dict)

    @property
    def is_tree(self) -> bool:
        return self.ours.is_tree

    def of(self, source: Source) -> Side | None:
        """Return one of them."""
        return {Source.BASE: self.base, Source.OURS: self.ours}.get(source, self.theirs)

    def names(self) -> tuple[str, ...]:
        """Return the files of the result, sorted, those that may be gone too."""
        if not self.is_tree:
            return (self.name,)
        sides = [side for side in (self.base, self.ours, self.theirs) if side is not None]
        old = {file.base for file in self.followed.values()}
        return tuple(sorted({name for side in sides for name in side.names()} - old))

    def load(self, name: str) -> Versions:
        """Read and parse the versions of a file; what they share is parsed once.

        Raises:
            BankFormatError: one is no bank file, or lost its content to a writer that died.
            BankPathError: one cannot be read.
        """
        own = {source: self.name_in(source, name) for source in Source}
        ours = _load(self.ours, name=own[Source.OURS], like=None)
        theirs = _load(self.theirs, name=own[Source.THEIRS], like=ours)
        like = ours if ours is not None else theirs
        base = _load(self.base, name=own[Source.BASE], like=like)
        return Versions(base=base, ours=ours, theirs=theirs, named=parse_name(Path(name)))

    def name_in(self, source: Source, name: str) -> str:
        """Return the name a file of the result has on a side."""
        side, file = self.of(source), self.followed.get(name)
        if file is not None:
            return str(getattr(file, source))
        return name if side is None or side.is_tree else side.names()[0]


def read_beside(sides: ThreeSides, names: Mapping[Source, str | None]) -> Three[bytes | None]:
    """Return the bytes of files that stand beside bank files, by what each side calls them."""

    def read(source: Source) -> bytes | None:
        side, name = sides.of(source), names[source]
        return None if side is None or name is None else side.read_bytes(name)

    return Three(base=read(Source.BASE), ours=read(Source.OURS), theirs=read(Source.THEIRS))


def _load(side: Side | None, *, name: str, like: ParsedFile | None) -> ParsedFile | None:
    """Return one version of a file, known to be of a bank; None where a side has none."""
    if side is None:
        return None
    own = name if side.is_tree else side.names()[0]
    parsed = side.load(own, like=like)
    if parsed is None:
        return None
    head, path = parsed.data[:HEAD_BYTES], parsed.path
    if not side.is_tree and not is_blank(parsed.data) and find_format(path, head) is None:
        raise BankFormatError(
            "is no bank file", path=path, expected="a file of a format of docs/formats.md"
        )
    if is_blank(parsed.data) and side.kind in (SideKind.FILE, SideKind.TREE):
        demand_no_backup(path)
    return parsed
