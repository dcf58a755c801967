"""Format F, the gradient fusion bank: one JSON list, an item per model.

Source: hicann/ge hccl_engine (reader, tuner and writer), checked against its built-in bank.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from aoebank.formats.gradient.rules import MEMBERS, check_gradient_file, item_problems, item_text
from aoebank.formats.names import BankName, open_parts
from aoebank.formats.protocol import Format, ParsedFile
from aoebank.formats.text import json_text
from aoebank.formats.text.containers import scan_items
from aoebank.formats.text.record import stored
from aoebank.formats.text.scan import FileScan, start_scan
from aoebank.formats.text.splice import splice
from aoebank.model.finding import Finding
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Record, with_raw
from aoebank.model.resolution import Query

FILE_NAME = re.compile(r"(?P<soc>.+)_gradient_fusion\.json")
_ITEM_START = re.compile(r'\{\s*"modelhash"')
_CONTENT = re.compile(rb'(?:\xef\xbb\xbf)?\s*\[\s*\{\s*"model(?:hash|value|graphid)"\s*:')


class GradientFormat(Format):
    """Reads and writes `<soc>_gradient_fusion.json`."""

    name = "gradient"
    empty = b"[]\n"
    globs = ("*_gradient_fusion.json",)
    name_pattern = "<soc_version>_gradient_fusion.json"
    brackets = b"[]"
    first_wins = True  # no answer is right: the reader joins the lists of equal hashes
    joins_equal_keys = True

    def parse_name(self, name: str) -> BankName | None:
        """Return the target from the name of a gradient bank."""
        match = FILE_NAME.fullmatch(name)
        return BankName(soc_version=match["soc"]) if match else None

    def build_name(self, target: BankName | Query) -> str:
        """Return the name of a gradient bank."""
        return f"{open_parts(target)[1]}_gradient_fusion.json"

    def recognizes_content(self, head: bytes) -> bool:
        """True if a list starts with a modelhash."""
        return _CONTENT.match(head) is not None

    def parse(self, data: bytes, path: Path) -> ParsedFile:
        """Find the items of the list; one without a usable modelhash is no record."""
        scan = start_scan(data, path)
        for number, (start, end) in enumerate(scan_items(scan, _ITEM_START)):
            _add(scan, number, start, end)
        return scan.file(self)

    def record(self, parsed: ParsedFile, number: int) -> Record:
        """Return the record at a position: sizes and times are the strategy."""
        text = item_text(parsed, number)
        value = json_text.loads(text.text)
        for problem in item_problems(value):
            raise text.error(problem)
        assert isinstance(value, Mapping)
        record = Record(
            **stored(parsed, number, text),
            workload={"modelhash": parsed.keys[number]},
            strategy=value["modelvalue"],
            extra={name: value[name] for name in value if name not in MEMBERS},
        )
        return with_raw(record, parsed.raw(number))

    def check(self, parsed: ParsedFile) -> Iterator[Finding]:
        """Yield lists that do not fit together, placeholders and hashes that come twice."""
        return check_gradient_file(parsed)

    def serialize(self, parsed: ParsedFile, changes: Mapping[str, Record | None]) -> bytes:
        """Return the file with `changes` applied, untouched items byte for byte."""
        return splice(parsed, changes, render_gradient)


def make_gradient_record(
    *, modelhash: str, sizes_bytes: Sequence[int], times: Sequence[int]
) -> Record:
    """Return a new record for the gradient bank.

    Args:
        modelhash: Identity of the model, an unsigned 64-bit number in decimal.
        sizes_bytes: Sizes of the gradients in the order they become ready.
        times: Absolute time at which the first is ready, then the time since the one before.
    """
    value: dict[str, JsonValue] = {"gradientSize": list(sizes_bytes), "gradientTime": list(times)}
    problem = next(item_problems({"modelhash": modelhash, "modelvalue": value}), None)
    if problem is not None:
        raise ValueError(f"{problem.message} (got {problem.got}, expected {problem.expected})")
    if len(sizes_bytes) != len(times) or not any(sizes_bytes):
        raise ValueError(
            f"a record needs a time per gradient (got {len(sizes_bytes)} and {len(times)})"
        )
    return Record(
        key=modelhash,
        format="gradient",
        workload={"modelhash": modelhash},
        strategy=value,
    )


def render_gradient(record: Record) -> bytes:
    """Return the item of a record, compact as CANN writes it."""
    document: dict[str, JsonValue] = {
        "modelhash": record.key,
        "modelvalue": record.strategy,
        **record.extra,
    }
    return json_text.dumps_compact(document).encode("utf-8")


def _add(scan: FileScan, number: int, start: int, end: int) -> None:
    text = scan.text_at(start, end, (str(number),))
    value = json_text.scan(text.text, 0)[0]
    key_problems = [
        problem for problem in item_problems(value) if problem.tokens in ((), ("modelhash",))
    ]
    for problem in key_problems:
        scan.report_at(text, problem)
    if not key_problems and isinstance(value, Mapping):
        scan.add(str(value["modelhash"]), start, end)
