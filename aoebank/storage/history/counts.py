"""How many records each snapshot moved, noted when it was taken: a log need not compare again.

A note beside a snapshot and no part of it: its id does not tell of it, a history without it is
whole, and `log --verify` counts again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aoebank.storage.history.database import transaction

if TYPE_CHECKING:
    from sqlite_utils import Database

_TABLE = "CREATE TABLE IF NOT EXISTS counts (snapshot TEXT PRIMARY KEY, moves TEXT, socs TEXT)"
_FIND = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'counts'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many records moved.

    Attributes:
        moves: By what happened to them.
        socs: By soc_version.
    """

    moves: Mapping[str, int]
    socs: Mapping[str, int]


def put_counts(database: Database, snapshot: str, counts: Counts) -> None:
    """Note the counts of a snapshot, by its full id; what is noted already stays."""
    texts = [json.dumps(dict(part), sort_keys=True) for part in (counts.moves, counts.socs)]
    with transaction(database):
        database.conn.execute(_TABLE)
        database.conn.execute("INSERT OR IGNORE INTO counts VALUES (?, ?, ?)", [snapshot, *texts])


def list_counts(database: Database) -> dict[str, Counts]:
    """Return the counts that are noted, by id; one that cannot be read is passed over."""
    if database.conn.execute(_FIND).fetchone() is None:
        return {}
    found = {}
    for snapshot, *texts in database.conn.execute("SELECT snapshot, moves, socs FROM counts"):
        try:
            moves, socs = (
                {str(name): int(number) for name, number in json.loads(text).items()}
                for text in texts
            )
        except (ValueError, TypeError, AttributeError):
            continue
        found[snapshot] = Counts(moves=moves, socs=socs)
    return found
