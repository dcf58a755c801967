"""Pairs of files of A and B: by name, then by content.

As in git: files without a partner are paired by the share of equal records, the best pairs
first. Unlike in git it is the share of the smaller file that has to be large, since a bank
that gets a new name usually gets new records too. A target with a new name takes the rest of
its files along.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from aoebank.diffing.result import FileMove
from aoebank.errors import BankFormatError, BankPathError, HistoryError
from aoebank.formats.protocol import ParsedFile
from aoebank.storage.sides.side import Side

RENAME_SIMILARITY = 0.5  # as git diff -M has it


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePair:
    """A file of A and one of B; one of them may be absent."""

    a: str | None
    b: str | None
    move: FileMove | None = None

    @property
    def name(self) -> str:
        """Return the name in B, or in A where B has none."""
        return self.b or self.a or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    """Content of a file: a digest per record that readers use."""

    name: str
    format: str
    soc_version: str | None
    digests: array[int]


def pair_files(a: Side, b: Side, *, has_renames: bool) -> list[FilePair]:
    """Return the pairs of two trees, sorted by name."""
    left, right = set(a.names()), set(b.names())
    pairs = [FilePair(a=name, b=name) for name in left & right]
    moves: list[FileMove] = []
    gone, new = sorted(left - right), sorted(right - left)
    if has_renames and gone and new:
        moves = _find_moves([*_contents(a, gone)], [*_contents(b, new)])
    moved = {move.a for move in moves} | {move.b for move in moves}
    pairs += [FilePair(a=move.a, b=move.b, move=move) for move in moves]
    pairs += [FilePair(a=name, b=None) for name in gone if name not in moved]
    pairs += [FilePair(a=None, b=name) for name in new if name not in moved]
    return sorted(pairs, key=lambda pair: pair.name)


def _contents(side: Side, names: list[str]) -> Iterator[_Content]:
    for name in names:
        try:
            parsed = side.load(name)
        except (BankPathError, BankFormatError):
            continue  # whoever compares it tells
        if parsed is not None and len(parsed):
            yield _Content(
                name=name,
                format=parsed.format.name,
                digests=_digests(parsed),
                soc_version=parsed.name.soc_version if parsed.name else None,
            )


def _digests(parsed: ParsedFile) -> array[int]:
    used = (n for n, key in enumerate(parsed.keys) if parsed.find(key) == n)
    return array("q", (hash(parsed.raw(number)) for number in used))


def _find_moves(gone: list[_Content], new: list[_Content]) -> list[FileMove]:
    moves: list[FileMove] = []
    taken: set[str] = set()
    alike = [move for move in _candidates(gone, new) if move.similarity >= RENAME_SIMILARITY]
    for move in sorted(alike, key=_preference):
        if move.a not in taken and move.b not in taken:
            moves.append(move)
            taken |= {move.a, move.b}
    left = [content for content in gone if content.name not in taken]
    right = {content.name: content for content in new if content.name not in taken}
    return [*moves, *_followers(moves, left, right)]


def _candidates(gone: list[_Content], new: list[_Content]) -> Iterator[FileMove]:
    """Yield the pairs that share a record."""
    holders: dict[int, list[int]] = {}
    for place, content in enumerate(gone):
        for digest in content.digests:
            holders.setdefault(digest, []).append(place)
    for content in new:
        shared = Counter(place for digest in content.digests for place in holders.get(digest, ()))
        for place, equal in shared.items():
            if gone[place].format == content.format:
                yield _move(gone[place], content, equal)


def _followers(
    moves: list[FileMove], gone: list[_Content], new: dict[str, _Content]
) -> Iterator[FileMove]:
    """Yield files that have the name a found change of soc_version gives them."""
    renamed = {move.soc_a: move.soc_b for move in moves if move.soc_a and move.soc_b}
    for content in gone:
        soc_a = content.soc_version or ""
        if soc_a not in renamed:
            continue
        partner = new.get(content.name.replace(soc_a, renamed[soc_a]))
        if partner is not None and partner.format == content.format:
            equal = len(set(content.digests) & set(partner.digests))
            yield _move(content, partner, equal)


def _move(a: _Content, b: _Content, equal: int) -> FileMove:
    is_other_soc = a.soc_version != b.soc_version
    return FileMove(
        a=a.name,
        b=b.name,
        equal=equal,
        records_a=len(a.digests),
        records_b=len(b.digests),
        soc_a=a.soc_version if is_other_soc else None,
        soc_b=b.soc_version if is_other_soc else None,
    )


def _preference(move: FileMove) -> tuple[float, int, str, str]:
    """Return the sort key that puts the most alike first, then those with the closest names."""
    return -move.closeness, -_shared_ends(move.a, move.b), move.a, move.b


def _shared_ends(a: str, b: str) -> int:
    """Return the number of characters two names share at their start and at their end."""
    length = min(len(a), len(b))
    start = next((n for n in range(length) if a[n] != b[n]), length)
    end = next((n for n in range(length - start) if a[-1 - n] != b[-1 - n]), length - start)
    return start + end


_HINT = "give it one name on both sides; or --no-renames, for files of their own"


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedFile:
    """Names of one file on each side, and in the result."""

    name: str
    base: str
    ours: str
    theirs: str


def follow_moves(base: Side, ours: Side, theirs: Side) -> tuple[FollowedFile, ...]:
    """Return the files both sides work on under different names, sorted by the name in the base.

    A move nobody else has a say in is none of them: one file goes, another one comes.

    Raises:
        HistoryError: a file was moved to two places, or onto a file the other side has.
    """
    old, mine, other = ({*side.names()} for side in (base, ours, theirs))
    contested = {
        *(name for name in old & other - mine if _is_changed(base, theirs, name)),
        *(name for name in old & mine - other if _is_changed(base, ours, name)),
        *(old - mine - other),
    }
    if not contested or not (mine - old or other - old):
        return ()
    found = _follow(contested, base, (ours, theirs))
    return tuple(found)


def _follow(contested: set[str], base: Side, sides: tuple[Side, Side]) -> Iterator[FollowedFile]:
    ours, theirs = sides
    here, there = (_moves(base, side) for side in sides)
    for name in sorted(contested):
        places = [moves[name] for moves in (here, there) if name in moves]
        is_gone = [name not in side.names() for side in sides]
        if len(places) < sum(is_gone):  # one side took it out, which is another matter
            continue
        if len({*places}) > 1:
            data = base.read_bytes(name)
            if all(side.read_bytes(new) == data for side, new in zip(sides, places, strict=True)):
                continue  # nothing in one that the other would miss
            raise HistoryError(
                "file was moved to two places", where=name, got=" and ".join(places), hint=_HINT
            )
        new = places[0]
        if all(is_gone):
            if ours.read_bytes(new) == theirs.read_bytes(new):
                continue
        elif all(new in side.names() for side in sides):
            raise HistoryError(
                "file was moved onto one the other side has too",
                where=name,
                got=new,
                hint=_HINT,
            )
        yield FollowedFile(
            name=new, base=name, ours=here.get(name, name), theirs=there.get(name, name)
        )


def _moves(base: Side, side: Side) -> dict[str, str]:
    pairs = pair_files(base, side, has_renames=True)
    return {pair.move.a: pair.move.b for pair in pairs if pair.move is not None}


def _is_changed(base: Side, side: Side, name: str) -> bool:
    return side.read_bytes(name) != base.read_bytes(name)
