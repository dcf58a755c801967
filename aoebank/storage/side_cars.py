"""Side-cars as they are read again and again: each line is parsed once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from aoebank.formats.provenance import parse_provenance, provenance_path
from aoebank.model.provenance import Provenance

Signature = tuple[int, int, int]
"""Time of change, size and inode: what tells that a file is another one."""


@dataclass(slots=True)
class _Known:
    """A side-car as far as it has been read."""

    data: bytes = b""
    entries: list[Provenance] = field(default_factory=list)
    by_key: dict[str, list[Provenance]] = field(default_factory=dict)

    def add(self, entries: Iterable[Provenance]) -> None:
        for entry in entries:
            self.entries.append(entry)
            self.by_key.setdefault(entry.key, []).append(entry)


class SideCars:
    """Reads the side-cars of bank files, again only when they have changed.

    A run asks for each of its operators and appends for each, so what counts is that neither
    reads the lines again that are known: of a side-car that has only grown, the rest is parsed.

    Args:
        read: Returns the bytes of a file, None if there is none.
        signature: Tells whether a file is the one it was, None if there is none.
    """

    def __init__(
        self,
        read: Callable[[Path], bytes | None],
        signature: Callable[[Path], Signature | None],
    ) -> None:
        self._read = read
        self._signature = signature
        self._known: dict[Path, tuple[Signature, _Known]] = {}

    def entries(self, file: Path, key: str | None = None) -> tuple[Provenance, ...]:
        """Return the lines of a side-car, oldest first.

        Args:
            file: The bank file.
            key: Record key; everything if None.
        """
        known = self._current(provenance_path(file))
        return tuple(known.entries if key is None else known.by_key.get(key, ()))

    def _current(self, side_car: Path) -> _Known:
        signature = self._signature(side_car)
        seen = self._known.get(side_car)
        if seen is not None and seen[0] == signature:
            return seen[1]
        data = self._read(side_car) or b""
        known = seen[1] if seen is not None else _Known()
        # a torn last line may have been finished since
        if not data.startswith(known.data) or not known.data.endswith(b"\n"):
            known = _Known()
        known.add(parse_provenance(data[len(known.data) :], side_car).entries)
        known.data = data
        if signature is not None:
            self._known[side_car] = (signature, known)
        return known
