"""Format A, the runtime bank of Ascend C operators: one record per line, keyed by a C struct.

Source: hicann/ops-nn common/src/op_host/bank_mgr, checked against the 8,645 records of
two releases.
"""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import repeat
from pathlib import Path

from aoebank.errors import RecordError
from aoebank.formats.names import (
    CORE_TYPES,
    OPERATOR_FOLDER,
    OPERATOR_GLOBS,
    RUNTIME_SUFFIX,
    BankName,
    build_operator_name,
    parse_operator_name,
)
from aoebank.formats.protocol import Format, ParsedFile
from aoebank.formats.release import NEWEST, Release, StrategyField
from aoebank.formats.runtime_kb.fields import strategy_field
from aoebank.formats.runtime_kb.line_template import LineTemplates
from aoebank.formats.runtime_kb.operator_schema import (
    FieldError,
    OperatorSchema,
    enum_names,
    operator_schemas,
)
from aoebank.formats.runtime_kb.releases import known_fields, schemas_of
from aoebank.formats.runtime_kb.rules import (
    HINT,
    MEMBERS,
    check_runtime_file,
    is_plain,
    line_problems,
)
from aoebank.formats.runtime_kb.words import key_words, member_words
from aoebank.formats.text import json_text
from aoebank.formats.text.checks import is_stub
from aoebank.formats.text.json_lines import iter_lines
from aoebank.formats.text.problem import blank_line
from aoebank.formats.text.record import record_text, stored
from aoebank.formats.text.scan import FileScan, scan_lines, start_scan
from aoebank.formats.text.splice import splice
from aoebank.model.finding import Finding
from aoebank.model.json_value import JsonObject, JsonValue
from aoebank.model.record import Record, with_raw
from aoebank.model.resolution import Query
from aoebank.processes import count_processes

_SEED = 271828
_GOLDEN = 0x9E3779B9
_WORD = 0xFFFFFFFF
_LANES = 4096  # enough to make the cost of Python disappear, small enough for the CPU's cache


def common_hash(data: bytes) -> int:
    """Return the hash of a packed struct.

    The tail takes its bytes from the start of the buffer, above the last full word: a
    quirk of the reader, and therefore part of the format.

    Source: hicann/ops-nn common/src/op_host/bank_mgr, CommonHash.

    >>> common_hash(bytes(8))
    3641709273
    """
    full = len(data) // 4
    value, word = _SEED, 0
    for number in range(full):
        word = int.from_bytes(data[4 * number : 4 * number + 4], "little")
        value = _mix(value, word)
    for number in range(len(data) & 3, 0, -1):
        word = (word << 8 | data[number - 1]) & _WORD
    return _finish(_mix(value, word), len(data))


def _mix(value: int, word: int) -> int:
    return value ^ ((word + _GOLDEN + (value << 6) + (value >> 2)) & _WORD)


def _finish(value: int, length: int) -> int:
    value ^= length
    return value ^ value >> 16


def common_hashes(structs: Sequence[bytes], length: int) -> list[int]:
    """Return the hash of many structs of one length, several thousand at a time.

    The words of many structs lie side by side in 64-bit lanes of one big integer, so that
    one addition or shift works on all of them: 15 times as fast as one by one.
    """
    found: list[int] = []
    for start in range(0, len(structs), _LANES):
        found += _hash_lanes(structs[start : start + _LANES], length)
    return found


