"""Caches of Kernel Tuner: an object whose member `cache` has a member per configuration.

Device, kernel, problem size and parameters stand in the head and count for all members. While a run
lasts, both closing braces are missing: its reader puts them there, no other reader of JSON does.

Source: kernel_tuner 1.5.0, process_cache, store_cache, close_cache and get_best_config of util.py,
checked against files it wrote.
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
from aoebank.formats.text.containers import scan_members, value_place
from aoebank.formats.text.member_words import member_text
from aoebank.formats.text.problem import (
    Problem,
    RecordText,
    kind_of,
    missing,
    repeated,
    wrong_type,
)
from aoebank.formats.text.record import US_PER_MS, cost_us, record_text, stored, us_of_ms
from aoebank.formats.text.scan import start_scan
from aoebank.formats.text.splice import edit_members, splice
from aoebank.model.finding import Finding, Location, make_finding
from aoebank.model.json_value import JsonObject, JsonValue
from aoebank.model.record import Record, with_raw
from aoebank.model.resolution import Query

CACHE = "cache"
HEAD = "head"
TIME = "time"
FAILURES = {
    "InvalidConfig": "not allowed by the restrictions",
    "CompilationFailedConfig": "does not compile",
    "RuntimeFailedConfig": "fails when it runs",
    "ErrorConfig": "fails",
}
STRUCTURE = Structure(
    schema="kernel_tuner/1.json",
    record=("properties", "cache", "additionalProperties"),
    depth=0,
)
# Members of a result that say how it was measured and not what came out.
_BOOKKEEPING = (
    *("times", "timestamp", "compile_time", "verification_time", "benchmark_time"),
    *("strategy_time", "framework_time"),
)
# What a head may say of the code: with one of them two kernels are not taken for one.
_CODE = ("kernel_source", "source", "compiler", "compiler_options", "environment", "arguments")
_FILE_NAME = re.compile(r"(?:.*[-_.])?kernel_tuner(?:[-_.].*)?\.json", re.DOTALL)
_CONTENT = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*\{\s*(?:"schema_version"\s*:\s*"[^"]*"\s*,\s*)?'
    rb'"(?:device_name|kernel_name)"\s*:.*?"(?:tune_params_keys|cache)"\s*:|'
    rb'(?:\xef\xbb\xbf)?\s*\{\s*"cache"\s*:\s*\{',
    re.DOTALL,
)
_KEY_START = re.compile(r'(?:^|[,{])[ \t\r\n]*(?P<key>"[^"\n]*"[ \t]*:[ \t\r\n]*\{)', re.MULTILINE)
_TAIL = re.compile(rb"(?P<end>\})[ \t\r\n]*\}[ \t\r\n]*\Z")


class KernelTunerFormat(Format):
    """Reads and writes the cache of Kernel Tuner, open or closed, under any name."""

    name = "kernel_tuner"
    empty = b'{\n"cache": {}\n}\n'
    content = _CONTENT  # An object starts with the head of a cache
    globs = ("*kernel_tuner*.json",)
    name_pattern = "[<kernel>-]kernel_tuner[_<more>].json, or any name"
    first_wins = False  # Python's json module keeps the last of two equal names
    brackets = b"{}"
    keeps_times = True
    has_target_in_rows = True
    edits_fields = True
    is_found_by_name = False
    head_member = HEAD
    target_word = "target"
    fatal_codes = frozenset({"AB105"})  # Python's json takes no mark

    def parse_name(self, name: str) -> BankName | None:
        """Return a name without a target: the head says it."""
        return BankName(soc_version=None) if _FILE_NAME.fullmatch(name) else None

    def build_name(self, target: BankName | Query) -> str:
        """Return a name that tells the format; any other does, too."""
        return "kernel_tuner_cache.json"

    def parse(self, data: bytes, path: Path) -> ParsedFile:
        """Find the configurations; the ends of an open cache are thought to be there."""
        scan = start_scan(data, path)
        hidden = constants.hide_bytes(data)
        place = nested.find_records(scan, hidden, CACHE, self.brackets, _TAIL)
        if place is None:
            return scan.file(self)
        scan.data = nested.records_alone(hidden, place, self.brackets)
        scan_members(scan, _KEY_START)
        scan.data = data
        nested.report_head(scan, nested.head_alone(hidden, place, self.brackets))
        if place.is_open and not place.is_torn:
            scan.findings.append(_open_note(path))
        found = nested.finish(scan, self, place)
        prefix = key_prefix(read_head(found))
        return replace(found, keys=[prefix + name for name in found.keys])

    def record(self, parsed: ParsedFile, number: int) -> Record:
        """Return the record at a position; a time is in milliseconds in the file."""
        head = read_head(parsed)
        prefix = key_prefix(head)
        text = _text(parsed, number, prefix)
        value = constants.loads(text.text[text.value :])
        if not isinstance(value, Mapping):
            raise text.error(next(_row_problems(value)))
        configuration = {name: value[name] for name in _parameters(head) if name in value}
        time = value.get(TIME)
        is_measured = isinstance(time, int | float) or time in constants.NAMES
        kept = {*_BOOKKEEPING, *((TIME,) if is_measured else ())} - {*configuration}
        facts = stored(parsed, number, text)
        facts["soc_version"] = _word(head.get("device_name"))
        size = {"problem_size": head["problem_size"]} if "problem_size" in head else {}
        record = Record(
            **facts,
            op_type=_word(head.get("kernel_name")),
            workload={
                **size,
                **(configuration or {"configuration": parsed.keys[number].removeprefix(prefix)}),
            },
            strategy={
                name: value[name]
                for name in value
                if name not in configuration and name not in kept
            },
            cost_us=us_of_ms(time) if TIME not in configuration else None,
            extra={**{name: value[name] for name in value if name in kept}, HEAD: head},
        )
        return with_raw(record, parsed.raw(number))

    def iter_op_types(self, parsed: ParsedFile) -> Iterator[str | None]:
        """Yield the kernel for each record."""
        return repeat(_word(read_head(parsed).get("kernel_name")), len(parsed))

    def iter_targets(self, parsed: ParsedFile) -> Iterator[str | None]:
        """Yield the device for each record."""
        return repeat(_word(read_head(parsed).get("device_name")), len(parsed))

    def strategy_words(self, record: Record) -> Iterator[str]:
        """Return the failure in words, or the number of runs and the other figures."""
        value = record.strategy
        if not isinstance(value, Mapping):
            return
        failure = next((text for text in value.values() if _is_failure(text)), None)
        runs = record.extra.get("times")
        told = [f"{len(runs)} runs"] if isinstance(runs, list) and runs else []
        told += [member_text(name, value[name]) for name in value if not _is_failure(value[name])]
        yield FAILURES[str(failure)] if failure else " ".join(told) or "measured"

    def check(self, parsed: ParsedFile) -> Iterator[Finding]:
        """Yield what the head lacks, times that are none, names no look-up asks for."""
        head = read_head(parsed)
        prefix = key_prefix(head)
        if len(parsed):
            yield from _head_findings(parsed, head)
        for number in range(len(parsed)):
            text = _text(parsed, number, prefix)
            value = json_text.scan(text.text, text.value)[0]
            for problem in (
                *STRUCTURE.problems(value, _row_problems(value)),
                *_name_problems(parsed, number, constants.named(value, text.text), head, prefix),
                *_time_problems(value, head, number),
            ):
                yield text.finding(problem)
            yield from text.duplicates(value)

    def header(self, parsed: ParsedFile) -> str:
        """Return the head: device, kernel and parameters are one in files that are merged."""
        return nested.head_text(read_head(parsed))

    def edit_strategy(self, parsed: ParsedFile, number: int, edit: FieldEdit) -> bytes | None:
        """Return a result with other figures; time and configuration are no such."""
        head = read_head(parsed)
        text = _text(parsed, number, key_prefix(head))
        fixed = {*_parameters(head), TIME, *_BOOKKEEPING}
        if told := sorted(fixed & {*edit.assign, *edit.unset}):
            raise BankFormatError(
                "configuration and times of a result are no field of its strategy",
                path=parsed.path,
                got=told[0],
                hint="measure the configuration again, or remove the record",
            )
        values = {name: constants.dumps(value) for name, value in edit.assign.items()}
        edited = edit_members(text.text, text.value, values, edit.unset)
        return constants.show(edited).encode("utf-8")

    def serialize(self, parsed: ParsedFile, changes: Mapping[str, Record | None]) -> bytes:
        """Return the file with `changes` applied, untouched members byte for byte.

        Raises:
            BankFormatError: a record is of another device, kernel or space: it would lose that.
        """
        parsed = nested.with_head(parsed, changes, HEAD, CACHE)
        return splice(parsed, changes, partial(_render, parsed.path, read_head(parsed)))


def read_head(parsed: ParsedFile) -> JsonObject:
    """Return the members of a cache that stand around its results."""
    return nested.head_of(parsed, CACHE)


def key_prefix(head: JsonObject) -> str:
    """Return the start of each record's key: device, kernel and problem size.

    >>> key_prefix({"device_name": "NVIDIA A100", "kernel_name": "add", "problem_size": [4, 2]})
    'NVIDIA A100/add/4x2/'
    """
    size = head.get("problem_size")
    sizes = size if isinstance(size, list) else [size]
    told = "x".join(_python_text(one) for one in sizes if one is not None)
    names = (_word(head.get("device_name")), _word(head.get("kernel_name")), told)
    return "".join(f"{name or '-'}/" for name in names)


# ---- reading ----


def _word(value: JsonValue) -> str | None:
    return value if isinstance(value, str) and value else None


def _parameters(head: JsonObject) -> list[str]:
    names = head.get("tune_params_keys")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _text(parsed: ParsedFile, number: int, prefix: str) -> RecordText:
    # the name of a result in its file is the configuration, as its look-up spells it
    text = record_text(parsed, number, (CACHE, parsed.keys[number].removeprefix(prefix)))
    hidden = constants.hide(text.text)
    return replace(text, text=hidden, value=value_place(hidden))


def _is_failure(value: JsonValue) -> bool:
    return isinstance(value, str) and value in FAILURES


def _open_note(path: Path) -> Finding:
    return make_finding(
        "AB119",
        Location(path=path),
        "cache is open: its two closing braces are missing",
        hint="let the run end, or close it: a brace for the comma at the end, and one on a line",
    )


# ---- writing ----


def _render(path: Path, head: JsonObject, record: Record) -> bytes:
    workload, strategy, prefix = record.workload, record.strategy, key_prefix(head)
    if not record.key.startswith(prefix):
        raise BankFormatError(
            f"record {record.key} is of another device, kernel or problem size",
            path=path,
            expected=f"{prefix}<configuration>",
        )
    if not (isinstance(workload, Mapping) and isinstance(strategy, Mapping)):
        raise BankFormatError(f"record {record.key} is no result", path=path)
    own = {name: workload[name] for name in _parameters(head) if name in workload}
    extra = {name: record.extra[name] for name in record.extra if name != HEAD}
    if TIME not in own and us_of_ms(extra.get(TIME)) != record.cost_us:
        extra.pop(TIME, None)
        if record.cost_us is not None:
            extra[TIME] = record.cost_us / US_PER_MS
    figures = {**({TIME: extra.pop(TIME)} if TIME in extra else {}), **strategy, **extra}
    if twice := sorted(own.keys() & figures.keys()):
        raise BankFormatError(
            f"record {record.key} cannot be written without loss", path=path, got=twice[0]
        )
    name = json_text.dumps(record.key.removeprefix(prefix))
    return f"{name}: {constants.dumps({**own, **figures})}".encode()


# ---- checking ----


def _head_findings(parsed: ParsedFile, head: JsonObject) -> Iterator[Finding]:
    place = Location(path=parsed.path)
    if _word(head.get("device_name")) is None:
        yield make_finding(
            "AB315",
            place,
            "no device_name: results count for any device",
            expected="device_name",
            hint="add the device_name they were measured on",
        )
    if not any(name in head for name in _CODE):
        yield make_finding(
            "AB319",
            place,
            "key has neither source nor compiler: results of an older kernel are found",
            expected="kernel_source or compiler",
            hint="add a digest as kernel_source to the head: files that differ in it do not merge",
        )


def _row_problems(value: JsonValue) -> Iterator[Problem]:
    if not isinstance(value, Mapping):
        yield replace(
            wrong_type(value, ("result",), "an object"), tokens=(), message="result is no object"
        )


def _python_text(value: JsonValue) -> str:
    """Return a value as Python's `str` spells it, which is how look-ups do."""
    if isinstance(value, float) and not isinstance(value, bool):
        return str(float(value))
    return (
        str(int(value)) if type(value) not in (bool, int) and isinstance(value, int) else str(value)
    )


