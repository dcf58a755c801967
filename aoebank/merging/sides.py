"""The sides of a merge, files or trees of banks for one target: checked, then read file by file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aoebank.diffing.pair_files import FollowedFile
from aoebank.errors import BankFormatError, BankNotFoundError, BankPathError
from aoebank.formats.names import plain_soc
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.provenance import SUFFIX
from aoebank.formats.registry import HEAD_BYTES, find_format
from aoebank.formats.text.checks import is_blank
from aoebank.merging.decisions import Source, Three
from aoebank.merging.destination import demand_whole
from aoebank.merging.document import CONFLICT_SUFFIX
from aoebank.merging.versions import OTHER_TARGET_HINT, Versions
from aoebank.storage.bank import demand_no_backup
from aoebank.storage.binary_caches import bank_of_binary_cache
from aoebank.storage.sides.side import PathSide, Side, SideKind, StoredSide
from aoebank.storage.tree import FileKind, TreeEntry, iter_tree


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherFile:
    """Something in a tree that is no bank file; a merge leaves it where it is."""

    side: str
    path: Path


def check_sides(
    sides: Sequence[Side], base: Side | None, *, may_differ_in_soc: bool
) -> tuple[OtherFile, ...]:
    """Return what is in the sides besides banks; raise unless they can be merged.

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
        if isinstance(side, PathSide):
            demand_whole(side.path)
        for entry in _find_other_files(side):
            _demand_readable(side, entry)
            if side is not base:
                others.append(OtherFile(side=side.label, path=entry.path))
        if side.is_tree and not side.names():
            raise BankNotFoundError(
                "holds no bank file", where=side.label, expected="a tree with bank files"
            )
    if not may_differ_in_soc:
        _demand_one_target(sides)
    return tuple(others)


def _find_other_files(side: Side) -> tuple[TreeEntry, ...]:
    """Return the files of a tree that are neither bank files nor side-cars."""
    if isinstance(side, PathSide) and side.is_tree:
        return tuple(
            entry
            for entry in iter_tree(side.path)
            if entry.kind is not FileKind.BANK and not _belongs_to_a_bank(entry.path)
        )
    if isinstance(side, StoredSide) and side.is_tree:
        banks = {*side.names()}
        return tuple(
            TreeEntry(path=Path(side.place, name), kind=FileKind.UNKNOWN)
            for name in sorted(side.contents)
            if name not in banks and not _is_hidden(name) and banks.isdisjoint(_owners(name))
        )
    return ()


def _belongs_to_a_bank(path: Path) -> bool:
    return any(Path(owner).is_file() for owner in _owners(str(path)))


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _owners(name: str) -> Iterator[str]:
    """Yield the bank file a side-car, a conflict file or a binary twin is of, by its name."""
    for suffix in (SUFFIX, CONFLICT_SUFFIX):
        if name.endswith(suffix):
            yield name.removesuffix(suffix)
    bank = bank_of_binary_cache(name)
    if bank is not None:
        yield bank


def _demand_readable(side: Side, entry: TreeEntry) -> None:
    if entry.kind is not FileKind.UNREADABLE:
        return
    is_nothing = entry.reason in ("link to nowhere", "no regular file")
    if is_nothing and find_format(entry.path) is None:
        return
    raise BankPathError(
        f"cannot be read: {entry.reason}",
        path=entry.path,
        expected=f"all of {side.label} to be readable: what is missing would count as removed",
    )


def _demand_one_target(sides: Sequence[Side]) -> None:
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
                hint=OTHER_TARGET_HINT,
            )


def _loose_targets(side: Side) -> frozenset[str]:
    """Return the soc_versions of files that are not in a folder of that name."""
    found = set()
    for name in side.names() if side.is_tree else ():
        known = find_format(Path(name))
        target = known.parse_name(Path(name).name) if known else None
        soc = target.soc_version if target else None
        if soc and all(plain_soc(part) != plain_soc(soc) for part in Path(name).parts[:-1]):
            found.add(plain_soc(soc))
    return frozenset(found)


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
        return Versions(base=base, ours=ours, theirs=theirs)

    def name_in(self, source: Source, name: str) -> str:
        """Return the name a file of the result has on a side."""
        side, file = self.of(source), self.followed.get(name)
        if file is not None:
            return str(getattr(file, source))
        return name if side is None or side.is_tree else side.names()[0]


def read_beside(sides: ThreeSides, places: Mapping[Source, Path | None]) -> Three[bytes | None]:
    """Return the bytes of files that stand beside bank files, by what each side calls them."""

    def read(source: Source) -> bytes | None:
        side, place = sides.of(source), places[source]
        return None if side is None or place is None else side.read_bytes(place.as_posix())

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
