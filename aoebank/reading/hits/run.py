"""The verb: read logs and results, and count which records of banks they have found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from aoebank.errors import BankNotFoundError, BankPathError, BankPermissionError
from aoebank.formats.protocol import ParsedFile
from aoebank.reading.hits.documents import document_lookups
from aoebank.reading.hits.logs import log_lookups
from aoebank.reading.hits.result import BankLookup, HitsResult, RecordUse
from aoebank.storage.sides.side import Side, listing_of

_DOCUMENT = ".json"
_LOGS = (".log", ".txt")
"""Files of a folder that are looked into; a file somebody names always is."""


def hits(logs: Sequence[Path], sides: Sequence[Side]) -> HitsResult:
    """Return the look-ups logs and results tell of, and which records of banks they found.

    Args:
        logs: Files, and folders to look for files in.
        sides: Banks; none to only count.

    Raises:
        BankNotFoundError: a path is not there.
    """
    found: list[BankLookup] = []
    silent: list[Path] = []
    closed: list[BankPathError] = []
    for file in _files(logs):
        read = document_lookups if file.suffix == _DOCUMENT else log_lookups
        try:
            lookups = [*read(file)]
        except OSError as error:
            problem = f"cannot be read: {error.strerror}"
            closed.append(BankPermissionError(problem, path=file))
            continue
        found += lookups
        if not lookups:
            silent.append(file)
    told = HitsResult(lookups=tuple(found), silent=tuple(silent), records=())
    records = [use for side in sides for use in _uses(side, told.hit_keys, closed)]
    return replace(told, records=tuple(records), closed=tuple(closed))


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.exists():
            raise BankNotFoundError("no such log or result", path=path)
        if not path.is_dir():
            yield path
            continue
        for file in sorted(path.rglob("*")):
            if file.suffix in (_DOCUMENT, *_LOGS) and file.is_file():
                yield file


def _uses(side: Side, keys: Counter[str], closed: list[BankPathError]) -> Iterator[RecordUse]:
    names, unlisted = listing_of(side)
    closed += unlisted
    for name in names:
        try:
            parsed = side.load(name)
        except BankPathError as error:
            closed.append(error)
            continue
        if parsed is not None:
            used = used_keys(parsed, keys)
            for key in parsed.keys:
                yield RecordUse(bank=side.label, file=name, key=key, hits=used[key])


def used_keys(parsed: ParsedFile, keys: Mapping[str, int]) -> Counter[str]:
    """Return the number of times the records of a file were found, by key.

    Args:
        keys: How often a look-up found each key, or the number a log calls a record by.
    """
    used = Counter({key: keys[key] for key in parsed.keys if key in keys})
    for number, hits in keys.items():
        if number.isdecimal():
            for key in parsed.format.iter_keys_of_id(parsed, int(number)):
                if key != number:
                    used[key] += hits
    return used
