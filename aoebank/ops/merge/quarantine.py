"""Merge three versions of a quarantine."""

from __future__ import annotations

from pathlib import Path

from aoebank.model.quarantine import QuarantineEntry
from aoebank.storage.quarantine import parse_quarantine, serialize_quarantine

_Entries = dict[tuple[str | None, ...], QuarantineEntry]


def merge_quarantines(base: bytes, ours: bytes, theirs: bytes, path: Path) -> bytes:
    """Return the quarantine both sides want; in doubt a bad record stays out.

    | ours, against the base | theirs | result |
    |---|---|---|
    | as it was | removed | removed |
    | changed, or new | removed, or not there | ours |
    | changed | changed another way | the newer of both |

    Raises:
        BankFormatError: a line of one of them is no entry.
    """
    sides = [_entries(data, path) for data in (base, ours, theirs)]
    old, left, right = sides
    kept = []
    for identity in dict.fromkeys([*left, *right]):
        before = old.get(identity)
        mine, other = left.get(identity), right.get(identity)
        if before is not None and before in (mine, other) and None in (mine, other):
            continue  # one side took it out, the other one did not touch it
        there = [each for each in (mine, other) if each is not None]
        kept += [each for each in there if each != before] or there
    return serialize_quarantine(kept)  # of equal identities it writes the newest


def _entries(data: bytes, path: Path) -> _Entries:
    return {entry.identity: entry for entry in parse_quarantine(data, path)}
