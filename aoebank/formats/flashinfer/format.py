"""Tactics that FlashInfer ships: a module of Python with one dictionary, a member per workload.

A key is the text of a tuple: operator, runner, shapes, and what else the runner tells workloads
apart by. Its reader makes that text of a call and looks for it, so another number of fields is
never found. The device is in the name of the file.

Source: flashinfer/autotuner/autotuner.py of flashinfer-python 0.7.2 (`file_key`,
`get_config_path`, `load_from_file`), checked against the two files of tuning_configs/.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from aoebank.errors import BankFormatError
from aoebank.formats.names import BankName
from aoebank.formats.protocol import FieldEdit, Format, ParsedFile
from aoebank.formats.text import python_text
from aoebank.formats.text.checks import BOM
from aoebank.formats.text.containers import report_problems
from aoebank.formats.text.json_text import JsonTextError
from aoebank.formats.text.problem import Problem, RecordText, repeated
from aoebank.formats.text.record import record_text, stored
from aoebank.formats.text.scan import FileScan, start_scan
from aoebank.formats.text.splice import splice
from aoebank.model.finding import Finding
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Record, with_raw
from aoebank.model.resolution import Query

RUNNER = "runner"
TACTIC = "tactic"
FIELDS = ("operator", "runner", "shapes", "extras")
_FILE_NAME = re.compile(r"v0_1_trtllm_fused_moe_(?P<device>[0-9A-Za-z_.-]+)\.py", re.ASCII)
# no braces in comments around it: the first and the last one are the dictionary's
_HEAD = re.compile(r"(?:[ \t\r\n]+|#[^\n{]*\n)*best_configs[ \t]*=[ \t]*\{")
_TAIL = re.compile(r"(?:[ \t\r\n]+|#[^\n}]*)*")
_CONTENT = re.compile(rb"(?:\xef\xbb\xbf)?(?:[ \t\r\n]+|#[^\n{]*\n)*best_configs[ \t]*=[ \t]*\{")
_KEY_START = re.compile(r"""^[ \t]*(?P<key>["']\()""", re.MULTILINE)


class FlashInferFormat(Format):
    """Reads and writes `v0_1_trtllm_fused_moe_<device>.py`."""

    name = "flashinfer"
    empty = b"best_configs = {\n}\n"
    content = _CONTENT  # The dictionary starts the file
    globs = ("v0_1_trtllm_fused_moe_*.py",)
    name_pattern = "v0_1_trtllm_fused_moe_<device>.py"
    first_wins = False  # Python keeps the last of two equal keys
    brackets = b"{}"
    indent = b"    "
    is_of_one_target = True
    edits_fields = True
    target_word = "target"

    def parse_name(self, name: str) -> BankName | None:
        """Return the device, blanks of its name being underscores."""
        match = _FILE_NAME.fullmatch(name)
        return BankName(soc_version=match["device"]) if match else None

    def build_name(self, target: BankName | Query) -> str:
        """Return the name its reader imports on a device."""
        return f"v0_1_trtllm_fused_moe_{target.soc_version or '<soc_version>'}.py"

    def parse(self, data: bytes, path: Path) -> ParsedFile:
        """Find the members of the dictionary."""
        scan = start_scan(data, path)
        report_problems(scan, _scan_members(scan), ("AB102", "AB104"))
        return scan.file(self)

    def record(self, parsed: ParsedFile, number: int) -> Record:
        """Return the record at a position."""
        text = record_text(parsed, number, (parsed.keys[number],))
        value = _answer(text)
        for problem in _answer_problems(value):
            raise text.error(problem)
        assert isinstance(value, list)
        key = parsed.keys[number]
        fields = _fields(key)
        workload: dict[str, JsonValue] = dict(zip(FIELDS, fields, strict=False)) or {"key": key}
        record = Record(
            **stored(parsed, number, text),
            op_type=_op_type(key),
            workload=workload,
            strategy={RUNNER: value[0], TACTIC: value[1]},
        )
        return with_raw(record, parsed.raw(number))

    def iter_op_types(self, parsed: ParsedFile) -> Iterator[str | None]:
        """Yield the operator of each key."""
        return map(_op_type, parsed.keys)

    def check(self, parsed: ParsedFile) -> Iterator[Finding]:
        """Yield answers that are none, and keys that come twice or that no look-up makes."""
        for number, key in enumerate(parsed.keys):
            text = record_text(parsed, number, (key,))
            for problem in (*_key_problems(key), *_answer_problems(_answer(text))):
                yield text.finding(problem)
            if parsed.find(key) != number:
                yield text.finding(repeated("key", key[:60]))

    def iter_keys(self, text: str, value: JsonValue, op_type: str | None) -> Iterator[str]:
        """Yield the text of the key."""
        yield text.strip()

    def workload_words(self, record: Record) -> str:
        """Return runner and shapes, `MoERunner 16x512 by 8x192x64`."""
        fields = _fields(record.key)
        if len(fields) < 3 or not isinstance(fields[2], list):
            return ""
        shapes = (
            "x".join(map(str, shape)) if isinstance(shape, list) and shape else "scalar"
            for shape in fields[2]
        )
        return f"{fields[1]} {' by '.join(shapes)}"

    def edit_strategy(self, parsed: ParsedFile, number: int, edit: FieldEdit) -> bytes | None:
        """Return a member with another runner or tactic."""
        record = self.record(parsed, number)
        assert isinstance(record.strategy, Mapping)
        strategy = {**record.strategy, **edit.assign}
        if edit.unset or {*strategy} != {RUNNER, TACTIC}:
            raise BankFormatError(
                "an answer is a runner and a tactic", path=parsed.path, expected=TACTIC
            )
        text = parsed.text(number)
        return (text[: _value_place(text)] + _written(strategy)).encode("utf-8")

    def serialize(self, parsed: ParsedFile, changes: Mapping[str, Record | None]) -> bytes:
        """Return the file with `changes` applied, untouched members byte for byte."""
        return splice(parsed, changes, partial(_render, parsed.path))


# ---- reading ----


def _scan_members(scan: FileScan) -> list[JsonTextError]:
    """Add the members of the dictionary to a scan; return what is wrong with the others."""
    # as Latin-1, in which a character is a byte
    text = scan.data.removeprefix(BOM).decode("latin-1")
    base = len(scan.data) - len(text)
    head, problems = _HEAD.match(text), list[JsonTextError]()
    if head is None:
        place = python_text.skip_space(text, 0)
        wrong = JsonTextError("file is not one dictionary best_configs", base + place, "AB201")
        return [wrong] if text.strip() else []
    place = python_text.skip_space(text, head.end())
    while not text.startswith("}", place):
        start = place
        try:
            name, place = python_text.scan_string(text, start)
            if not name.isascii():
                spelled = text[start:place].encode("latin-1").decode("utf-8", errors="replace")
                name, _ = python_text.scan_string(spelled, 0)
            end = python_text.scan_literal(text, _value_place(text, start))[1]
            place = python_text.skip_space(text, end)
            has_comma = text.startswith(",", place)
            if not has_comma and not text.startswith("}", place):
                raise JsonTextError("expecting ',' or '}' after a member", place)
        except JsonTextError as error:
            error.offset += base
            problems.append(error)
            # one bad member hides no other
            mark = _KEY_START.search(text, start + 1)
            if mark is None:
                return problems
            place = mark.start("key")
            continue
        scan.add(name, base + start, base + end)
        place = python_text.skip_space(text, place + has_comma)
    tail = _TAIL.match(text, place + 1)
    if tail is not None and tail.end() < len(text):
        problems.append(JsonTextError("text after the dictionary", base + tail.end(), "AB107"))
    return problems


def _value_place(text: str, offset: int = 0) -> int:
    """Return the offset of the value of a member.

    Raises:
        JsonTextError: it has none.
    """
    _, end = python_text.scan_string(text, offset)
    colon = python_text.skip_space(text, end)
    if not text.startswith(":", colon):
        raise JsonTextError("expecting ':' after a key", colon)
    return python_text.skip_space(text, colon + 1)


def _answer(text: RecordText) -> JsonValue:
    return python_text.scan_literal(text.text, _value_place(text.text))[0]


def _fields(key: str) -> list[JsonValue]:
    """Return the fields of a key, none if it is no tuple that starts with two names."""
    try:
        value, end = python_text.scan_literal(key, 0)
    except JsonTextError:
        return []
    is_tuple = key.startswith("(") and end == len(key) and isinstance(value, list)
    if not is_tuple or not isinstance(value, list) or len(value) < 2:
        return []
    return value if all(isinstance(name, str) for name in value[:2]) else []


def _op_type(key: str) -> str | None:
    fields = _fields(key)
    return str(fields[0]) or None if fields else None


# ---- writing ----


def _written(strategy: Mapping[str, JsonValue]) -> str:
    values = (python_text.dumps_literal(strategy[name]) for name in (RUNNER, TACTIC))
    return "(\n" + "".join(f"        {value},\n" for value in values) + "    )"


def _render(path: Path, record: Record) -> bytes:
    strategy = record.strategy
    if not isinstance(strategy, Mapping) or {*strategy} != {RUNNER, TACTIC}:
        raise BankFormatError(f"record {record.key} has no runner and tactic", path=path)
    lost = [*record.extra, *(["cost_us"] if record.cost_us is not None else [])]
    if lost:
        raise BankFormatError(
            f"record {record.key} cannot be written without loss", path=path, got=", ".join(lost)
        )
    return f"{python_text.dumps_string(record.key)}: {_written(strategy)}".encode()


# ---- checking ----


def _key_problems(key: str) -> Iterator[Problem]:
    fields = _fields(key)
    if len(fields) == len(FIELDS) and all(isinstance(one, list) for one in fields[2:]):
        return
    yield Problem(
        code="AB313",
        tokens=(),
        message=(
            f"key has {len(fields)} fields, the look-up asks with {len(FIELDS)}"
            if fields and len(fields) != len(FIELDS)
            else "key is no text of a tuple as the look-up makes it"
        ),
        got=key[:60],
        expected=f"({', '.join(FIELDS)})",
        hint="remove the record; what it lacks is known where the workload is tuned",
    )


def _answer_problems(value: JsonValue) -> Iterator[Problem]:
    is_pair = isinstance(value, list) and len(value) == 2 and type(value[0]) is int
    if not is_pair:
        yield Problem(
            code="AB206",
            tokens=(),
            message="answer is no pair of a runner and a tactic",
            got=python_text.dumps_literal(value)[:40],
            expected="(0, <tactic>)",
            hint="remove the record",
        )
