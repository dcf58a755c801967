"""A snapshot as a side."""

from __future__ import annotations

from pathlib import Path

from aoebank.errors import HistoryError
from aoebank.storage.sides import StoredSide


def open_snapshot_side(reference: str, *, root: Path) -> StoredSide:
    """Return the bank at `root` as it was in a snapshot or tag."""
    raise HistoryError("unknown snapshot or tag", where=f"snapshot:{reference}", got=str(root))
