"""One stable text per bank file, for `git diff` and `git log -p`.

A block per record, sorted by key, a line per member of the strategy, sorted by name: what
changed is a line that changed, and a file in another order is the same. Each line starts with
the key, cut: else git would take equal lines of different records for one another. Nothing but
the op_type depends on the name of the file, because git hands out copies with names of its own.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aoebank.errors import RecordError
from aoebank.formats.protocol import ParsedFile, find_error
from aoebank.formats.text.engine_words import step_lines
from aoebank.formats.text.json_text import dumps_compact
from aoebank.formats.words import workload_line
from aoebank.model.digest import canonical_text, sha256_of
from aoebank.model.finding import Finding
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Alternative, Record
from aoebank.report.output import Report, Text, plural, printable
from aoebank.storage.bank import load_file

_WIDTH = 400  # of a workload; longer ones end in a digest
_MOST_FINDINGS = 3  # per line; one record can lack all of its members
_SHORT_KEY = 20  # the longest number of 64 bits
_DIGEST = re.compile(r"[0-9A-Fa-f]+")
_LINE = 100  # a list that is longer gets a line per item


def textconv(parsed: ParsedFile) -> str:
    """Return the text of a file, broken or not; what cannot be read is told at the end."""
    order = sorted(range(len(parsed)), key=lambda number: (parsed.keys[number], number))
    told = parsed.format.header(parsed) if parsed.properties or parsed.inside else ""
    properties = "".join(f", {line}" for line in told.split("\n") if line)
    lines = [f"{parsed.format.name} bank, {plural(len(parsed), 'record')}{properties}"]
    for number in order:
        lines.append("")
        lines += _block(parsed, number)
    if parsed.findings:
        lines.append("")
        lines += _finding_lines(parsed)
    return "".join(f"{printable(line)}\n" for line in lines)


def _block(parsed: ParsedFile, number: int) -> Iterator[str]:
    key = parsed.keys[number]
    indent = f"  {_short(key)} "
    is_used = parsed.find(key) == number
    try:
        record = parsed.format.record(parsed, number)
    except RecordError as error:
        digest = sha256_of(parsed.raw(number))[:16]
        yield f"record {key} cannot be read"
        yield f"{indent}problem: {error.problem}{f' at {error.pointer}' if error.pointer else ''}"
        yield f"{indent}bytes: sha256 {digest}"
        return
    op_type = f" {record.op_type}" if record.op_type else ""
    yield f"record {key}{op_type}{'' if is_used else ' (not used: the key comes twice)'}"
    yield f"{indent}workload: {workload_line(record, _WIDTH)}"
    told = parsed.format.head_member  # in the first line of the file
    yield from _answer(record, indent, told)
    for place, other in enumerate(record.alternatives, 2):
        candidate = f"{indent}candidate {place} "
        if canonical_text(other.workload) != canonical_text(record.workload):
            yield f"{candidate}workload: {dumps_compact(other.workload)}"
        yield from _answer(other, candidate, told)


def _short(key: str) -> str:
    """Return the start of a digest, a short key whole, a digest of any other one."""
    if len(key) <= _SHORT_KEY:
        return key
    if _DIGEST.fullmatch(key):
        return key[:8]
    return sha256_of(key.encode("utf-8", "surrogatepass"))[:8]


def _answer(answer: Record | Alternative, indent: str, told: str) -> Iterator[str]:
    if answer.cost_us is not None:
        yield f"{indent}time: {dumps_compact(answer.cost_us)} us"
    if answer.origin is not None:
        yield f"{indent}origin: {answer.origin}"
    strategy, steps = answer.strategy, step_lines(answer.strategy)
    if steps and isinstance(strategy, Mapping):
        strategy = {name: value for name, value in strategy.items() if name != "steps"}
    yield from _members("strategy", strategy, indent)
    yield from (f"{indent}strategy.steps[]: {step}" for step in steps)
    for name, value in sorted(answer.extra.items()):
        if name == told:
            continue
        yield from _members(_name(name), value, indent)


def _members(path: str, value: JsonValue, indent: str) -> Iterator[str]:
    """Yield a line per member, and per item of a list that does not fit into one."""
    if isinstance(value, Mapping) and value:
        for name, member in sorted(value.items()):
            yield from _members(f"{path}.{_name(name)}", member, indent)
        return
    if type(value) is int:  # nearly all of them
        yield f"{indent}{path}: {value}"
        return
    text = dumps_compact(value)
    if isinstance(value, list) and len(text) > _LINE and any(map(_is_container, value)):
        for item in value:
            yield from _members(f"{path}[]", item, indent)
        return
    yield f"{indent}{path}: {text}"


def _is_container(value: JsonValue) -> bool:
    return isinstance(value, Mapping | list)


def _name(name: str) -> str:
    return name if name.isidentifier() else dumps_compact(name)


def _finding_lines(parsed: ParsedFile) -> Iterator[str]:
    """Yield the oddities of a file, and a digest of bytes in no record of a broken one."""
    by_line: dict[int, list[Finding]] = {}
    for finding in sorted(parsed.findings, key=lambda found: (found.location.line, found.code)):
        by_line.setdefault(finding.location.line, []).append(finding)
    for findings in by_line.values():
        yield from map(_finding_line, findings[:_MOST_FINDINGS])
        if len(findings) > _MOST_FINDINGS:
            yield f"! and {plural(len(findings) - _MOST_FINDINGS, 'more finding')} in this line"
    if find_error(parsed) is not None:
        yield f"! bytes outside of records: sha256 {_rest_digest(parsed)}"


def _rest_digest(parsed: ParsedFile) -> str:
    digest, place = hashlib.sha256(), 0
    for start, end in sorted(zip(parsed.starts, parsed.ends, strict=True)):
        digest.update(parsed.data[place:start])
        place = max(place, end)
    digest.update(parsed.data[place:])
    return digest.hexdigest()[:16]


def _finding_line(finding: Finding) -> str:
    place = f"line {finding.location.line}: " if finding.location.line else ""
    got = f" (got {finding.got})" if finding.got is not None else ""
    return f"! {place}{finding.code} {finding.message}{got}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextconvReport(Report):
    """A bank file as text: git takes it as it is."""

    file: Path
    text: str
    schema: str = "aoebank.textconv/1"

    def document(self) -> dict[str, object]:
        """See `Report`."""
        parsed = load_file(self.file)
        return {"format": str(parsed.format.name), "records": len(parsed), "text": self.text}

    def write(self, text: Text) -> None:
        """See `Report`."""
        text.lines(self.text)


def show(call: Callable[..., Any], given: Mapping[str, Any]) -> TextconvReport:
    """Return a bank file as text."""
    return TextconvReport(file=given["file"], text=call())
