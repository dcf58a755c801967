"""The side-car `<bank file>.provenance.jsonl`: one JSON object per line, one per decision.

Bank formats have no place for the baseline, the samples or the machine a time was measured
on, and their readers must not meet anything new. So that goes beside the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from aoebank.formats.lines import LineIndex
from aoebank.formats.text import json_text
from aoebank.formats.text.checks import BOM, check_text
from aoebank.formats.text.scan import MOST_LISTED, not_listed
from aoebank.model.finding import Finding, Location, make_finding
from aoebank.model.json_value import JsonValue
from aoebank.model.provenance import Event, Provenance, check_time

SUFFIX = ".provenance.jsonl"
SCHEMA = "aoebank.provenance/1"
_REQUIRED = ("schema", "key", "event", "time", "engine")
_SPEEDUPS = ("speedup", "speedup_low", "speedup_high")
_NAMES = tuple(
    field.name for field in fields(Provenance) if field.name not in ("extra", "location")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenanceLog:
    """A parsed side-car: what could be read, and what could not."""

    entries: tuple[Provenance, ...]
    findings: tuple[Finding, ...]


def provenance_path(bank_file: Path) -> Path:
    """Return the side-car of a bank file."""
    return bank_file.with_name(bank_file.name + SUFFIX)


def bank_file_of(side_car: Path) -> Path:
    """Return the bank file a side-car belongs to."""
    return side_car.with_name(side_car.name.removesuffix(SUFFIX))


def parse_provenance(data: bytes, path: Path) -> ProvenanceLog:
    """Read a side-car; a bad line is a finding and hides no other."""
    lines = LineIndex(data)
    # a side-car without entries yet is fine, a bank file without its object is not
    findings = [finding for finding in check_text(data, path, lines) if finding.code != "AB110"]
    marked = {finding.location.line for finding in findings if finding.code == "AB104"}
    entries: list[Provenance] = []
    listed: Counter[str] = Counter()
    start = len(BOM) if data.startswith(BOM) else 0
    while start < len(data):
        end = data.find(b"\n", start)
        is_torn = end < 0
        end = len(data) if is_torn else end
        place = lines.location(path, start, end)
        if place.line not in marked:
            entry, problems = _read_line(data[start:end], place, is_torn=is_torn)
            entries += [entry] if entry else []
            for problem in problems:
                if listed[problem.code] < MOST_LISTED:
                    findings.append(problem)
                listed[problem.code] += 1
        start = end + 1
    left_out = {code: number - MOST_LISTED for code, number in listed.items()}
    findings += not_listed(path, {code: left_out[code] for code in listed if left_out[code] > 0})
    return ProvenanceLog(entries=tuple(entries), findings=tuple(findings))


def serialize_provenance(entry: Provenance) -> bytes:
    """Return the line of an entry, its line end included; empty members are left out."""
    document: dict[str, JsonValue] = {"schema": SCHEMA}
    for name in _NAMES:
        value = getattr(entry, name)
        if value is None or (value in ((), {}) and name not in _REQUIRED):
            continue
        document[name] = str(value) if isinstance(value, Event) else value
    return (json_text.dumps({**document, **entry.extra}) + "\n").encode("ascii")


def append_line_break(data: bytes) -> bytes:
    """Return `data` so that a further line can follow, a torn last line kept as it is."""
    return data if not data or data.endswith(b"\n") else data + b"\n"


def _read_line(
    line: bytes, place: Location, *, is_torn: bool
) -> tuple[Provenance | None, list[Finding]]:
    text = line.decode("utf-8", errors="replace")
    if not text.strip():
        return None, [make_finding("AB112", place, "blank line", hint="remove it")]
    try:
        value = json_text.loads(text)
    except json_text.JsonTextError as error:
        code, message = error.code, error.problem
        if is_torn:
            code, message = "AB111", f"torn last line: {error.problem}"
        return None, [_finding(code, place, text, error.offset, (), message)]
    problems = [
        _finding(code, place, text, json_text.locate(text, tokens), tokens, message, got)
        for code, tokens, message, got in _problems(value)
    ]
    if any(problem.code != "AB207" for problem in problems) or not isinstance(value, Mapping):
        return None, problems
    return _entry(value, place), problems


def _finding(
    code: str,
    place: Location,
    text: str,
    offset: int,
    tokens: tuple[str, ...],
    message: str,
    got: str | None = None,
) -> Finding:
    location = Location(
        path=place.path,
        line=place.line,
        column=offset + 1,
        pointer=json_text.pointer(tokens),
        start=place.start + len(text[:offset].encode("utf-8")),
        end=place.end,
    )
    hint = "remove the line; the bank itself does not need it"
    return make_finding(code, location, message, got=got, hint=hint)


_Problem = tuple[str, tuple[str, ...], str, str | None]


def _problems(value: JsonValue) -> Iterator[_Problem]:
    if not isinstance(value, Mapping):
        yield "AB204", (), "line is not an object", json_text.dumps(value)[:40]
        return
    for name in _REQUIRED:
        if name not in value:
            yield "AB205", (), f"member {name} is missing", None
    for name, check, expected in _CHECKS:
        if name in value and not check(value[name]):
            got = json_text.dumps(value[name])[:60]
            code = "AB208" if name == "schema" else "AB404"
            yield code, (name,), f"{name} must be {expected}", got


def _is_text(value: JsonValue) -> bool:
    return isinstance(value, str) and bool(value)


def _is_object(value: JsonValue) -> bool:
    return isinstance(value, Mapping)


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_ratio(value: JsonValue) -> bool:
    return _is_number(value) and 0 < value < float("inf")  # type: ignore[operator]


def _is_samples(value: JsonValue) -> bool:
    return isinstance(value, list) and all(map(_is_ratio, value))


def _is_names(value: JsonValue) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_event(value: JsonValue) -> bool:
    return isinstance(value, str) and value in tuple(Event)


def _is_time(value: JsonValue) -> bool:
    try:
        check_time(value if isinstance(value, str) else "")
    except ValueError:
        return False
    return True


_CHECKS: tuple[tuple[str, Callable[[JsonValue], bool], str], ...] = (
    ("schema", lambda value: value == SCHEMA, SCHEMA),
    ("key", _is_text, "a text"),
    ("event", _is_event, "one of " + ", ".join(Event)),
    ("time", _is_time, "an RFC 3339 time in UTC"),
    ("engine", _is_text, "a text"),
    ("fingerprint", _is_object, "an object"),
    ("model", _is_object, "an object"),
    ("op_names", _is_names, "a list of texts"),
    ("baseline_us", _is_samples, "a list of microseconds > 0"),
    ("tuned_us", _is_samples, "a list of microseconds > 0"),
    *((name, _is_ratio, "a number > 0") for name in _SPEEDUPS),
    ("search", _is_object, "an object"),
)


def _entry(value: Mapping[str, JsonValue], place: Location) -> Provenance:
    known = {name: value[name] for name in _NAMES if name in value}
    for name in ("op_names", "baseline_us", "tuned_us"):
        if name in known:
            known[name] = tuple(known[name])  # type: ignore[arg-type]
    known["event"] = Event(str(value["event"]))
    extra = {name: value[name] for name in value if name not in (*_NAMES, "schema")}
    return Provenance(**known, extra=extra, location=place)  # type: ignore[arg-type]
