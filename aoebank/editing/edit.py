"""The verb: set or unset fields in the records of an operator, all files or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from aoebank.diffing.fields import FieldChange, diff_fields, field_value
from aoebank.errors import BankFormatError, BankNotFoundError, UsageError
from aoebank.formats.protocol import FieldEdit, ParsedFile, raise_if_broken
from aoebank.formats.release import NEWEST, Release, StrategyField
from aoebank.formats.releases import guess_release
from aoebank.formats.text import json_text
from aoebank.formats.text.json_text import dumps_compact
from aoebank.formats.text.splice import edit_members
from aoebank.model.digest import canonical_text
from aoebank.model.display import RichDisplay
from aoebank.model.finding import Location
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Record
from aoebank.report.output import Report, Text, location_document, members, plural
from aoebank.selection import RecordFilter, demand_case, holds_record
from aoebank.storage.bank import load_file
from aoebank.storage.bank_change import BankChange
from aoebank.storage.binary_caches import demand_no_binary_cache
from aoebank.storage.tree import TreeEntry
from aoebank.validation.schema import find_own_release

_CLOSE = 3
_WORKLOAD, _STRATEGY = "info_dict.", "knowledge."


@dataclass(frozen=True, slots=True, kw_only=True)
class EditRequest:
    """One change of many records."""

    paths: tuple[Path, ...]  # Bank files and trees
    op: str  # The operator type
    # New values by field of the strategy.
    assign: Mapping[str, JsonValue] = field(default_factory=dict)
    unset: tuple[str, ...] = ()  # Fields that go
    # Only records with these values, by field of the strategy or the workload; a name may start
    # with `knowledge.` or `info_dict.`, for one that both have.
    where: Mapping[str, JsonValue] = field(default_factory=dict)
    soc: tuple[str, ...] = ()  # Only files of these targets; patterns as in a shell
    # Fields to set though the reader does not know them or not so, or to unset though it needs
    # them.
    allow: tuple[str, ...] = ()
    reader: Release | None = None  # Whose fields count; None: what fields in the files tell
    is_dry_run: bool = False


def parse_values(texts: Iterable[str], option: str) -> dict[str, JsonValue]:
    """Return values by field, of texts such as `stepM=2`.

    Raises:
        UsageError: a text is none, or a field comes twice.

    >>> parse_values(["stepM=2", "isC04Flag=false"], "--set")
    {'stepM': 2, 'isC04Flag': False}
    """
    values: dict[str, JsonValue] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError("no field and value", where=option, got=text, expected="FIELD=VALUE")
        if name in values:
            raise UsageError("field comes twice", where=option, got=name)
        try:
            values[name] = json_text.loads(value)
        except json_text.JsonTextError as error:
            raise UsageError(
                "value is no JSON",
                where=f"{option} {name}",
                got=value or "nothing",
                expected="a number, true, false, or a text in double quotes",
            ) from error
    return values


def demand_sense(request: EditRequest) -> None:
    """Raise `UsageError` for a request that says nothing, or two things."""
    if not request.op:
        raise UsageError("names no operator", where="--op")
    if not request.assign and not request.unset:
        raise UsageError("changes nothing", where="edit", hint="--set FIELD=VALUE or --unset FIELD")
    both = sorted(request.assign.keys() & {*request.unset})
    if both:
        raise UsageError("field is set and unset", where="--set, --unset", got=both[0])


def demand_known(
    request: EditRequest,
    fields: Mapping[str, StrategyField] | None,
    records: Collection[Record],
    reader: Release,
) -> None:
    """Raise `UsageError` for a field or a value the reader would not take.

    Args:
        fields: What it knows; None: nobody knows, and what records have counts.
        records: Those of the operator.
    """
    present = {name for record in records for name in _members(record.strategy)}
    known = present if fields is None else fields.keys()
    for name, value in request.assign.items():
        if name in request.allow:
            continue
        if name not in known:
            raise _unknown(f"--set {name}", name, known, records, reader if fields else None)
        if fields is not None and not fields[name].accepts(value):
            raise UsageError(
                f"value is none {_called(reader)} takes as it is",
                where=f"--set {name}",
                got=json_text.dumps(value),
                expected=fields[name].expected,
                hint=f"--allow {name} sets it all the same",
            )
    for name in request.unset:
        if name not in present and name not in known:
            raise _unknown(f"--unset {name}", name, present | {*known}, records, None)
        if fields and name in fields and fields[name].is_required and name not in request.allow:
            raise UsageError(
                f"{_called(reader)} needs this field: without it a kernel gets what was in memory",
                where=f"--unset {name}",
                hint=f"--allow {name} takes it out all the same",
            )


def _unknown(
    where: str,
    name: str,
    known: Collection[str],
    records: Collection[Record],
    reader: Release | None,
) -> UsageError:
    close = get_close_matches(name.strip(), sorted(known), n=_CLOSE)
    in_workload = any(name in _members(record.workload) for record in records)
    problem = "no field of the strategy" + (f" in {_called(reader)}" if reader else "")
    if in_workload:
        problem += ", but one of the workload, by which readers find the record"
    return UsageError(
        problem,
        where=where,
        got=json_text.dumps(name),
        expected=" or ".join(close) if close else None,
        hint=f"--allow {name} sets it all the same; --reader names another release"
        if reader and not in_workload
        else "",
    )


def holds(where: Mapping[str, JsonValue], record: Record) -> bool:
    """True if a record has these values; a name that two structs have is ambiguous.

    Raises:
        UsageError: a name is in strategy and workload, and does not say which.
    """
    return all(_has(record, name, value) for name, value in where.items())


def _has(record: Record, name: str, value: JsonValue) -> bool:
    workload, strategy = _members(record.workload), _members(record.strategy)
    if name.startswith(_WORKLOAD):
        found, name = workload, name.removeprefix(_WORKLOAD)
    elif name.startswith(_STRATEGY):
        found, name = strategy, name.removeprefix(_STRATEGY)
    elif name in workload and name in strategy:
        raise UsageError(
            "strategy and workload have this field",
            where=f"--where {name}",
            expected=f"{_STRATEGY}{name} or {_WORKLOAD}{name}",
        )
    else:
        found = strategy if name in strategy else workload
    return name in found and _is_same(found[name], value)


def _is_same(a: JsonValue, b: JsonValue) -> bool:
    """True if two values are equal, numbers by value: 1 is 1.0, and neither is true."""
    numbers = (int, float)
    is_finite = isinstance(a, numbers) and a - a == 0
    if is_finite and isinstance(a, numbers) and isinstance(b, numbers):
        return isinstance(a, bool) == isinstance(b, bool) and a == b
    return canonical_text(a) == canonical_text(b)


def _called(reader: Release) -> str:
    return "the newest release" if reader is NEWEST else reader.name


def _members(value: JsonValue) -> Mapping[str, JsonValue]:
    return value if isinstance(value, Mapping) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class EditedFile:
    """One file with records of the operator."""

    path: Path
    records: int  # How many of the operator
    matched: int  # How many of them were meant
    changed: int  # How many of those are not what they were


@dataclass(frozen=True, slots=True, kw_only=True)
class EditedField:
    """One value of a field that became another one: in how many records, and where the first is."""

    change: FieldChange
    records: int
    example: Location | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class EditResult(RichDisplay):
    """Files, records and fields that an edit changed."""

    shown_by = "aoebank.editing.edit:EditReport"
    rows_in = "files"

    op: str
    files: tuple[EditedFile, ...]
    fields: tuple[EditedField, ...]
    written: tuple[Path, ...]  # Files with a new content; none for a dry run
    # Release the fields were checked against; None where nobody knows the operator.
    reader: Release | None
    is_guessed: bool  # Whether fields in the files told the reader

    @property
    def matched(self) -> int:
        """Return the number of records that were meant."""
        return sum(file.matched for file in self.files)

    @property
    def changed(self) -> int:
        """Return the number of records that changed."""
        return sum(file.changed for file in self.files)


@dataclass(slots=True)
class _Tally:
    """Changes so far, by the spelling of a value before and after."""

    numbers: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    examples: dict[tuple[str, str, str], tuple[FieldChange, Location | None]] = field(
        default_factory=dict
    )

    def add(self, before: Record, after: Record) -> None:
        """Add a record that changed, its further answers too."""
        for old, new in zip(_strategies(before), _strategies(after), strict=True):
            for change in diff_fields(old, new):
                name = (
                    change.pointer,
                    _spell(change.a, change.has_a),
                    _spell(change.b, change.has_b),
                )
                self.numbers[name] += 1
                self.examples.setdefault(name, (change, before.location))

    def fields(self) -> Iterator[EditedField]:
        """Yield the changes of fields, the most frequent first."""
        for name, records in self.numbers.most_common():
            change, example = self.examples[name]
            yield EditedField(change=change, records=records, example=example)


def edit(request: EditRequest) -> EditResult:
    """Change fields of strategies, byte for byte nothing else; all files or none.

    Raises:
        UsageError: the request means nothing, or the reader would not take its result.
        BankNotFoundError: a path is not there, or no file has records of the operator.
        BankFormatError: a file is broken, or its strategies have no fields.
        BankPathError: a file has a binary twin, or cannot be written; nothing is changed.
    """
    demand_sense(request)
    change = BankChange(request.paths, is_dry_run=request.is_dry_run)
    entries = change.find_banks()
    demand_case(RecordFilter(soc=request.soc), [entry.path.name for entry in entries])
    banks = [parsed for entry in entries if (parsed := _load(entry, request)) is not None]
    found = [(parsed, numbers) for parsed in banks if (numbers := _find_records(parsed, request))]
    if not found:
        raise _no_operator(request, banks)
    reader = request.reader or find_own_release(entry.path for entry in entries)
    guess = None if reader else guess_release((request.op, parsed.data) for parsed, _ in found)
    reader = reader or (guess.release if guess else NEWEST)
    is_checked = _demand_known(request, found, reader)
    tally, files = _Tally(), []
    for parsed, numbers in found:
        replaced, matched = _edited_records(parsed, numbers, request)
        if replaced:
            after = change.splice(parsed, replaced=replaced)
            for number in replaced:
                tally.add(numbers[number], _read_edited(parsed, after, number))
        files.append(
            EditedFile(
                path=parsed.path, records=len(numbers), matched=matched, changed=len(replaced)
            )
        )
    return EditResult(
        op=request.op,
        files=tuple(files),
        fields=tuple(tally.fields()),
        written=change.write(),
        reader=reader if is_checked else None,
        is_guessed=guess is not None,
    )


def _load(entry: TreeEntry, request: EditRequest) -> ParsedFile | None:
    """Return a file that may hold records of the operator."""
    parsed = load_file(entry.path)
    name = parsed.name
    target = name.soc_version if name is not None else None
    if target is not None and not RecordFilter(soc=request.soc).holds_soc(target):
        return None
    if name is not None and name.op_type not in (None, request.op):
        return parsed.format.parse(b"", parsed.path)  # for the names of operators there are
    raise_if_broken(parsed)
    return parsed


def _find_records(parsed: ParsedFile, request: EditRequest) -> dict[int, Record]:
    """Return the records of the operator by position, with records that no reader uses."""
    wanted = RecordFilter(soc=request.soc)
    records = ((number, parsed.format.record(parsed, number)) for number in range(len(parsed)))
    return {
        number: record
        for number, record in records
        if record.op_type == request.op and holds_record(wanted, record)
    }


def _no_operator(request: EditRequest, banks: Sequence[ParsedFile]) -> BankNotFoundError:
    names = {parsed.name.op_type for parsed in banks if parsed.name} - {None}
    known = sorted(str(name) for name in names)
    close = get_close_matches(request.op, known, n=3, cutoff=0.3) or known[:3]
    return BankNotFoundError(
        "no record of this operator",
        path=request.paths[0],
        got=request.op,
        expected=" or ".join(close) or "a bank file",
    )


def _demand_known(
    request: EditRequest, found: Sequence[tuple[ParsedFile, Mapping[int, Record]]], reader: Release
) -> bool:
    """Check the request against what readers know of the operator; return whether anybody does."""
    by_format: dict[str, list[tuple[ParsedFile, Mapping[int, Record]]]] = {}
    for parsed, numbers in found:
        demand_no_binary_cache(parsed.path, parsed.format)
        if not parsed.format.edits_fields and any(
            not parsed.format.strategy_places(parsed, number) for number in numbers
        ):
            raise BankFormatError(
                "strategies here have no fields that could be named",
                path=parsed.path,
                got=f"format {parsed.format.name}",
            )
        by_format.setdefault(parsed.format.name, []).append((parsed, numbers))
    is_checked = False
    for files in by_format.values():
        format_ = files[0][0].format
        fields = format_.read_by(reader).strategy_fields(request.op)
        records = [record for _, numbers in files for record in numbers.values()]
        demand_known(request, fields, records, reader)
        is_checked |= fields is not None
    return is_checked


def _edited_records(
    parsed: ParsedFile, numbers: Mapping[int, Record], request: EditRequest
) -> tuple[dict[int, bytes], int]:
    """Return the new bytes of records that change, by position, and how many were meant."""
    meant = [number for number, record in numbers.items() if holds(request.where, record)]
    values = {name: dumps_compact(value) for name, value in request.assign.items()}
    replaced = {}
    edit = FieldEdit(assign=request.assign, unset=request.unset)
    for number in meant:
        row = parsed.format.edit_strategy(parsed, number, edit)
        text = parsed.text(number)
        for place in reversed(parsed.format.strategy_places(parsed, number)):
            text = edit_members(text, place, values, request.unset)
        raw = text.encode("utf-8") if row is None else row
        if raw != parsed.raw(number):
            replaced[number] = raw
    return replaced, len(meant)


def _read_edited(before: ParsedFile, after: ParsedFile, number: int) -> Record:
    """Return a record with its edit; raise if that is another workload now."""
    old, new = before.format.record(before, number), after.format.record(after, number)
    is_same = canonical_text(old.workload) == canonical_text(new.workload)
    if not is_same or after.keys[number] != before.keys[number]:
        raise BankFormatError(
            "edit would change more than it was asked to, and nothing is written",
            path=before.path,
            got=f"record {before.keys[number]}",
            expected="other strategies of the operator alone",
            hint="report this with the file, please",
        )
    return new


def _strategies(record: Record) -> list[JsonValue]:
    return [record.strategy, *(other.strategy for other in record.alternatives)]


def _spell(value: JsonValue, is_there: bool) -> str:
    return canonical_text(value) if is_there else ""


# ---- what is printed ----


@dataclass(frozen=True, slots=True, kw_only=True)
class EditReport(Report):
    """The values that changed, then a line per file, then the counts."""

    result: EditResult
    is_dry_run: bool = False
    schema: str = "aoebank.edit/1"

    @property
    def exit_code(self) -> int:
        """Return 1 if no record was meant."""
        return 0 if self.result.matched else 1

    def document(self) -> Mapping[str, object]:
        result = self.result
        return {
            "op": result.op,
            "dry_run": self.is_dry_run,
            "reader": None
            if result.reader is None
            else members(result, "name=reader.name source=reader.source guessed=is_guessed"),
            **members(result, "matched changed"),
            "files": [members(file, "path records matched changed") for file in result.files],
            "fields": [_field_document(edited) for edited in result.fields],
            "written": [str(path) for path in result.written],
        }

    def write(self, text: Text) -> None:
        result = self.result
        for edited in result.fields:
            old, new = (field_value(edited.change, of_b=of_b) for of_b in (False, True))
            example = f", such as {edited.example}" if edited.example else ""
            text.line(
                (f"{edited.change.member}: {old} -> {new}", "bold"),
                f"  {plural(edited.records, 'record')}",
                (example, "dim"),
            )
        for file in result.files:
            if not file.changed:
                continue
            text.line(f"  {file.path}  {file.changed} of {plural(file.records, 'record')}")
        judged = "nobody knows the fields of this operator: unchecked"
        if result.reader is not None:
            how = "as fields in the files tell" if result.is_guessed else "as asked for"
            judged = f"checked as {result.reader.name} reads them, {how}"
        end = ", nothing written (dry run)" if self.is_dry_run else ""
        text.line(
            f"{result.changed} changed of {plural(result.matched, 'record')} of {result.op} meant, "
            f"in {plural(len(result.files), 'file')}{end}; {judged}"
        )


def _field_document(field: EditedField) -> dict[str, object]:
    change = field.change
    found: dict[str, object] = {"field": change.member, "records": field.records}
    if change.has_a:
        found["a"] = change.a
    if change.has_b:
        found["b"] = change.b
    found["example"] = location_document(field.example) if field.example else None
    return found
