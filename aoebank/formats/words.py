"""A record in words: what it computes and what its strategy does, as a line and as a block.

Each format tells what it knows (`Format.workload_words`, `Format.strategy_words`); members by
their names are what is left where it knows nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aoebank.formats.registry import get_format
from aoebank.formats.text.json_text import dumps_compact
from aoebank.formats.text.member_words import member_text
from aoebank.model.digest import sha256_of
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Record

WIDTH = 160
_STRATEGY_WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordWords:
    """A record in words."""

    computes: str  # Its workload, in one line
    # Its strategy: the first line says it in short, those that follow in detail, lines indented
    # that belong to the one above.
    strategy: tuple[str, ...]

    @property
    def strategy_line(self) -> str:
        """The strategy in one line."""
        return _cut(self.strategy[0], _STRATEGY_WIDTH)


def words_of(record: Record) -> RecordWords:
    """Return a record in words.

    >>> record = Record(key="k", strategy={"tile": [16, 4]}, workload={"m": 16, "shape": [1, 3]})
    >>> words_of(record)
    RecordWords(computes='m=16 shape=[1,3]', strategy=('tile=[16,4]',))
    """
    told = tuple(get_format(record.format).strategy_words(record))
    return RecordWords(
        computes=_workload_words(record)[0],
        strategy=told or (_members(record.strategy) or "empty",),
    )


def workload_line(record: Record, width: int = WIDTH) -> str:
    """Return the workload of a record as one line that no other workload has.

    Words leave out what most workloads share, and a long text is cut: such a line ends in a digest
    of the whole workload.
    """
    words, is_whole = _workload_words(record)
    if is_whole and len(words) <= width:
        return words
    digest = sha256_of(dumps_compact(record.workload).encode("utf-8"))[:8]
    return f"{_cut(words, width)} ({digest})"


def _workload_words(record: Record) -> tuple[str, bool]:
    """Return a workload in words, and whether they have all of it."""
    if words := get_format(record.format).workload_words(record):
        return words, False
    return _members(record.workload), True


def _members(value: JsonValue) -> str:
    """Return an object by its members, anything else as JSON."""
    if not isinstance(value, Mapping):
        return dumps_compact(value)
    return " ".join(member_text(name, member) for name, member in value.items())


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."
