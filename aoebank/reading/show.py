"""Show single records with all that is known about them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from aoebank.diffing.fields import plain
from aoebank.errors import BankPathError, RecordError, UsageError
from aoebank.formats.protocol import ParsedFile, find_error
from aoebank.formats.registry import format_of, get_format
from aoebank.formats.words import words_of
from aoebank.model.display import RichDisplay
from aoebank.model.json_value import JsonValue
from aoebank.model.provenance import Provenance
from aoebank.model.record import Record
from aoebank.report.output import Report, Text, location_document, members
from aoebank.report.table import fold
from aoebank.storage.sides.side import PathSide, Side
from aoebank.storage.tree import demand_bank_file

MIN_PREFIX = 4
_MOST = 2**32
_WIDTH = 100  # characters of a line: longer ones are hard to read
_INDENT = 15
_KEY = re.compile(r"[0-9a-f]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRecord:
    """A record, the file it is in, and its history, oldest first."""

    file: Path
    record: Record
    provenance: tuple[Provenance, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectorMiss:
    """Something asked for that is no record, or more than one, and why."""

    selector: str
    reason: str
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ShowResult(RichDisplay):
    """Records found and selectors that found none."""

    shown_by = "aoebank.reading.show:ShowReport"
    rows_in = "records"

    records: tuple[ShownRecord, ...]
    misses: tuple[SelectorMiss, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A bank file of a side."""

    side: Side
    name: str

    def load(self) -> ParsedFile:
        """Read it; one that is gone meanwhile has no records."""
        parsed = self.side.load(self.name)
        return format_of(Path(self.name)).parse(b"", Path(self.name)) if parsed is None else parsed


def show(selectors: Sequence[str], trees: Sequence[Side]) -> ShowResult:
    """Return the records that `KEY`, `ID`, `FILE` or `FILE:KEY` mean.

    Args:
        selectors: A key may be cut to four digits or more where that leaves one record; a number
            is also the 32-bit hash of a workload, or the id stored with it. None: all records of
            the sides in `trees` that are one file.
        trees: Where to look for keys without a file.

    Raises:
        UsageError: a selector is neither a file nor a key.
    """
    found: list[ShownRecord] = []
    misses: list[SelectorMiss] = []
    results = (result for selector in selectors for result in _select(selector, trees, misses))
    if not selectors:
        files = (place for place in _places(trees, misses) if not place.side.is_tree)
        results = (result for place in files for result in _shown(place.side.label, place, None))
    for result in results:
        if isinstance(result, SelectorMiss):
            misses.append(result)
        else:
            found.append(result)
    return ShowResult(records=tuple(found), misses=tuple(dict.fromkeys(misses)))


def _select(
    selector: str, trees: Sequence[Side], misses: list[SelectorMiss]
) -> Iterator[ShownRecord | SelectorMiss]:
    path, colon, key = Path(selector), "", ""
    if not is_file(path) and not selector.startswith("("):  # that is a key of FlashInfer
        name, colon, key = _split(selector)
        path = Path(name)
    if not colon and is_file(path):
        yield from _shown(selector, _on_disk(path), None)
    elif colon and is_file(path):
        is_digest = not key or _KEY.fullmatch(key)
        yield from _of_key(selector, _check_key(key) if is_digest else key, [_on_disk(path)])
    elif not colon:
        yield from _of_key(selector, _check_key(selector), _places(trees, misses))
    else:
        yield SelectorMiss(selector=selector, reason=f"no file {path}")


def _split(selector: str) -> tuple[str, str, str]:
    """Return file and key of a selector; both may have colons."""
    places = [place for place, sign in enumerate(selector) if sign == ":"]
    files = [place for place in places if is_file(Path(selector[:place]))]
    place = (files or places or [-1])[-1]
    return ("", "", selector) if place < 0 else (selector[:place], ":", selector[place + 1 :])


def is_file(path: Path) -> bool:
    """True for what is there and no folder: a link to nowhere and a pipe are files too."""
    try:
        return os.path.lexists(path) and not path.is_dir()
    except (OSError, ValueError):  # a name too long, a NUL in it
        return False


