"""Files of a three-way comparison that one side gave another name, and the other side changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from aoebank.diffing.pair_files import pair_files
from aoebank.errors import HistoryError
from aoebank.storage.sides.side import Side

_HINT = "give it one name on both sides; or --no-renames, for files of their own"


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedFile:
    """What one file is called on each side, and in the result."""

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
