"""Show single records with all that is known about them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aoebank.errors import RecordError, UsageError
from aoebank.formats.protocol import ParsedFile, find_error
from aoebank.model.provenance import Provenance
from aoebank.model.record import Record
from aoebank.storage.bank import Bank, load_file, load_provenance

MIN_PREFIX = 4
_KEY = re.compile(r"[0-9a-f]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRecord:
    """A record, the file it is in, and its history, oldest first."""

    file: Path
    record: Record
    provenance: tuple[Provenance, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectorMiss:
    """Something asked for that is not one record, and why."""

    selector: str
    reason: str
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowResult:
    """Records found and selectors that found none."""

    records: tuple[ShownRecord, ...]
    misses: tuple[SelectorMiss, ...]


def show(selectors: Sequence[str], trees: Sequence[Path]) -> ShowResult:
    """Return the records that `KEY`, `FILE` or `FILE:KEY` mean.

    Args:
        selectors: A key may be cut to four digits or more where that leaves one record.
        trees: Where to look for keys without a file.

    Raises:
        UsageError: a selector is neither a file nor a key.
    """
    found: list[ShownRecord] = []
    misses: list[SelectorMiss] = []
    for selector in selectors:
        for result in _select(selector, trees):
            if isinstance(result, SelectorMiss):
                misses.append(result)
            else:
                found.append(result)
    return ShowResult(records=tuple(found), misses=tuple(misses))


def _select(selector: str, trees: Sequence[Path]) -> Iterator[ShownRecord | SelectorMiss]:
    path, colon, key = Path(selector), "", ""
    if not path.is_file():
        name, colon, key = selector.rpartition(":")
        path = Path(name)
    if not colon and path.is_file():
        yield from _shown(selector, load_file(path), None)
    elif colon and path.is_file():
        yield _one(selector, _check_key(key), [path])
    elif not colon:
        yield _one(selector, _check_key(selector), _files(trees))
    else:
        yield SelectorMiss(selector=selector, reason=f"no file {path}")


def _check_key(key: str) -> str:
    if len(key) < MIN_PREFIX or not _KEY.fullmatch(key):
        raise UsageError(
            "is neither a file nor a key",
            where=key,
            expected=f"a path, or {MIN_PREFIX} or more hexadecimal digits",
        )
    return key.lower()


def _files(trees: Sequence[Path]) -> Iterator[Path]:
    for tree in trees:
        yield from Bank(tree).iter_files()


def _one(selector: str, prefix: str, files: Iterable[Path]) -> ShownRecord | SelectorMiss:
    matches: list[tuple[ParsedFile, str]] = []
    for file in files:
        parsed = load_file(file)
        keys = {key for key in parsed.keys if key.startswith(prefix)}
        matches += [(parsed, key) for key in sorted(keys)]
    if len(matches) > 1:
        keys_found = tuple(f"{parsed.path}:{key}" for parsed, key in matches)
        return SelectorMiss(selector=selector, reason="more than one record", keys=keys_found)
    if not matches:
        return SelectorMiss(selector=selector, reason="no such record")
    parsed, key = matches[0]
    return next(_shown(selector, parsed, key))


def _shown(
    selector: str, parsed: ParsedFile, key: str | None
) -> Iterator[ShownRecord | SelectorMiss]:
    """Yield the record of one key, or of all."""
    error = find_error(parsed)
    if error is not None and not len(parsed):
        yield SelectorMiss(selector=selector, reason=f"{error.location}: {error.message}")
    history: dict[str, list[Provenance]] = {}
    for entry in load_provenance(parsed.path).entries:
        history.setdefault(entry.key, []).append(entry)
    for number, full_key in enumerate(parsed.keys):
        if parsed.find(full_key) != number or key not in (None, full_key):
            continue
        try:
            record = parsed.format.record(parsed, number)
        except RecordError as problem:
            yield SelectorMiss(selector=selector, reason=problem.headline)
            continue
        provenance = tuple(history.get(full_key, ()))
        yield ShownRecord(file=parsed.path, record=record, provenance=provenance)
