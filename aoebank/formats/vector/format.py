"""Format D, the vector ("RL") bank: one JSON object whose values are JSON as strings.

Source: CANN 8.1 tbe/common/rl_bank, checked against a bank a user made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from aoebank.formats.names import CORE_TYPES, OPERATOR_GLOBS, BankName, open_parts, plain_soc
from aoebank.formats.protocol import Format, ParsedFile
from aoebank.formats.text import json_text
from aoebank.formats.text.containers import scan_members
from aoebank.formats.text.record import member_text, stored
from aoebank.formats.text.scan import start_scan
from aoebank.formats.text.splice import splice
from aoebank.formats.vector.rules import Answer, read_answer, record_problems, schema_problems
from aoebank.model.finding import Finding
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Record, with_raw
from aoebank.model.resolution import Query

FILE_NAME = re.compile(  # readers take every name that starts so, whatever follows the version
    r"(?:dynamic_|static_)?(?P<soc>.+)_(?P<type>AiCore|VectorCore)_(?P<cores>\d{1,9})_v\d{3}"
    r".*\.json",
    re.ASCII,
)
_KEY_START = re.compile(
    r'(?:^|[,{])[ \t\r\n]*(?P<key>"[^"\\\n]{2,}"[ \t]*:[ \t\r\n]*")', re.MULTILINE
)
_CONTENT = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"\[\[')


class VectorFormat(Format):
    """Reads and writes `<soc>_<core type>_<cores>_v00N[_<time>].json`."""

    name = "vector"
    empty = b"{\n}"
    globs = OPERATOR_GLOBS
    folder = "vector"
    name_pattern = "[dynamic_|static_]<soc>_<AiCore|VectorCore>_<cores>_v00N[_<time>].json"
    first_wins = False  # Python's json module keeps the last of two equal names
    brackets = b"{}"
    indent = b"    "
    may_be_sorted = True
    keeps_times = True
    fatal_codes = frozenset({"AB105"})  # Python's json takes no mark: the job ends

    def parse_name(self, name: str) -> BankName | None:
        """Return the target from the name of a vector bank; one file holds all operators."""
        match = FILE_NAME.fullmatch(name)
        if match is None:
            return None
        return BankName(
            soc_version=match["soc"], core_num=int(match["cores"]), core_type=match["type"]
        )

    def build_name(self, target: BankName | Query) -> str:
        """Return the name of a vector bank."""
        cores, soc, _ = open_parts(target)
        return f"{soc}_{target.core_type or CORE_TYPES[0]}_{cores}_v001_<time>.json"

    def fits_folder(self, spelled: str, soc_version: str) -> bool:
        """True if they are equal, or the one in the name is shorter."""
        return plain_soc(soc_version).startswith(plain_soc(spelled))

    def recognizes_content(self, head: bytes) -> bool:
        """True if an object starts with a list of tensors as a name."""
        return _CONTENT.match(head) is not None

    def parse(self, data: bytes, path: Path) -> ParsedFile:
        """Find the members of the object; the strings in them are read when asked for."""
        scan = start_scan(data, path)
        scan_members(scan, _KEY_START)
        return scan.file(self)

    def record(self, parsed: ParsedFile, number: int) -> Record:
        """Return the record at a position: the feature list is the workload."""
        text, key = member_text(parsed, number), parsed.keys[number]
        for problem in record_problems(text.text, text.value, key):
            if problem.code in ("AB103", "AB206", "AB404"):
                raise text.error(problem)
        answer = read_answer(text.text, text.value)
        record = Record(
            **stored(parsed, number, text),
            workload=_workload(key),
            strategy=answer.strategy,
            cost_us=answer.cost_us,
            extra=answer.extra,
        )
        return with_raw(record, parsed.raw(number))

    def check(self, parsed: ParsedFile) -> Iterator[Finding]:
        """Yield the problems of each record, and names that come twice."""
        for number, key in enumerate(parsed.keys):
            text = member_text(parsed, number)
            is_used = parsed.find(key) == number
            for problem in record_problems(
                text.text, text.value, key, is_used=is_used, problems_of=schema_problems
            ):
                yield text.finding(problem)

    def serialize(self, parsed: ParsedFile, changes: Mapping[str, Record | None]) -> bytes:
        """Return the file with `changes` applied, untouched members byte for byte."""
        return splice(parsed, changes, render_vector)


def render_vector(record: Record) -> bytes:
    """Return the member of a record, name and string as CANN writes them."""
    answer = Answer(strategy=record.strategy, cost_us=record.cost_us, extra=record.extra)
    return f"{json_text.dumps(record.key)}: {json_text.dumps(answer.text())}".encode()


def _workload(key: str) -> JsonValue:
    try:
        value = json_text.loads(key)
    except json_text.JsonTextError:
        return key
    return value if isinstance(value, list) else key