def _hash_lanes(structs: Sequence[bytes], length: int) -> Sequence[int]:
    count = len(structs)
    padding = bytes(-length % 4)
    words = memoryview(padding.join([*structs, b""])).cast("B").cast("I")
    stride = (length + 3) // 4
    ones = int.from_bytes(array("Q", [1]).tobytes() * count, "little")
    mask, golden = ones * _WORD, ones * _GOLDEN
    value, word = ones * _SEED, 0

    def mixed(value: int, word: int) -> int:
        shifted = (value << 6) + ((value >> 2) & mask)
        return value ^ ((word + golden + shifted) & mask)

    for number in range(length // 4):
        word = _lane(words[number::stride], count)
        value = mixed(value, word)
    for number in range(length & 3, 0, -1):
        first = _lane(words[0::stride], count) >> 8 * (number - 1) & ones * 0xFF
        word = (word << 8 & mask) | first
    value = mixed(value, word) ^ ones * length
    value ^= value >> 16 & ones * 0xFFFF
    return array("Q", value.to_bytes(8 * count, "little"))


def _lane(words: memoryview, count: int) -> int:
    """Return 32-bit words as one integer, each in the low half of 64 bits."""
    spread = array("I", bytes(8 * count))
    spread[0::2] = array("I", words.tobytes())
    return int.from_bytes(spread.tobytes(), "little")


class KnownLines:
    """Tells the key of a line that a parsed file has too.

    Two versions of a bank mostly have the same lines in the same order, so the line behind the
    last one found is tried first, then the one behind that; only then a table is asked.
    """

    def __init__(self, parsed: ParsedFile) -> None:
        self._parsed = parsed
        self._next = 0
        self._table: dict[int, int] | None = None

    def find_key(self, raw: bytes) -> str | None:
        """Return the key of a record with these very bytes, or None if there is none."""
        for number in (self._next, self._next + 1):
            if self._is_at(number, raw):
                self._next = number + 1
                return self._parsed.keys[number]
        if self._table is None:
            self._table = {
                hash(self._parsed.raw(place)): place for place in range(len(self._parsed))
            }
        found = self._table.get(hash(raw))
        if found is None or not self._is_at(found, raw):
            return None
        self._next = found + 1
        return self._parsed.keys[found]

    def _is_at(self, number: int, raw: bytes) -> bool:
        parsed = self._parsed
        if number >= len(parsed.keys):
            return False
        start = parsed.starts[number]
        return parsed.ends[number] - start == len(raw) and parsed.data.startswith(raw, start)


_CONTENT = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*\{[^\n]*"info_dict"\s*:\s*\{[^\n]*"knowledge"\s*:\s*\{'
)
_OP_NAME = b'"op"'
_OP = re.compile(_OP_NAME + rb'\s*:\s*"([^"]*)"')
_KNOWN = ("op", "info_dict", "knowledge")  # id and version are nobody's business
_BATCH = 4096


# ---- the format ----


class RuntimeKbFormat(Format):
    """Reads and writes `<soc>_<core>_AiCore_<op type>_runtime_kb.json`.

    Args:
        reader: Release whose fields records are checked against.
        templates: Makes the memory of how the lines of one file are written.
        processes: Says how many processes scan a file of so many bytes.
    """

    name = "runtime_kb"
    empty = b"{}\n"
    content = _CONTENT  # The first line is a record
    globs = (*OPERATOR_GLOBS, "*_runtime_kb.json")
    folder = OPERATOR_FOLDER
    name_pattern = "<soc_version>_<cores>_AiCore_<op_type>_runtime_kb.json"
    first_wins = True  # map.insert leaves what is there
    may_be_sorted = True
    check_reads_all = True  # `parse` made records of readable lines only
    fatal_codes = frozenset({"AB112"})  # each blank line ends a worker, and there may be one only

    def __init__(
        self,
        reader: Release = NEWEST,
        *,
        templates: Callable[[], LineTemplates] = LineTemplates,
        processes: Callable[[int], int] = count_processes,
    ) -> None:
        self._reader = reader
        self._templates = templates
        self._processes = processes

    def parse_name(self, name: str) -> BankName | None:
        """Return the parts of the name of a runtime bank; its reader knows only AiCore."""
        found = parse_operator_name(name, RUNTIME_SUFFIX)
        return found if found is not None and found.core_type == CORE_TYPES[0] else None

    def build_name(self, target: BankName | Query) -> str:
        """Return the name of a runtime bank."""
        return build_operator_name(target, RUNTIME_SUFFIX)

    def parse(self, data: bytes, path: Path) -> ParsedFile:
        """Find the records; what the reader rejects whole is a finding and no record."""
        return self.parse_like(data, path, None)

    def parse_like(self, data: bytes, path: Path, like: ParsedFile | None) -> ParsedFile:
        """Parse another version of `like`: a line both have is not read twice."""
        known = KnownLines(like) if like is not None and like.format is self else None
        scan = start_scan(data, path)
        if not is_stub(data):
            work = partial(_scan_part, known=known, templates=self._templates)
            scan_lines(scan, work, self._processes)
        return scan.file(self)

    def record(self, parsed: ParsedFile, number: int) -> Record:
        """Return the record at a position; id, version and unknown members are in `extra`."""
        text = record_text(parsed, number)
        value = json_text.loads(text.text)
        problems = () if _is_sound(value) else line_problems(value)
        for problem in problems:  # undecodable bytes can make `loads` differ
            raise text.error(problem)
        assert isinstance(value, Mapping)
        record = Record(
            **stored(parsed, number, text),
            op_type=str(value["op"]),
            workload=value["info_dict"],
            strategy=value["knowledge"],
            extra={name: value[name] for name in value if name not in _KNOWN},
        )
        return with_raw(record, parsed.raw(number))

    def iter_op_types(self, parsed: ParsedFile) -> Iterator[str | None]:
        """Yield the operator in each line."""
        return (_op_of(parsed, number) for number in range(len(parsed)))

    def iter_times_us(self, parsed: ParsedFile) -> Iterator[float | None]:
        """Yield None for each record: lines hold no time."""
        return repeat(None, len(parsed))

    def check(self, parsed: ParsedFile) -> Iterator[Finding]:
        """Yield identity, field and value findings, and what the reader does not survive."""
        cores = parsed.name.core_num if parsed.name else None
        op_type = parsed.name.op_type if parsed.name else None
        schemas = None if self._reader is NEWEST else schemas_of(self._reader)
        return check_runtime_file(parsed, cores=cores, op_type=op_type, schemas=schemas)

    def read_by(self, reader: Release) -> Format:
        """Return the format as a release reads it; identities are the same in all."""
        return RuntimeKbFormat(reader)

    def iter_keys(self, text: str, value: JsonValue, op_type: str | None) -> Iterator[str]:
        """Yield the key of a workload of this operator, if it has the members of one."""
        if op_type is None or not isinstance(value, Mapping):
            return
        schema = operator_schemas().get(op_type)
        names = schema.workload.names if schema is not None else value
        with suppress(KeyError, ValueError):  # the reader would never ask for it
            yield runtime_key(op_type, value)
            yield runtime_key(op_type, {name: value[name] for name in value if name in names})

    def iter_keys_of_id(self, parsed: ParsedFile, number: int) -> Iterator[str]:
        """Yield the keys of records with this 32-bit hash, which logs print, or stored id."""
        hash_ = f"{number:08x}"
        yield from (key for key in parsed.keys if key.startswith(hash_))
        if str(number).encode("ascii") in parsed.data:
            found = parsed.iter_records()
            yield from (record.key for record in found if record.extra.get("id") == number)

    def value_name(self, op_type: str | None, member: str, value: JsonValue) -> str:
        """Return the name of a data type or a layout."""
        schema = operator_schemas().get(op_type or "")
        field = schema.workload.names.get(member) if schema else None
        if field is None or type(value) is not int:
            return ""
        return enum_names().get(field.c_type, {}).get(value, "")

    def workload_words(self, record: Record) -> str:
        """Return a key in words, or its members but for those that are 0 or 1."""
        workload, op_type = record.workload, record.op_type
        if not isinstance(workload, Mapping):
            return ""
        name_of = partial(self.value_name, op_type)
        return key_words(op_type or "", workload, name_of) or member_words(workload, name_of)

    def unread_reason(self, op_type: str | None, member: str) -> str:
        """Return why no release of the operator uses a tiling field, if none does."""
        schema = operator_schemas().get(op_type or "")
        if schema is None:
            return ""
        field = schema.strategy.names.get(member)
        if field is None:
            return "" if member in known_fields(schema.op) else "no reader knows it"
        if field.is_reserved:
            return "reserved"
        return "" if field.is_read else "the operator does not take it from records"

    def strategy_fields(self, op_type: str) -> Mapping[str, StrategyField] | None:
        """Return the tiling struct of an operator, as the release that reads has it."""
        is_newest = self._reader is NEWEST
        schema = (operator_schemas() if is_newest else schemas_of(self._reader)).get(op_type)
        if schema is None:
            return None
        return {field.name: strategy_field(field) for field in schema.strategy.fields}

    def strategy_places(self, parsed: ParsedFile, number: int) -> Sequence[int]:
        """Return the offset of the tiling values."""
        return (json_text.locate(parsed.text(number), ("knowledge",)),)

    def serialize(self, parsed: ParsedFile, changes: Mapping[str, Record | None]) -> bytes:
        """Return the file with `changes` applied, untouched lines byte for byte."""
        return splice(parsed, changes, render_runtime)


def runtime_key(op_type: str, workload: JsonObject) -> str:
    """Return the key of a workload: the reader's 32-bit hash, then a digest of the struct.

    The first eight digits are what the reader looks up; the others keep two structs apart
    that share a hash. A member no schema knows is part of them too: a later release may hash it,
    and a merge must not make one record of two. An operator without a schema is known by its
    canonical JSON.

    Raises:
        KeyError: a field of the key struct is missing.
        ValueError: a value has a type the reader rejects.
    """
    schema = operator_schemas().get(op_type)
    if schema is None:
        return _json_key(op_type, workload)
    packed = schema.workload.pack(workload)
    unknown = {name: workload[name] for name in workload.keys() - schema.workload.names.keys()}
    struct = packed + _canonical(unknown) if unknown else packed
    return _struct_key(common_hash(packed), struct, _start_digest(schema))


def render_runtime(record: Record) -> bytes:
    """Return the line of a record, compact as CANN writes it."""
    document: dict[str, JsonValue] = {
        "id": int(record.key[:8], 16),
        "version": 0,
        **record.extra,
        "info_dict": record.workload,
        "knowledge": record.strategy,
        "op": record.op_type,
    }
    ordered = {name: document[name] for name in (*MEMBERS, *document)}
    return json_text.dumps_compact(ordered).encode("utf-8")


def _op_of(parsed: ParsedFile, number: int) -> str | None:
    """Return the operator of a record; its line is read as JSON only where it has to be."""
    data, start, end = parsed.data, parsed.starts[number], parsed.ends[number]
    place = data.rfind(_OP_NAME, start, end)
    # a record has this member; written once, and without escapes, it is no part of another one
    if data.find(_OP_NAME, start, place + 1) < 0 and data.find(b"\\", start, end) < 0:
        found = _OP.match(data, place, end)
        if found is not None:
            return found[1].decode("utf-8", errors="replace")
    try:
        return parsed.format.record(parsed, number).op_type
    except RecordError:
        return parsed.name.op_type if parsed.name else None


def _is_sound(value: JsonValue) -> bool:
    """True if a line has nothing odd about it; no is a maybe."""
    if not isinstance(value, dict) or not is_plain(value):
        return False
    schema = operator_schemas().get(value["op"])
    if schema is None:
        return True
    try:
        schema.workload.pack(value["info_dict"])
    except (KeyError, FieldError):
        return False
    return True


def _scan_part(
    scan: FileScan,
    first: int,
    stop: int,
    *,
    known: KnownLines | None,
    templates: Callable[[], LineTemplates],
) -> None:
    """Add the records and findings of the lines between two bytes."""
    data, batch = scan.data, _Batch(scan.keys, templates())
    for start, end in iter_lines(data, first, stop):
        raw = data[start:end]
        key = known.find_key(raw) if known is not None else None
        if key is not None:
            scan.add(key, start, end)
            continue
        if batch.add_like(raw):
            scan.starts.append(start)
            scan.ends.append(end)
            continue
        text = raw.decode("utf-8", errors="replace")
        try:
            value = json_text.scan_line(text)
        except json_text.JsonTextError as error:
            _report_bad(scan, error, start, end)
            continue
        if not isinstance(value, dict) or not is_plain(value) or not batch.add(value, raw):
            problems = [*line_problems(value)]
            for problem in problems:
                scan.report(problem, start, end)
            if problems:
                continue
            batch.add_odd(value)  # type: ignore[arg-type]
        scan.starts.append(start)
        scan.ends.append(end)
    batch.flush()


def _report_bad(scan: FileScan, error: json_text.JsonTextError, start: int, end: int) -> None:
    if start == end:
        scan.report(blank_line(HINT), start, end)
    else:
        scan.report_bad(error, start, end)


def _json_key(op_type: str, workload: JsonValue) -> str:
    return hashlib.md5(_canonical([op_type, workload]), usedforsecurity=False).hexdigest()


def _canonical(value: JsonValue) -> bytes:
    return json.dumps(value, sort_keys=True, default=dict).encode("ascii")


def _start_digest(schema: OperatorSchema) -> hashlib.blake2b:
    """Return the digest of a key, the struct still to come."""
    return hashlib.blake2b(schema.op.encode("utf-8") + b"\0", digest_size=12)


def _struct_key(hash_: int, packed: bytes, start: hashlib.blake2b) -> str:
    digest = start.copy()
    digest.update(packed)
    return f"{hash_:08x}{digest.hexdigest()}"


class _Batch:
    """Keys of records, their hashes computed some thousand at a time."""

    def __init__(self, keys: list[str], templates: LineTemplates) -> None:
        self._keys = keys
        self._pending: dict[str, tuple[list[int], list[bytes]]] = {}
        self._schemas = operator_schemas()
        self._templates = templates

    def add_like(self, raw: bytes) -> bool:
        """Add the record of a line written as an earlier one, or return False."""
        found = self._templates.find(raw)
        if found is None:
            return False
        template, packed = found
        self._add_packed(template.schema.op, packed)
        return True

    def add(self, value: Mapping[str, JsonValue], raw: bytes) -> bool:
        """Add the record of a line, or return False if its workload needs a closer look."""
        op, workload = value["op"], value["info_dict"]
        schema = self._schemas.get(op)  # type: ignore[arg-type]
        if schema is None or workload.keys() - schema.workload.names.keys():  # type: ignore[union-attr]
            return False
        try:
            packed = schema.workload.pack(workload)  # type: ignore[arg-type]
        except (KeyError, FieldError):
            return False
        self._add_packed(schema.op, packed)
        self._templates.learn(raw, value, schema)
        return True

    def _add_packed(self, op: str, packed: bytes) -> None:
        pending = self._pending.get(op)
        if pending is None:
            pending = self._pending[op] = ([], [])
        numbers, structs = pending
        numbers.append(len(self._keys))
        structs.append(packed)
        self._keys.append("")
        if len(structs) >= _BATCH:
            self.flush()

    def add_odd(self, value: Mapping[str, JsonValue]) -> None:
        """Add a record without problems that `add` did not take."""
        op, workload = str(value["op"]), value["info_dict"]
        if op not in self._schemas:
            self._keys.append(_json_key(op, workload))
        elif isinstance(workload, Mapping):
            self._keys.append(runtime_key(op, workload))

    def flush(self) -> None:
        """Compute the keys that are still to come."""
        keys = self._keys
        for op, (numbers, structs) in self._pending.items():
            schema = self._schemas[op]
            hashes = common_hashes(structs, schema.workload.size)
            start = _start_digest(schema)
            for number, packed, hash_ in zip(numbers, structs, hashes, strict=True):
                keys[number] = _struct_key(hash_, packed, start)
        self._pending.clear()