def _check_key(key: str) -> str:
    # a feature text, a number of rows, columns of a table, a class of sizes, a compute trait, a
    # device with what ran on it
    if key.isdecimal() or any(sign in key for sign in "[=,_./"):
        return key
    if len(key) < MIN_PREFIX or not _KEY.fullmatch(key):
        raise UsageError(
            "is neither a file nor a key",
            where=key,
            expected=f"a path, {MIN_PREFIX} or more hexadecimal digits, or an id",
        )
    return key.lower()


def _on_disk(path: Path) -> _Place:
    demand_bank_file(path)
    return _Place(side=PathSide(label=str(path), path=path), name=path.name)


def _places(trees: Sequence[Side], misses: list[SelectorMiss]) -> Iterator[_Place]:
    """Yield the bank files; what of the trees cannot be read is told among `misses`."""
    for side in trees:
        names, closed = side.listing()
        misses += (SelectorMiss(selector=str(error.path), reason=error.problem) for error in closed)
        yield from (_Place(side=side, name=name) for name in names)


def _of_key(
    selector: str, prefix: str, places: Iterable[_Place]
) -> Iterator[ShownRecord | SelectorMiss]:
    """Yield the record of the one key that is meant, of each file that has it."""
    number = int(prefix) if prefix.isdecimal() and len(prefix) <= len(str(_MOST)) else _MOST
    matches: list[tuple[_Place, Path, str]] = []
    broken: list[SelectorMiss] = []
    for place in places:
        try:
            parsed = place.load()
        except BankPathError as error:
            yield SelectorMiss(selector=str(error.path), reason=error.problem)
            continue
        is_key = prefix in parsed.places  # of `16` and `160`, short keys both, one is meant
        keys = {prefix} if is_key else {key for key in parsed.keys if key.startswith(prefix)}
        if number < _MOST:
            keys |= {*parsed.format.iter_keys_of_id(parsed, number)}
        matches += [(place, parsed.path, key) for key in sorted(keys)]
        fault = find_error(parsed)
        if fault is not None:
            broken.append(SelectorMiss(selector=str(fault.location), reason=fault.message))
    if len({key for _, _, key in matches}) > 1:
        keys_found = tuple(f"{path}:{key}" for _, path, key in matches)
        yield SelectorMiss(selector=selector, reason="more than one record", keys=keys_found)
        return
    if not matches:
        yield SelectorMiss(selector=selector, reason="no such record")
        yield from broken  # it may have been there
    for place, _, key in matches:  # banks of related targets have the same keys
        yield from _shown(selector, place, key)


def _shown(selector: str, place: _Place, key: str | None) -> Iterator[ShownRecord | SelectorMiss]:
    """Yield the record of one key, or of all."""
    try:
        parsed = place.load()
        entries = place.side.load_provenance(place.name).entries
    except BankPathError as closed:
        yield SelectorMiss(selector=str(closed.path), reason=closed.problem)
        return
    error = find_error(parsed)
    if error is not None and not len(parsed):
        yield SelectorMiss(selector=selector, reason=f"{error.location}: {error.message}")
    history: dict[str, list[Provenance]] = {}
    for entry in entries:
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


# ---- what is printed ----


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowReport(Report):
    """Records with their history, and what was not found."""

    result: ShowResult
    schema: str = "aoebank.show/1"

    @property
    def exit_code(self) -> int:
        """Return 1 if anything asked for is not there."""
        return 1 if self.result.misses else 0

    def document(self) -> Mapping[str, object]:
        return {
            "records": [_document(shown) for shown in self.result.records],
            "misses": [
                {"selector": miss.selector, "reason": miss.reason, "keys": list(miss.keys)}
                for miss in self.result.misses
            ],
        }

    def write(self, text: Text) -> None:
        for number, shown in enumerate(self.result.records):
            if number:
                text.line()
            _write(text, shown)
        for miss in self.result.misses:
            _write_miss(text, miss)


def _write_miss(text: Text, miss: SelectorMiss) -> None:
    text.line((f"{miss.selector}: ", "bold"), (miss.reason, "red"))
    for key in miss.keys:
        text.line(f"  {key}")


