"""Lines of one version of a file looked up in another, which mostly is the same."""

from __future__ import annotations

from aoebank.formats.protocol import ParsedFile


class KnownLines:
    """Tells the key of a line that a parsed file has too.

    Two versions of a bank mostly have the same lines in the same order, so the line behind the
    last one found is tried first, then the one behind that; only then a table is asked.
    """

    def __init__(self, parsed: ParsedFile) -> None:
        self._parsed = parsed
        self._next = 0
        self._table: dict[int, int] | None = None

    def find_key(self, raw: bytes) -> str | None:
        """Return the key of a record with these very bytes, or None if there is none."""
        for number in (self._next, self._next + 1):
            if self._is_at(number, raw):
                self._next = number + 1
                return self._parsed.keys[number]
        if self._table is None:
            self._table = {
                hash(self._parsed.raw(place)): place for place in range(len(self._parsed))
            }
        found = self._table.get(hash(raw))
        if found is None or not self._is_at(found, raw):
            return None
        self._next = found + 1
        return self._parsed.keys[found]

    def _is_at(self, number: int, raw: bytes) -> bool:
        parsed = self._parsed
        if number >= len(parsed.keys):
            return False
        start = parsed.starts[number]
        return parsed.ends[number] - start == len(raw) and parsed.data.startswith(raw, start)
