"""Which record a reader would use for a workload, and which ones that hides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aoebank.errors import BankPathError, RecordError, UsageError, shell_word
from aoebank.formats import registry
from aoebank.formats.protocol import ParsedFile, find_error
from aoebank.formats.text import json_text
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Record
from aoebank.model.resolution import FoundFile, Hazard, Hit, Match, Query, Reader, ReaderAnswer
from aoebank.storage.bank import load_file
from aoebank.storage.readers.rules import RULES


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedWorkload:
    """What to look for: keys where they are known, else the workload itself.

    Attributes:
        keys: Keys the workload has in a format, as its readers compute them.
        format: The only format to look into, None for all.
    """

    value: JsonValue
    keys: Mapping[str, frozenset[str]] = field(default_factory=dict)
    format: str | None = None


def workload_from_text(text: str, *, op_type: str | None) -> WantedWorkload:
    """Return the workload a text spells: an `info_dict`, or a feature text of its own.

    Raises:
        UsageError: it starts like JSON and is none.
    """
    try:
        value = json_text.loads(text)
    except json_text.JsonTextError as error:
        if text.lstrip()[:1] in ("", "{"):
            raise UsageError(
                f"--shape: {error.problem}", expected="the JSON text of an info_dict"
            ) from error
        value = text  # the feature list of a vector bank is no JSON
    found = {
        known.name: keys
        for known in registry.FORMATS
        if (keys := frozenset(known.iter_keys(text, value, op_type)))
    }
    return WantedWorkload(value=value, keys=found)


def workload_from_file(path: Path) -> WantedWorkload:
    """Return the workload of the one record a file holds.

    Raises:
        UsageError: the file holds no record, or several.
        BankPathError: it cannot be read.
    """
    parsed = load_file(path)
    records = list(parsed.iter_records())
    if len(records) != 1:
        raise UsageError(
            "--record: not one record",
            got=f"{len(records)} in {path}",
            expected="a single one",
            hint=f"aoebank validate {shell_word(path)}",
        )
    (record,) = records
    keys = {record.format: frozenset({record.key})}
    return WantedWorkload(value=record.workload, keys=keys, format=record.format)


def find_matches(answers: Iterable[ReaderAnswer], workload: WantedWorkload) -> Iterator[Match]:
    """Yield, per reader whose format can hold the workload, what it finds."""
    for answer in answers:
        rules = RULES[answer.reader]
        if workload.format not in (None, rules.format):
            continue
        hits: list[Hit] = []
        broken: list[Path] = []
        for file in answer.files:
            parsed = _load(file.path)
            is_broken = parsed is None or find_error(parsed) is not None
            if is_broken:
                broken.append(file.path)
            if parsed is None or (is_broken and not rules.keeps_good_lines):
                continue
            record = _find(parsed, workload)
            if record is not None:
                hits.append(Hit(file=file, record=record))
        if rules.fastest_wins:
            hits = _fastest_first(hits)
        yield Match(
            reader=answer.reader,
            used=hits[0] if hits else None,
            shadowed=tuple(hits[1:]),
            broken=tuple(broken),
        )


def record_hazards(query: Query, matches: Iterable[Match]) -> Iterator[Hazard]:
    """Yield the hazards of the records in use."""
    for match in matches:
        if match.used is not None:
            yield from _slower(match.reader, match.used, match.shadowed)
            if match.used.file.soc_version != query.soc_version:
                yield _foreign(match.reader, match.used.file)
        for path in match.broken:
            yield Hazard(
                code="AR303",
                path=path,
                readers=(match.reader,),
                message=f"file is broken, so {match.reader} may see fewer records, or none",
                hint=f"aoebank validate {shell_word(path)}",
            )


def _slower(reader: Reader, used: Hit, shadowed: Iterable[Hit]) -> Iterator[Hazard]:
    for hidden in shadowed:
        ours, theirs = used.record.cost_us, hidden.record.cost_us
        if ours is not None and theirs is not None and theirs < ours:
            yield Hazard(
                code="AR301",
                path=used.file.path,
                readers=(reader,),
                message=f"{used.file.tier} record takes {ours:g} us and hides a "
                f"{hidden.file.tier} one of {theirs:g} us in {hidden.file.path}",
                hint="remove the slower record, or tune the workload again",
            )


def _foreign(reader: Reader, file: FoundFile) -> Hazard:
    return Hazard(
        code="AR302",
        path=file.path,
        readers=(reader,),
        message=f"record is one of {file.soc_version}, there is none for the soc_version asked for",
        hint="tune on the target itself",
    )


def _fastest_first(hits: list[Hit]) -> list[Hit]:
    """Return hits with the fastest of each tier and soc_version in front."""
    groups: dict[tuple[str, str | None], list[Hit]] = {}
    for hit in hits:
        groups.setdefault((hit.file.tier, hit.file.soc_version), []).append(hit)
    return [
        hit
        for group in groups.values()
        for hit in sorted(group, key=lambda found: found.record.cost_us or float("inf"))
    ]


def _load(path: Path) -> ParsedFile | None:
    try:
        return load_file(path)
    except BankPathError:
        return None


def _find(parsed: ParsedFile, workload: WantedWorkload) -> Record | None:
    numbers = (parsed.find(key) for key in workload.keys.get(parsed.format.name, ()))
    number = next((place for place in numbers if place is not None), None)
    try:
        if number is not None:
            return parsed.format.record(parsed, number)
    except RecordError:
        return None
    if parsed.format.is_found_by_key:
        return None
    same = (record for record in parsed.iter_records() if record.workload == workload.value)
    return next(same, None)
