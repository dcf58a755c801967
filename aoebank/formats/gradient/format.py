"""Format F, the gradient fusion bank: one JSON list, an item per model.

Source: hicann/ge hccl_engine (reader, tuner and writer), checked against its built-in bank.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from aoebank.formats.graph.rules import is_uint64, uint64_problem
from aoebank.formats.names import BankName, open_parts
from aoebank.formats.protocol import Format, ParsedFile
from aoebank.formats.structure import Structure
from aoebank.formats.text import json_text
from aoebank.formats.text.containers import scan_items
from aoebank.formats.text.problem import (
    Problem,
    RecordText,
    kind_of,
    missing,
    unknown_members,
    wrong_type,
)
from aoebank.formats.text.record import record_text, stored
from aoebank.formats.text.scan import FileScan, start_scan
from aoebank.formats.text.splice import splice
from aoebank.model.finding import Finding
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Record, with_raw
from aoebank.model.resolution import Query

_MIB = 1 << 20
FILE_NAME = re.compile(r"(?P<soc>.+)_gradient_fusion\.json")
_ITEM_START = re.compile(r'\{\s*"modelhash"')
_CONTENT = re.compile(rb'(?:\xef\xbb\xbf)?\s*\[\s*\{\s*"model(?:hash|value|graphid)"\s*:')


class GradientFormat(Format):
    """Reads and writes `<soc>_gradient_fusion.json`."""

    name = "gradient"
    empty = b"[]\n"
    content = _CONTENT  # A list starts with a modelhash
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

    def workload_words(self, record: Record) -> str:
        """Return the number of gradients and their size, which are stored with the answer."""
        match record.strategy:
            case {"gradientSize": [_, *_] as sizes} if all(type(size) is int for size in sizes):
                return f"{len(sizes)} gradients, {sum(sizes) / _MIB:.4g} MiB"
        return ""

    def strategy_words(self, record: Record) -> Iterator[str]:
        """Return the time until the last gradient is ready, and the range of sizes."""
        match record.strategy:
            case {"gradientSize": [_, *_] as sizes, "gradientTime": [_, *steps]}:
                if all(type(number) is int for number in (*sizes, *steps)):
                    yield f"the last one ready {sum(steps)} behind the first"
                    yield f"sizes from {min(sizes)} to {max(sizes)} bytes"

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


MEMBERS = ("modelhash", "modelvalue")
KNOWN = (*MEMBERS, "modelgraphid")
# ---- what an item must hold, as its reader takes it ----

STRUCTURE = Structure(schema="gradient/1.json", record=("items",), depth=3)
LISTS = ("gradientSize", "gradientTime")


def item_text(parsed: ParsedFile, number: int) -> RecordText:
    """Return the text of an item; its pointer starts with its place among the records."""
    return record_text(parsed, number, (str(number),))


def item_problems(value: JsonValue) -> Iterator[Problem]:
    """Yield why the reader cannot use an item.

    Problems of the item as a whole or of its modelhash leave it without an identity.
    """
    if not isinstance(value, Mapping):
        yield Problem(
            code="AB204",
            tokens=(),
            message="item is not an object",
            got=kind_of(value),
            expected="an object",
        )
        return
    if "modelhash" not in value:
        yield missing("modelhash", hint="tune the model again, or remove the item")
    elif not is_uint64(value["modelhash"]):
        yield uint64_problem(value["modelhash"], "modelhash")
    if "modelvalue" not in value:
        yield missing("modelvalue", ("modelvalue",))
    elif not isinstance(value["modelvalue"], Mapping):
        yield wrong_type(value["modelvalue"], ("modelvalue",), "an object")
    else:
        yield from _list_problems(value["modelvalue"])


def _list_problems(model: Mapping[str, JsonValue]) -> Iterator[Problem]:
    for name in LISTS:
        place = ("modelvalue", name)
        if name not in model:
            yield missing(name, ("modelvalue",), "tune the model again, or remove the item")
            continue
        items = model[name]
        if not isinstance(items, list):
            yield wrong_type(items, place, "a list")
            continue
        for number, item in enumerate(items):
            if isinstance(item, bool) or not isinstance(item, int | float):
                yield Problem(
                    code="AB206",
                    tokens=(*place, str(number)),
                    message=f"member {name} holds something else than numbers",
                    got=kind_of(item),
                    expected="a number",
                )
                break


def check_gradient_file(parsed: ParsedFile) -> Iterator[Finding]:
    """Yield findings about lists, placeholders and identities."""
    for number in range(len(parsed)):
        text = item_text(parsed, number)
        value = json_text.scan(text.text, 0)[0]
        assert isinstance(value, Mapping)
        problems = [*STRUCTURE.problems(value, item_problems(value))]
        if not problems:
            problems += _value_problems(value["modelvalue"])
        for problem in (*problems, *_item_rules(parsed, number, value)):
            yield text.finding(problem)
        yield from text.duplicates(value)


def _value_problems(model: JsonValue) -> Iterator[Problem]:
    assert isinstance(model, Mapping)
    sizes, times = model["gradientSize"], model["gradientTime"]
    assert isinstance(sizes, list)
    assert isinstance(times, list)
    if len(sizes) != len(times):
        yield Problem(
            code="AB213",
            tokens=("modelvalue",),
            message="gradientSize and gradientTime differ in length",
            got=f"{len(sizes)} and {len(times)}",
            expected="one size and one time per gradient",
            hint="tune the model again",
        )
    if not any(sizes) and not any(times):
        yield Problem(
            code="AB408",
            tokens=("modelvalue",),
            message="lists are empty" if not sizes else "lists hold a placeholder",
            got=f"{len(sizes)} zeros" if sizes else "no items",
            hint="tune the model again; the tuner died before it filled the record",
        )
    for name, items in (("gradientSize", sizes), ("gradientTime", times)):
        negative = next((place for place, item in enumerate(items) if item < 0), None)
        if negative is not None:
            yield Problem(
                code="AB404",
                tokens=("modelvalue", name, str(negative)),
                message=f"{name} is negative",
                got=str(items[negative])[:40],
                expected=">= 0",
                hint="tune the model again",
            )


def _item_rules(
    parsed: ParsedFile, number: int, value: Mapping[str, JsonValue]
) -> Iterator[Problem]:
    used = parsed.find(parsed.keys[number])
    if used is not None and used != number:
        line, column = parsed.lines.position(parsed.starts[used])
        yield Problem(
            code="AB312",
            tokens=("modelhash",),
            message="same modelhash as another item: the reader joins their lists",
            got=f"line {line}, column {column}",
            expected="each modelhash once",
            hint="remove one of them",
        )
    yield from unknown_members(value, KNOWN)
