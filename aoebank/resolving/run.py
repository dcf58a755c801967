"""Find which directory and which files each reader would use, and say why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aoebank.errors import AoebankError, BankPathError, RecordError, UsageError, shell_word
from aoebank.formats import registry
from aoebank.formats.protocol import ParsedFile, find_error
from aoebank.formats.text import json_text
from aoebank.model.display import RichDisplay
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Record
from aoebank.model.resolution import (
    Failure,
    FoundFile,
    Hazard,
    Hit,
    Match,
    Query,
    Reader,
    ReaderAnswer,
    ReaderOutcome,
    Tier,
    UnionRule,
)
from aoebank.parameters.context import current_day
from aoebank.resolving.hazards import find_hazards
from aoebank.storage.bank import load_file
from aoebank.storage.quarantine import load_quarantine
from aoebank.storage.readers.environment import find_answer
from aoebank.storage.readers.places import Surroundings
from aoebank.storage.readers.rules import RULES


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedWorkload:
    """Workload to look for: its keys where they are known, else the workload itself."""

    value: JsonValue
    # Keys the workload has in a format, as its readers compute them, the text as given first.
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    format: str | None = None  # The only format to look into, None for all


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
        if (keys := tuple(known.iter_keys(text, value, op_type)))
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
    keys = {record.format: (record.key,)}
    return WantedWorkload(value=record.workload, keys=keys, format=record.format)


def find_matches(
    answers: Iterable[ReaderAnswer], workload: WantedWorkload, query: Query
) -> Iterator[Match]:
    """Yield, per reader whose format can hold the workload, what it finds.

    Where the query leaves target or core number open, that is one match for each of them.
    """
    for answer in answers:
        rules = RULES[answer.reader]
        if workload.format not in (None, rules.format):
            continue
        hits: list[Hit] = []
        broken: list[Path] = []
        kept_out: list[Hit] = []
        for file in answer.files:
            parsed = _load(file.path)
            is_broken = parsed is None or find_error(parsed) is not None
            if is_broken:
                broken.append(file.path)
            if parsed is None or (is_broken and not rules.keeps_good_lines):
                continue
            record = _find(parsed, workload)
            if record is not None:
                is_kept_out = rules.obeys_quarantine and _is_kept_out(record, file.path, answer)
                (kept_out if is_kept_out else hits).append(Hit(file=file, record=record))
        if rules.fastest_wins or answer.union is UnionRule.BEST:
            hits = _fastest_first(hits)
        for number, found in enumerate(_by_target(hits, query) or [[]]):
            yield Match(
                reader=answer.reader,
                used=found[0] if found else None,
                shadowed=tuple(found[1:]),
                broken=() if number else tuple(broken),  # told once for all targets
                kept_out=() if number else tuple(kept_out),
            )


def _is_kept_out(record: Record, path: Path, answer: ReaderAnswer) -> bool:
    """True if the quarantine of the bank of a record, or of the one that is written, names it."""
    roots = [answer.root, *(root for root in answer.roots if path.is_relative_to(root))]
    today = current_day()
    return any(
        load_quarantine(root).find(record, today=today) is not None
        for root in dict.fromkeys(roots)
        if root is not None
    )


def _by_target(hits: Iterable[Hit], query: Query) -> list[list[Hit]]:
    """Return hits apart by target and core number, unless the query names them.

    A job opens the files of its own target, so that the record of another one hides nothing.
    """
    groups: dict[tuple[object, object], list[Hit]] = {}
    for hit in hits:
        name = registry.get_format(hit.record.format).parse_name(hit.file.path.name)
        soc = name.soc_version if name and query.soc_version is None else None
        cores = name.core_num if name and query.core_num is None else None
        groups.setdefault((soc, cores), []).append(hit)
    return [*groups.values()]


def record_hazards(query: Query, matches: Iterable[Match]) -> Iterator[Hazard]:
    """Yield the hazards of the records in use."""
    for match in matches:
        if match.used is not None:
            yield from _slower(match.reader, match.used, match.shadowed)
            if match.used.file.soc_version != query.soc_version:
                yield _foreign(match.reader, match.used.file)
        for hit in match.kept_out:
            yield Hazard(
                code="AR304",
                path=hit.file.path,
                readers=(match.reader,),
                message=f"{hit.record.key} is in quarantine, so {match.reader} passes it over",
                hint="aoebank quarantine list tells why",
            )
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


ANYTHING = Query()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ResolveResult(RichDisplay):
    """Bank, files and records each reader would use."""

    shown_by = "aoebank.resolving.report:ResolveReport"
    rows_in = "readers"

    query: Query
    answers: tuple[ReaderAnswer, ...]  # One per reader, in the order asked
    hazards: tuple[Hazard, ...]  # What surprises people about these places
    # One per reader whose format can hold the workload, and per target and core number that the
    # query leaves open; empty if no workload was given.
    matches: tuple[Match, ...] = ()
    has_workload: bool = False  # Whether a record was asked for
    is_explicit: bool = False  # Whether the readers were named, so that each of them counts

    @property
    def error(self) -> AoebankError | None:
        """Return the first error that ends a job.

        In a survey of all readers a machine without CANN is no error: only what is said of
        the custom bank counts.
        """
        return next(
            (
                trouble.error
                for answer in self.answers
                for trouble in answer.troubles
                if trouble.failure is Failure.STOP
                and (self.is_explicit or trouble.tier is Tier.CUSTOM)
            ),
            None,
        )

    @property
    def is_found(self) -> bool:
        """True if what was asked for is found: by each reader named, else by any."""
        if any(answer.ignores_custom for answer in self.answers):
            return False
        found = [
            answer.outcome in (ReaderOutcome.CUSTOM, ReaderOutcome.BUILT_IN)
            for answer in self.answers
        ]
        if self.has_workload:
            users = {match.reader for match in self.matches if match.used is not None}
            found = [answer.reader in users for answer in self.answers]
        return all(found) if self.is_explicit else any(found)


def resolve(
    *,
    around: Surroundings,
    query: Query = ANYTHING,
    readers: Sequence[Reader] = (),
    writers: bool = False,
    workload: WantedWorkload | None = None,
) -> ResolveResult:
    """Return the bank of each reader; a bank that cannot be used is a result too.

    Args:
        around: Environment, options and permissions to go by.
        query: What is looked for.
        readers: Readers whose rules to follow; none stands for the ones of `default_readers`.
        writers: Whether that is all writers instead of all readers.
        workload: What to look for in the files found.
    """
    asked = tuple(dict.fromkeys(readers)) or default_readers(query, writers=writers)
    answers = tuple(find_answer(reader, around, query, writes=writers) for reader in asked)
    matches = tuple(find_matches(answers, workload, query)) if workload else ()
    hazards = [*find_hazards(around, query, answers), *record_hazards(query, matches)]
    return ResolveResult(
        query=query,
        answers=answers,
        hazards=tuple(hazards),
        matches=matches,
        has_workload=workload is not None,
        is_explicit=bool(readers),
    )


def default_readers(query: Query, *, writers: bool = False) -> tuple[Reader, ...]:
    """Return all readers, or all writers; for an op_type, only of operator banks."""
    return tuple(
        rules.reader
        for rules in RULES.values()
        if (rules.is_writer if writers else rules.is_reader)
        and (query.op_type is None or rules.is_operator)
    )
