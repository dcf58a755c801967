"""Keep records in quarantine from coming back with an old state of a bank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from aoebank.formats.protocol import ParsedFile, find_error
from aoebank.model.quarantine import Quarantine, QuarantineEntry
from aoebank.storage.quarantine import find_entry


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptOut:
    """A record that did not come back, and the entry that says why."""

    file: str
    key: str
    entry: QuarantineEntry


def find_quarantined(
    name: str, parsed: ParsedFile | None, quarantine: Quarantine, today: date
) -> Iterator[KeptOut]:
    """Yield the records of a file that have to stay out; none that cannot be read.

    Args:
        name: Path below the root, for the answer.
    """
    for key in dict.fromkeys(parsed.keys) if parsed is not None and len(quarantine) else ():
        entry = entry_for(parsed, key, quarantine, today)
        if entry is not None:
            yield KeptOut(file=name, key=key, entry=entry)


def entry_for(
    parsed: ParsedFile | None, key: str, quarantine: Quarantine, today: date
) -> QuarantineEntry | None:
    """Return the entry that keeps the record of a key out, or None."""
    number = parsed.find(key) if parsed is not None else None
    if parsed is None or number is None:
        return None
    return find_entry(parsed, number, quarantine, today=today)


def without(parsed: ParsedFile, kept_out: list[KeptOut]) -> bytes:
    """Return the bytes of a file without some records; broken files are left as they are."""
    if not kept_out or find_error(parsed) is not None:
        return parsed.data
    return parsed.format.serialize(parsed, dict.fromkeys(kept.key for kept in kept_out))
