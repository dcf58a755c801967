"""Which records a command is about: globs on soc_version, op_type and key."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFilter:
    """Globs; one of each kind that is given has to match.

    Attributes:
        key: Also the start of a key.
    """

    soc: tuple[str, ...] = ()
    op: tuple[str, ...] = ()
    key: tuple[str, ...] = ()

    def holds_soc(self, *soc_versions: str) -> bool:
        """Return whether a file for one of these targets is meant."""
        return not self.soc or any(_matches(each, self.soc) for each in soc_versions)

    def holds_op(self, op_type: str | None) -> bool:
        """Return whether records of an operator type are meant."""
        return not self.op or _matches(op_type or "", self.op)

    def holds_key(self, key: str) -> bool:
        """Return whether a record is meant."""
        return not self.key or key.startswith(self.key) or _matches(key, self.key)


def _matches(text: str, patterns: tuple[str, ...]) -> bool:
    return any(text == pattern or fnmatchcase(text, pattern) for pattern in patterns)