def _name_problems(
    parsed: ParsedFile, number: int, value: JsonValue, head: JsonObject, prefix: str
) -> Iterator[Problem]:
    own = parsed.keys[number].removeprefix(prefix)
    if parsed.find(parsed.keys[number]) != number:
        yield repeated("configuration", own[:60])
    names = _parameters(head)
    if not isinstance(value, Mapping) or not names:
        return
    lost = [name for name in names if name not in value]
    for name in lost:
        yield missing(name, hint="remove the record; its configuration is not known")
    asked = "" if lost else ",".join([_python_text(value[name]) for name in names])
    if not lost and asked != own:
        yield Problem(
            code="AB313",
            tokens=(),
            message="name is not the configuration of its members: nothing asks for it",
            got=own[:60],
            expected=asked[:60],
            hint="remove the record; which of the two was measured, nobody knows",
        )


def _time_problems(value: JsonValue, head: JsonObject, number: int) -> Iterator[Problem]:
    """Yield why a time is none; constants are hidden in the value."""
    if not isinstance(value, Mapping) or TIME not in value or TIME in _parameters(head):
        return
    time = constants.named(value[TIME])
    if _is_failure(time) or cost_us(time) is not None:
        return
    if (isinstance(time, str) and time not in constants.NAMES) or isinstance(time, list | Mapping):
        yield Problem(
            code="AB206",
            tokens=(TIME,),
            message="time is neither a number nor the name of a failure",
            got=json_text.dumps(time)[:40] if isinstance(time, str) else kind_of(time),
            expected=f"milliseconds, or {', '.join(FAILURES)}",
            hint="measure the configuration again, or remove the record",
        )
    elif time == "NaN" and number == 0:
        yield Problem(
            code="AB415",
            tokens=(TIME,),
            message="time of the first configuration is NaN: its reader takes it for the best",
            got="NaN",
            expected="milliseconds > 0",
            hint="tune the workload again, or remove the record",
        )
    else:
        yield Problem(
            code="AB402",
            tokens=(TIME,),
            message="measured time is not positive and finite",
            got=time if isinstance(time, str) else json.dumps(time)[:40],
            expected="milliseconds > 0",
            hint="tune the workload again",
        )