def _write(text: Text, shown: ShownRecord) -> None:
    record = shown.record
    words = words_of(record)
    place = str(record.location) if record.location else str(shown.file)
    text.line((record.key, "bold"), f"  {place}")
    cost = "not measured" if record.cost_us is None else f"{record.cost_us:g} us"
    facts = (
        (get_format(record.format).target_word, record.soc_version),
        ("op_type", record.op_type),
        ("time", cost),
        ("origin", record.origin),
        ("computes", words.computes),
        ("strategy", words.strategy[0]),
        *(("", line) for line in words.strategy[1:]),
        ("not used", ", ".join(f"{name} ({why})" for name, why in _unread(record).items())),
        ("alternatives", str(len(record.alternatives) or "")),
    )
    room = min(text.width or _WIDTH, _WIDTH) - _INDENT
    for name, value in facts:
        lines = fold(value, room) if value and value.strip() else ()
        for number, line in enumerate(lines):
            title = f"  {name + ':' if name and not number else '':<{_INDENT - 2}}"
            text.line((title, "dim"), line)
    for entry in shown.provenance:
        write_provenance(text, entry)


def write_provenance(text: Text, entry: Provenance) -> None:
    """Write when and by what a record was made, in one line."""
    speedup = ""
    if entry.speedup is not None:
        speedup = f", {entry.speedup:.2f}x"
        if entry.speedup_low is not None and entry.speedup_high is not None:
            speedup += f" ({entry.speedup_low:.2f}x to {entry.speedup_high:.2f}x)"
    samples = f", {len(entry.tuned_us)} samples" if entry.tuned_us else ""
    match entry.search.get("one_step_off"):
        case [int(off), int(of)] if off:  # the engine's count of integers rounded otherwise
            samples += f", {off:,} of {of:,} values one step off"
    model = f", model {entry.model['name']}" if "name" in entry.model else ""
    if "shape_range" in entry.model:
        model += f" over {entry.model['shape_range']}"
    text.line(
        ("  provenance:  ", "dim"),
        f"{entry.time} {entry.event} by {entry.engine}",
        f"{speedup}{samples}{model}",
    )


def _document(shown: ShownRecord) -> dict[str, object]:
    record = shown.record
    return {
        **members(record, "key format soc_version op_type"),
        "cost_us": _plain(record.cost_us),
        "origin": record.origin,
        "workload": _plain(record.workload),
        "names": _names(record),
        "words": members(words_of(record), "computes strategy"),
        "strategy": _plain(record.strategy),
        "unread": _unread(record),
        "extra": _plain(record.extra),
        "alternatives": [
            {
                "cost_us": _plain(alternative.cost_us),
                "origin": alternative.origin,
                "workload": _plain(alternative.workload),
                "strategy": _plain(alternative.strategy),
                "extra": _plain(alternative.extra),
            }
            for alternative in record.alternatives
        ],
        "location": location_document(record.location) if record.location else None,
        "provenance": [provenance_document(entry) for entry in shown.provenance],
    }


def provenance_document(entry: Provenance) -> dict[str, object]:
    """Return the members of an entry, its key left out."""
    members = {
        field.name: _plain(getattr(entry, field.name))
        for field in fields(entry)
        if field.name not in ("extra", "location", "key")
    }
    return {**members, "extra": _plain(entry.extra)}


def _names(record: Record) -> dict[str, str]:
    """Return the names of numbers in a workload, by member."""
    if not isinstance(record.workload, Mapping):
        return {}
    name_of = get_format(record.format).value_name
    names = {
        member: name_of(record.op_type, member, value) for member, value in record.workload.items()
    }
    return {member: name for member, name in names.items() if name}


def _unread(record: Record) -> dict[str, str]:
    """Return the reasons why no reader uses members of a strategy, by member."""
    if not isinstance(record.strategy, Mapping):
        return {}
    reason_of = get_format(record.format).unread_reason
    reasons = {member: reason_of(record.op_type, member) for member in record.strategy}
    return {member: reason for member, reason in reasons.items() if reason}


def _plain(value: JsonValue) -> object:
    return json.loads(json.dumps(plain(value)))
