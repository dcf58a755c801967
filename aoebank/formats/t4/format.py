"""Results in the T4 format: an object whose member `results` has an item per configuration.

The format has no place for the device: `device_name` of `metadata` counts where somebody added it.

Source: kernel_tuner 1.5.0, store_output_file of file_utils.py and schema/T4/1.0.0, checked against
files it wrote. Its writer says `compilation` and `benchmark` where its schema says
`compilation_time`, and loses the name of a failure: the value of `__error__` is an empty text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import repeat
from pathlib import Path

from aoebank.errors import BankFormatError
from aoebank.formats.names import BankName
from aoebank.formats.protocol import FieldEdit, Format, ParsedFile
from aoebank.formats.structure import Structure
from aoebank.formats.text import constants, json_text, nested
from aoebank.formats.text.containers import scan_items
from aoebank.formats.text.member_words import member_text
from aoebank.formats.text.problem import Problem, RecordText, kind_of, missing, wrong_type
from aoebank.formats.text.record import cost_us, record_text, stored
from aoebank.formats.text.scan import start_scan
from aoebank.formats.text.splice import edit_members, splice
from aoebank.model.digest import canonical_text
from aoebank.model.finding import Finding, Location, make_finding
from aoebank.model.json_value import JsonObject, JsonValue
from aoebank.model.record import Record, with_raw
from aoebank.model.resolution import Query

RESULTS = "results"
HEAD = "head"
CORRECT = "correct"
OUTCOMES = ("timeout", "compile", "runtime", "correctness", "constraints", CORRECT)
STRUCTURE = Structure(schema="t4/1.json", record=("properties", "results", "items"), depth=1)
_ANSWER = ("invalidity", "correctness")
_US = {"s": 1e6, "seconds": 1e6, "ms": 1e3, "milliseconds": 1e3, "us": 1.0, "microseconds": 1.0}
_US |= {"ns": 1e-3, "nanoseconds": 1e-3}
_SCHEMA_TIMES = ("compilation_time", "runtimes", "framework", "search_algorithm", "validation")
_WRITER_TIMES = ("compilation", "benchmark")
_FILE_NAME = re.compile(r"(?:(?P<kernel>.+)[-_.])?[tT]4[-_]results\.json", re.DOTALL)
_CONTENT = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*\{\s*(?:"schema_version"\s*:\s*"[^"]*"\s*,\s*)?'
    rb'(?:"metadata"\s*:\s*\{[^{}]*\}\s*,\s*)?"results"\s*:\s*\[\s*'
    rb'(?:\{\s*"(?:timestamp|configuration|times|invalidity|objectives)"|\]\s*,\s*"schema_version")'
)
_ITEM_START = re.compile(r'\{\s*"(?:timestamp|configuration)"')
_TAIL = re.compile(
    rb'(?P<end>\])[ \t\r\n]*(?:,[ \t\r\n]*"(?:schema_version|metadata)"|\}[ \t\r\n]*\Z)'
)


class T4Format(Format):
    """Reads and writes results in the T4 format, under any name."""

    name = "t4"
    empty = b'{"results": [], "schema_version": "1.0.0"}\n'
    content = _CONTENT  # An object starts with a list of results
    globs = ("*[tT]4[-_]results.json",)
    name_pattern = "[<kernel>-]t4-results.json, or any name"
    first_wins = True  # a list has no look-up; the first is the one a scan meets
    brackets = b"[]"
    indent = b" "
    keeps_times = True
    has_target_in_rows = True
    edits_fields = True
    is_found_by_name = False
    head_member = HEAD
    target_word = "target"
    fatal_codes = frozenset({"AB105"})  # Python's json takes no mark

    def parse_name(self, name: str) -> BankName | None:
        """Return the kernel from a file name, as op_type; it names no target."""
        match = _FILE_NAME.fullmatch(name)
        return BankName(soc_version=None, op_type=match["kernel"]) if match else None

    def build_name(self, target: BankName | Query) -> str:
        """Return a name that tells the format; any other does, too."""
        return f"{target.op_type}-t4-results.json" if target.op_type else "t4-results.json"

    def parse(self, data: bytes, path: Path) -> ParsedFile:
        """Find the items of the list; one without a configuration is no record."""
        scan = start_scan(data, path)
        hidden = constants.hide_bytes(data)
        place = nested.find_records(scan, hidden, RESULTS, self.brackets, _TAIL)
        if place is None:
            return scan.file(self)
        place = replace(place, is_open=False)  # nobody appends to it
        scan.data = nested.records_alone(hidden, place, self.brackets)
        items = scan_items(scan, _ITEM_START)
        prefix = _key_prefix(nested.head_at(hidden, place, self.brackets, RESULTS), path)
        for number, (start, end) in enumerate(items):
            text = scan.text_at(start, end, (RESULTS, str(number)))
            value = constants.loads(text.text)
            problem = next(_key_problems(value), None)
            if problem is not None:
                scan.report_at(text, problem)
            else:
                assert isinstance(value, Mapping)
                scan.add(prefix + configuration_text(value["configuration"]), start, end)
        scan.data = data
        nested.report_head(scan, nested.head_alone(hidden, place, self.brackets))
        return nested.finish(scan, self, place)

    def record(self, parsed: ParsedFile, number: int) -> Record:
        """Return the record at a position; its time is the measurement that counts."""
        text = _text(parsed, number)
        value = constants.loads(text.text)
        assert isinstance(value, Mapping)
        head = read_head(parsed)
        facts = stored(parsed, number, text)
        facts["soc_version"] = _named(head, "device_name")
        rest = {name: value[name] for name in value if name not in (*_ANSWER, "configuration")}
        record = Record(
            **facts,
            op_type=_named(head, "kernel_name") or (parsed.name.op_type if parsed.name else None),
            workload=value["configuration"],
            strategy={name: value[name] for name in _ANSWER if name in value},
            cost_us=_cost_us(value, head),
            extra={**rest, HEAD: head},
        )
        return with_raw(record, parsed.raw(number))

    def iter_op_types(self, parsed: ParsedFile) -> Iterator[str | None]:
        """Yield the kernel for each record."""
        named = parsed.name.op_type if parsed.name else None
        return repeat(_named(read_head(parsed), "kernel_name") or named, len(parsed))

    def iter_targets(self, parsed: ParsedFile) -> Iterator[str | None]:
        """Yield the device for each record, where the file tells it."""
        return repeat(_named(read_head(parsed), "device_name"), len(parsed))

    def strategy_words(self, record: Record) -> Iterator[str]:
        """Return the outcome and what was measured."""
        value, figures = record.strategy, record.extra.get("measurements")
        if not isinstance(value, Mapping):
            return
        told = [str(value.get("invalidity", "no outcome"))]
        for one in figures if isinstance(figures, list) else ():
            if isinstance(one, Mapping) and one.get("value") not in ("", None):
                unit = one.get("unit")
                text = member_text(str(one.get("name")), one["value"])
                told.append(f"{text} {unit}" if isinstance(unit, str) and unit else text)
        yield " ".join(told)

    def check(self, parsed: ParsedFile) -> Iterator[Finding]:
        """Yield results that are not built as the schema says, and times that are none."""
        head = read_head(parsed)
        if len(parsed):
            yield from _head_findings(parsed, head)
        repeated = parsed.repeated()
        for number in range(len(parsed)):
            text = _text(parsed, number)
            value = json_text.scan(text.text, 0)[0]
            shown = constants.named(value, text.text)
            assert isinstance(shown, Mapping)
            for problem in (
                *STRUCTURE.problems(value, _item_problems(value)),
                *_outcome_problems(shown),
                *_time_problems(shown, head, number),
                *(_identity_problems(parsed, number) if repeated else ()),
            ):
                yield text.finding(problem)
            yield from text.duplicates(value)

    def header(self, parsed: ParsedFile) -> str:
        """Return version and metadata, which have to be equal in files that are merged."""
        return nested.head_text(read_head(parsed))

    def edit_strategy(self, parsed: ParsedFile, number: int, edit: FieldEdit) -> bytes | None:
        """Return a result with another outcome; it has no other field of a strategy."""
        if told := sorted({*edit.assign, *edit.unset} - {*_ANSWER}):
            raise BankFormatError(
                "a result has the fields of its outcome alone",
                path=parsed.path,
                got=told[0],
                expected=" or ".join(_ANSWER),
            )
        values = {name: constants.dumps(value) for name, value in edit.assign.items()}
        edited = edit_members(_text(parsed, number).text, 0, values, edit.unset)
        return constants.show(edited).encode("utf-8")

    def serialize(self, parsed: ParsedFile, changes: Mapping[str, Record | None]) -> bytes:
        """Return the file with `changes` applied, untouched items byte for byte.

        Raises:
            BankFormatError: a record was made under other metadata: it would lose them.
        """
        parsed = nested.with_head(parsed, changes, HEAD, RESULTS)
        return splice(parsed, changes, partial(_render, parsed.path))


def read_head(parsed: ParsedFile) -> JsonObject:
    """Return the members of a file that stand around its results."""
    return nested.head_of(parsed, RESULTS)


def configuration_text(configuration: JsonValue) -> str:
    """Return a configuration as one text, whatever the order of its members.

    >>> configuration_text({"vec": 2, "block_size_x": 32})
    'block_size_x=32,vec=2'
    """
    assert isinstance(configuration, Mapping)
    return ",".join(
        f"{name}={constants.dumps(configuration[name])}" for name in sorted(configuration)
    )


# ---- reading ----


def _named(head: JsonObject, name: str) -> str | None:
    metadata = head.get("metadata")
    value = metadata.get(name) if isinstance(metadata, Mapping) else None
    return value if isinstance(value, str) and value else None


def _key_prefix(head: JsonObject, path: Path) -> str:
    match = _FILE_NAME.fullmatch(path.name)
    kernel = _named(head, "kernel_name") or (match["kernel"] if match else None)
    return f"{_named(head, 'device_name') or '-'}/{kernel or '-'}/"


def _text(parsed: ParsedFile, number: int) -> RecordText:
    text = record_text(parsed, number, (RESULTS, str(number)))
    return replace(text, text=constants.hide(text.text))


def _objective(value: Mapping[str, JsonValue]) -> str:
    objectives = value.get("objectives")
    first = objectives[0] if isinstance(objectives, list) and objectives else None
    return first if isinstance(first, str) else "time"


def _time_of(
    value: Mapping[str, JsonValue], head: JsonObject
) -> tuple[int, JsonValue, float] | None:
    """Return place, value and unit in microseconds of the time that counts, if one does."""
    figures = value.get("measurements")
    for name in dict.fromkeys((_objective(value), "time")):
        for number, one in enumerate(figures if isinstance(figures, list) else ()):
            if not isinstance(one, Mapping) or one.get("name") != name:
                continue
            unit = one.get("unit")
            if unit in ("", None) and name == "time":
                metadata = head.get("metadata")
                unit = metadata.get("timeunit") if isinstance(metadata, Mapping) else None
            factor = _US.get(unit) if isinstance(unit, str) else None
            if factor is not None:
                return number, one.get("value"), factor
    return None


def _cost_us(value: Mapping[str, JsonValue], head: JsonObject) -> float | None:
    found = _time_of(value, head)
    time = None if found is None else cost_us(found[1])
    if found is None or time is None or value.get("invalidity", CORRECT) != CORRECT:
        return None
    return cost_us(float(time) * found[2])


# ---- writing ----


def _render(path: Path, record: Record) -> bytes:
    workload, strategy = record.workload, record.strategy
    if not (isinstance(workload, Mapping) and isinstance(strategy, Mapping)):
        raise BankFormatError(f"record {record.key} is no result", path=path)
    rest = {name: record.extra[name] for name in record.extra if name != HEAD}
    item: dict[str, JsonValue] = {}
    if "timestamp" in rest:
        item["timestamp"] = rest.pop("timestamp")
    item["configuration"] = workload
    item["times"] = rest.pop("times", {})
    item |= {**strategy, **rest}
    head = record.extra.get(HEAD)
    known = head if isinstance(head, Mapping) else {}
    if record.cost_us is not None and _cost_us(item, known) != record.cost_us:
        item = _with_time(item, known, record.cost_us)
        if _cost_us(item, known) is None:
            raise BankFormatError(
                f"record {record.key} cannot be written without loss",
                path=path,
                got=f"a time of {record.cost_us} us",
                expected=f"a measurement {_objective(item)} in a unit of time",
            )
    return constants.dumps(item).encode("utf-8")


def _with_time(
    item: Mapping[str, JsonValue], head: JsonObject, cost: float
) -> dict[str, JsonValue]:
    figures = item.get("measurements")
    items = [*figures] if isinstance(figures, list) else []
    found = _time_of(item, head)
    if found is not None and isinstance(items[found[0]], Mapping):
        items[found[0]] = {**items[found[0]], "value": cost / found[2]}
    elif not items:
        items.append({"name": "time", "value": cost / _US["ms"], "unit": "ms"})
    return {**item, "measurements": items}


# ---- checking ----


def _key_problems(value: JsonValue) -> Iterator[Problem]:
    if not isinstance(value, Mapping):
        yield Problem(
            code="AB204",
            tokens=(),
            message="item is not an object",
            got=kind_of(value),
            expected="an object",
        )
    elif "configuration" not in value:
        yield missing("configuration", hint="remove the record")
    elif not isinstance(value["configuration"], Mapping):
        yield wrong_type(value["configuration"], ("configuration",), "an object")


def _item_problems(value: JsonValue) -> Iterator[Problem]:
    if not isinstance(value, Mapping):
        return
    for name in ("times", *_ANSWER):
        if name not in value:
            yield missing(name, hint="tune the workload again, or remove the record")


def _head_findings(parsed: ParsedFile, head: JsonObject) -> Iterator[Finding]:
    place = Location(path=parsed.path)
    if _named(head, "device_name") is None:
        yield make_finding(
            "AB315",
            place,
            "metadata names no device: results count for any",
            expected="device_name in metadata",
            hint="add the device_name they were measured on to metadata",
        )
    first = constants.loads(_text(parsed, 0).text)
    times = first.get("times") if isinstance(first, Mapping) else None
    told = [name for name in _WRITER_TIMES if isinstance(times, Mapping) and name in times]
    if told:
        yield make_finding(
            "AB224",
            place,
            "times are not called as in the schema of the format",
            got=", ".join(told),
            expected=", ".join(_SCHEMA_TIMES),
            hint="rename compilation to compilation_time, and leave benchmark out",
        )


def _outcome_problems(value: Mapping[str, JsonValue]) -> Iterator[Problem]:
    outcome = value.get("invalidity")
    if isinstance(outcome, str) and outcome not in OUTCOMES:
        yield Problem(
            code="AB404",
            tokens=("invalidity",),
            message="outcome is none of the format",
            got=json_text.dumps(outcome)[:40],
            expected=", ".join(OUTCOMES),
            hint="tune the workload again, or remove the record",
        )


def _time_problems(
    value: Mapping[str, JsonValue], head: JsonObject, number: int
) -> Iterator[Problem]:
    found = _time_of(value, head)
    if found is None or value.get("invalidity", CORRECT) != CORRECT:
        return
    place, time, _ = found
    if cost_us(time) is not None:
        return
    is_first = time == "NaN" and number == 0
    yield Problem(
        code="AB415" if is_first else "AB402",
        tokens=("measurements", str(place), "value"),
        message="time of the first configuration is NaN: a reader takes it for the best"
        if is_first
        else "measured time is not positive and finite",
        got=time if time in constants.NAMES else json.dumps(time)[:40],
        expected="a time > 0",
        hint="tune the workload again, or remove the record",
    )


def _identity_problems(parsed: ParsedFile, number: int) -> Iterator[Problem]:
    used = parsed.find(parsed.keys[number])
    if used is None or used == number:
        return
    one, other = (parsed.format.record(parsed, place) for place in (number, used))
    same = canonical_text(one.strategy) == canonical_text(other.strategy)
    line, column = parsed.lines.position(parsed.starts[used])
    yield Problem(
        code="AB305" if same else "AB306",
        tokens=(),
        message="same configuration as another item" + ("" if same else " with another outcome"),
        got=f"line {line}, column {column}",
        expected="each configuration once",
        hint="remove the record" if same else "remove the record; keep the one that is right",
    )
