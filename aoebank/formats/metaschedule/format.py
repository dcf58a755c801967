"""Databases of TVM's MetaSchedule: a line per tuning record, the workloads in a file beside it.

A record names its workload by a line of `database_workload.json`, so that a file of records alone
means nothing: who adds a workload moves the numbers of others. Where that file is there, records
are read, compared and checked, and TVM alone writes them. A workload may have many records for
one target; its reader takes the fastest.

Source: meta_schedule/database/json_database.cc of TVM, checked against databases that TVM 0.25.0
wrote.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from math import fsum
from pathlib import Path

from aoebank.errors import BankFormatError
from aoebank.formats.names import BankName
from aoebank.formats.protocol import Format, ParsedFile
from aoebank.formats.text import json_text
from aoebank.formats.text.json_lines import iter_lines, iter_values
from aoebank.formats.text.problem import Problem
from aoebank.formats.text.record import cost_us, record_text, stored
from aoebank.formats.text.scan import start_scan
from aoebank.formats.text.splice import splice
from aoebank.model.digest import canonical_text, sha256_of
from aoebank.model.finding import Finding, Location, make_finding
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Record, with_raw
from aoebank.model.resolution import Query

RECORDS = "database_tuning_record.json"
WORKLOADS = "database_workload.json"
TIMES = "run_secs"
TARGET = "target"
FAILED_S = 1e10  # what TVM stores as the time of a trial that failed
_CONTENT = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[\s*[0-9]{1,9}\s*,\s*\[\s*\[\s*\[")
_DEVICES = ("arch", "mcpu", "model", "device")  # of a target, the first one that is there
_BLOCKS = ("GetSBlock", "GetBlock")
_UNTOLD = {*_BLOCKS, "GetLoops", "GetChildBlocks", "EnterPostproc"}  # steps that change nothing
_US_PER_S = 1_000_000
_RESTORE = "restore the line from git, or remove it"
_BESIDE = "restore the workloads of the same commit beside it"
_MOST_INDICES = 1000

_Parts = tuple[int, JsonValue, JsonValue, JsonValue, JsonValue]


class MetaScheduleFormat(Format):
    """Reads `database_tuning_record.json`; writes it where no workloads lie beside it."""

    name = "metaschedule"
    empty = b"{}\n"
    content = _CONTENT  # A record with a trace starts the file
    globs = (RECORDS,)
    name_pattern = RECORDS
    first_wins = False
    keeps_times = True
    joins_equal_keys = True  # its reader sorts all records of a workload by their times
    has_target_in_rows = True
    target_word = "target"
    companion_problem = "records name their workloads by lines of this file, which TVM alone writes"
    fatal_codes = frozenset({"AB105", "AB112"})

    def parse_name(self, name: str) -> BankName | None:
        """Return a name without a target: each record has its own."""
        return BankName(soc_version=None) if name == RECORDS else None

    def build_name(self, target: BankName | Query) -> str:
        """Return the one name TVM gives such a file."""
        return RECORDS

    def companion(self, path: Path) -> Path | None:
        """Return the file of the workloads."""
        return path.with_name(WORKLOADS)

    def check_companion(self, parsed: ParsedFile, data: bytes | None) -> Iterator[Finding]:
        """Yield that the workloads are missing, or which of them the records name in vain."""
        if data is None:
            yield make_finding(
                "AB508",
                Location(path=parsed.path),
                "workloads are missing: the records name them by lines of that file",
                expected=WORKLOADS,
                hint=_BESIDE,
            )
            return
        count = sum(end > start for start, end in iter_lines(data))
        far = ((n, _workload_of(key)) for n, key in enumerate(parsed.keys))
        for number, workload in islice(((n, w) for n, w in far if w >= count), _MOST_INDICES):
            problem = Problem(
                code="AB509",
                tokens=(),
                message=f"workload is no line of {WORKLOADS}: TVM does not open the database",
                got=str(workload),
                expected=f"less than {count}",
                hint=_BESIDE,
            )
            yield record_text(parsed, number).finding(problem)

    def parse(self, data: bytes, path: Path) -> ParsedFile:
        """Find the records; of a workload and a target, the fastest is the one readers use."""
        scan = start_scan(data, path)
        best: dict[str, tuple[float, int]] = {}
        for value, start, end in iter_values(scan):
            parts = _parts(value)
            if parts is None:
                scan.report(_no_record(), start, end)
                continue
            key = _key(parts)
            time = _time_us(parts[2])
            found = (float("inf") if time is None else float(time), len(scan.keys))
            best[key] = min(found, best.get(key, found))
            scan.add(key, start, end)
        return replace(scan.file(self), preferred={key: n for key, (_, n) in best.items()})

    def record(self, parsed: ParsedFile, number: int) -> Record:
        """Return the record at a position; a time is in seconds in the file."""
        text = record_text(parsed, number)
        parts = _parts(json_text.loads(text.text))
        if parts is None:
            raise text.error(_no_record())
        workload, trace, times, target, arguments = parts
        assert isinstance(trace, list)
        facts = stored(parsed, number, text)
        facts["soc_version"] = _target_name(target)
        record = Record(
            **facts,
            op_type=_op_type(trace),
            workload={"workload": workload, "args": arguments},
            strategy={"instructions": trace[0], "decisions": trace[1]},
            cost_us=_time_us(times),
            extra={TIMES: times, TARGET: target},
        )
        return with_raw(record, parsed.raw(number))

    def iter_targets(self, parsed: ParsedFile) -> Iterator[str | None]:
        """Yield the target of each record."""
        for key in parsed.keys:
            yield key.partition(",target=")[2].rpartition(",")[0] or None

    def check(self, parsed: ParsedFile) -> Iterator[Finding]:
        """Yield times that are none, and records of no target."""
        for number in range(len(parsed)):
            text = record_text(parsed, number)
            parts = _parts(json_text.loads(text.text))
            for problem in _value_problems(parts) if parts else ():
                yield text.finding(problem)

    def workload_words(self, record: Record) -> str:
        """Return the workload with its arguments, `workload 0: float32 64x64 by 64x64`."""
        workload = record.workload
        if not isinstance(workload, Mapping):
            return ""
        arguments = workload.get("args")
        words = [*_argument_words(arguments)] if isinstance(arguments, Sequence) else []
        return f"workload {workload.get('workload')}: {' by '.join(words)}".removesuffix(": ")

    def strategy_words(self, record: Record) -> Iterator[str]:
        """Return the kinds of steps of the trace, then each of them."""
        strategy = record.strategy
        steps = strategy.get("instructions") if isinstance(strategy, Mapping) else None
        listed = steps if isinstance(steps, list) else []
        told = [step for step in listed if isinstance(step, list) and step]
        counts = Counter(str(step[0]) for step in told if step[0] not in _UNTOLD)
        yield (
            " + ".join(f"{name} x{count}" if count > 1 else name for name, count in counts.items())
            or "as it was written"
        )
        for step in told:
            yield f"{step[0]} {json_text.dumps_compact(step[1:])}"

    def serialize(self, parsed: ParsedFile, changes: Mapping[str, Record | None]) -> bytes:
        """Return the file with `changes` applied, untouched lines byte for byte."""
        return splice(parsed, changes, partial(_render, parsed.path))


# ---- reading ----


def _parts(value: JsonValue) -> _Parts | None:
    """Return workload, trace, times, target and arguments of a line; None if it is no record."""
    if not isinstance(value, list) or len(value) != 2:
        return None
    workload, record = value
    if type(workload) is not int or workload < 0:
        return None
    if not isinstance(record, list) or len(record) != 4:
        return None
    trace, times, target, arguments = record
    is_trace = isinstance(trace, list) and len(trace) == 2
    if not is_trace or not all(isinstance(part, list) for part in trace):
        return None
    is_built = (
        isinstance(times, list | None)
        and isinstance(target, Mapping | None)
        and isinstance(arguments, list | None)
    )
    return (workload, trace, times, target, arguments) if is_built else None


def _key(parts: _Parts) -> str:
    workload, _, _, target, arguments = parts
    digest = sha256_of(canonical_text([target, arguments]).encode("utf-8", "replace"))[:8]
    return f"workload={workload},target={_target_name(target) or ''},{digest}"


def _workload_of(key: str) -> int:
    return int(key.partition(",")[0].removeprefix("workload="))


def _target_name(target: JsonValue) -> str | None:
    """Return kind and device of a target, `cuda-sm_86`.

    >>> _target_name({"kind": "llvm", "mcpu": "icelake-server", "tag": ""})
    'llvm-icelake-server'
    """
    if not isinstance(target, Mapping):
        return None
    device = next((name for part in _DEVICES if (name := target.get(part))), None)
    names = [str(name) for name in (target.get("kind"), device) if isinstance(name, str)]
    return "-".join(names) or None


def _op_type(trace: Sequence[JsonValue]) -> str | None:
    """Return the name of the first block that the trace is about."""
    steps = trace[0] if isinstance(trace[0], list) else []
    for step in steps:
        if isinstance(step, list) and len(step) > 2 and step[0] in _BLOCKS:
            names = step[2]
            first = names[0] if isinstance(names, list) and names else None
            return first if isinstance(first, str) and first else None
    return None


def _time_us(times: JsonValue) -> float | None:
    """Return the mean time, None where there is none or the trial failed."""
    found = [cost_us(time) for time in times] if isinstance(times, list) else []
    if not found or any(time is None or time >= FAILED_S for time in found):
        return None
    return cost_us(fsum(map(float, filter(None, found))) / len(found) * _US_PER_S)


def _argument_words(arguments: Sequence[JsonValue]) -> Iterator[str]:
    before: JsonValue = None
    for argument in arguments:
        is_tensor = isinstance(argument, list) and len(argument) == 3
        if not isinstance(argument, list) or not is_tensor or not isinstance(argument[2], list):
            yield json_text.dumps_compact(argument)
            continue
        shape = "x".join(map(str, argument[2])) or "scalar"
        yield shape if argument[1] == before else f"{argument[1]} {shape}"
        before = argument[1]


# ---- writing ----


def _render(path: Path, record: Record) -> bytes:
    workload, strategy = record.workload, record.strategy
    if (
        not isinstance(workload, Mapping)
        or not isinstance(strategy, Mapping)
        or {*workload} != {"workload", "args"}
        or {*strategy} != {"instructions", "decisions"}
        or not {*record.extra} <= {TIMES, TARGET}
    ):
        raise BankFormatError(f"record {record.key} is no tuning record", path=path)
    times = record.extra.get(TIMES)
    if record.cost_us != _time_us(times):
        times = None if record.cost_us is None else [record.cost_us / _US_PER_S]
    trace: JsonValue = [strategy["instructions"], strategy["decisions"]]
    told: JsonValue = [trace, times, record.extra.get(TARGET), workload["args"]]
    return json_text.dumps_compact([workload["workload"], told]).encode("utf-8")


# ---- checking ----


def _no_record() -> Problem:
    return Problem(
        code="AB206",
        tokens=(),
        message="line is no tuning record",
        expected="[workload, [trace, times, target, arguments]]",
        hint=_RESTORE,
    )


def _value_problems(parts: _Parts) -> Iterator[Problem]:
    _, _, times, target, _ = parts
    if _target_name(target) is None:
        yield Problem(
            code="AB315",
            tokens=("1", "2"),
            message="record names no target: it counts for any",
            got=json_text.dumps(target)[:40],
            hint="remove the record",
        )
    found = times if isinstance(times, list) else []
    if not found or any((time := cost_us(one)) and time >= FAILED_S for one in found):
        yield Problem(
            code="AB401",
            tokens=("1", "1"),
            message="trial failed: its record keeps TVM from trying again",
            got=json_text.dumps(times)[:40],
        )
    elif _time_us(times) is None:
        yield Problem(
            code="AB402",
            tokens=("1", "1"),
            message="measured time is not positive and finite",
            got=json_text.dumps(times)[:40],
            expected="seconds > 0",
            hint="tune the workload again",
        )
