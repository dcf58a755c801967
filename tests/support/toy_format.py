"""A format that is no part of the product: what a folder in `formats/` has to bring."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from aoebank import Finding, JsonValue, Record
from aoebank.formats.names import BankName
from aoebank.formats.protocol import Format, ParsedFile
from aoebank.formats.text import json_text
from aoebank.formats.text.json_lines import iter_values
from aoebank.formats.text.problem import Problem, missing, not_a_record, unknown_members
from aoebank.formats.text.record import record_text, stored
from aoebank.formats.text.scan import start_scan
from aoebank.formats.text.splice import splice
from aoebank.model.record import with_raw
from aoebank.model.resolution import Query

_NAME = re.compile(r"(?P<soc>.+)_(?P<op>[a-z]+)\.toy")
_MEMBERS = ("case", "answer", "us")


class ToyFormat(Format):
    """Reads and writes `<soc>_<op>.toy`: a line `{"case": ..., "answer": ..., "us": ...}` each."""

    name = "toy"
    empty = b"{}\n"
    globs = ("*.toy",)
    folder = "toys"
    name_pattern = "<soc_version>_<op_type>.toy"
    first_wins = True
    may_be_sorted = True

    def parse_name(self, name: str) -> BankName | None:
        match = _NAME.fullmatch(name)
        return BankName(soc_version=match["soc"], op_type=match["op"]) if match else None

    def build_name(self, target: BankName | Query) -> str:
        return f"{target.soc_version or '<soc_version>'}_{target.op_type or '<op_type>'}.toy"

    def recognizes_content(self, head: bytes) -> bool:
        return head.startswith(b'{"case": ')

    def parse(self, data: bytes, path: Path) -> ParsedFile:
        scan = start_scan(data, path)
        for value, start, end in iter_values(scan):
            problems = [*_problems(value)]
            for problem in problems:
                scan.report(problem, start, end)
            if not problems and isinstance(value, Mapping):
                scan.add(str(value["case"]), start, end)
        return scan.file(self)

    def record(self, parsed: ParsedFile, number: int) -> Record:
        text = record_text(parsed, number)
        value = json_text.loads(text.text)
        for problem in _problems(value):
            raise text.error(problem)
        assert isinstance(value, Mapping)
        time = value.get("us")
        record = Record(
            **stored(parsed, number, text),
            op_type=parsed.name.op_type if parsed.name else None,
            workload=value["case"],
            strategy=value["answer"],
            cost_us=time if isinstance(time, int | float) and time > 0 else None,
            extra={name: value[name] for name in value if name not in _MEMBERS},
        )
        return with_raw(record, parsed.raw(number))

    def check(self, parsed: ParsedFile) -> Iterator[Finding]:
        for number in range(len(parsed)):
            text = record_text(parsed, number)
            value = json_text.scan(text.text, 0)[0]
            assert isinstance(value, Mapping)
            for problem in unknown_members(value, _MEMBERS):
                yield text.finding(problem)
            yield from text.duplicates(value)

    def serialize(self, parsed: ParsedFile, changes: Mapping[str, Record | None]) -> bytes:
        return splice(parsed, changes, _render)


def toy_line(case: str, answer: JsonValue, us: float | None = None) -> str:
    """Return the line of a record."""
    value: dict[str, JsonValue] = {"case": case, "answer": answer}
    return json_text.dumps(value if us is None else {**value, "us": us})


def _problems(value: JsonValue) -> Iterator[Problem]:
    yield from not_a_record(value)
    if isinstance(value, Mapping) and value:
        yield from (missing(name) for name in ("case", "answer") if name not in value)


def _render(record: Record) -> bytes:
    return toy_line(record.key, record.strategy, record.cost_us).encode("ascii")
