"""Formats of a JSON object with a member per record, which Python's json module reads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from aoebank.formats.protocol import Format, ParsedFile
from aoebank.formats.text.containers import scan_members
from aoebank.formats.text.record import member_text
from aoebank.formats.text.scan import start_scan


class MemberFormat(Format):
    """Finds a record in each member: its name is the key, its value is the strategy."""

    first_wins = False  # Python's json module keeps the last of two equal names
    brackets = b"{}"
    fatal_codes = frozenset({"AB105"})  # Python's json takes no mark: the file is ignored whole
    key_start: re.Pattern[str]  # Finds where a member starts (its group `key`)

    def parse(self, data: bytes, path: Path) -> ParsedFile:
        """Find the members of the object; conflict markers are reported once, as such."""
        scan = start_scan(data, path)
        scan_members(scan, self.key_start)
        return scan.file(self)

    def strategy_places(self, parsed: ParsedFile, number: int) -> Sequence[int]:
        """Return the offset of the value of the member."""
        return (member_text(parsed, number).value,)
