"""Format C, the cube ("GA") bank: JSON lines of shape and tiling, with a binary twin.

Source: CANN 8.1 auto_tune.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from aoebank.formats.names import BankName, open_parts
from aoebank.formats.protocol import Format, ParsedFile
from aoebank.formats.structure import Structure
from aoebank.formats.text import json_text
from aoebank.formats.text.json_lines import duplicate_identity, iter_values
from aoebank.formats.text.member_words import shape_words
from aoebank.formats.text.problem import Problem, missing, not_a_record, unknown_members, wrong_type
from aoebank.formats.text.record import cost_problems, cost_us, record_text, stored
from aoebank.formats.text.scan import start_scan
from aoebank.formats.text.splice import splice
from aoebank.model.finding import Finding, Location, make_finding
from aoebank.model.json_value import JsonObject, JsonValue
from aoebank.model.record import Record, with_raw
from aoebank.model.resolution import Query

FILE_NAME = re.compile(
    r"(?:AIC_(?P<cores>\d{1,9})_L1_SIZE_\d+(?:_L2_FUSION)?_)?repository_(?P<soc>.+?)_"
    r"(?P<op>conv2d_.+|conv3d_.+|convolution.*|matmul.*|depthwise.*|[^_]+)\.json",
    re.ASCII,
)
_CONTENT = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{[^\n]*"shape"\s*:\s*\{[^\n]*"tiling"\s*:')


class CubeFormat(Format):
    """Reads and writes `[AIC_<cores>_L1_SIZE_<KiB>_]repository_<soc>_<op>.json`."""

    name = "cube"
    empty = b"{}\n"
    content = _CONTENT  # The first line holds a shape and a tiling
    globs = ("repository_*.json", "AIC_*_repository_*.json")
    keeps_times = True
    folder = "cube"
    name_pattern = "[AIC_<cores>_L1_SIZE_<KiB>[_L2_FUSION]_]repository_<soc>_<op>.json"
    first_wins = True
    fatal_codes = frozenset({"AB105"})  # Python's json takes no mark: the job ends

    def parse_name(self, name: str) -> BankName | None:
        """Return target and operator from the name of a cube bank; old names lack cores."""
        match = FILE_NAME.fullmatch(name)
        if match is None:
            return None
        cores = match["cores"]
        return BankName(
            soc_version=match["soc"], core_num=int(cores) if cores else None, op_type=match["op"]
        )

    def build_name(self, target: BankName | Query) -> str:
        """Return the newer name of a cube bank."""
        cores, soc, op_type = open_parts(target)
        return f"AIC_{cores}_L1_SIZE_<KiB>_repository_{soc}_{op_type}.json"

    def is_soc(self, spelled: str, soc_version: str) -> bool:
        """True if they are equal but for capitals: some names start with a small one."""
        return spelled.lower() == soc_version.lower()

    def companion(self, path: Path) -> Path | None:
        """Return the binary twin, the only file the compiler reads."""
        return path.with_suffix(".bin")

    def check_companion(self, parsed: ParsedFile, data: bytes | None) -> Iterator[Finding]:
        """Yield the contradictions between a bank and its binary cache."""
        return check_binary_cache(parsed, data)

    def parse(self, data: bytes, path: Path) -> ParsedFile:
        """Find the records; a line that is none is a finding, also where readers pass over it."""
        scan = start_scan(data, path)
        for value, start, end in iter_values(scan):
            problems = [*line_problems(value)]
            for problem in problems:
                scan.report(problem, start, end)
            if not problems and isinstance(value, Mapping):
                scan.add(cube_key(value["shape"]), start, end)  # type: ignore[arg-type]
        return scan.file(self)

    def record(self, parsed: ParsedFile, number: int) -> Record:
        """Return the record at a position; the shape with its names is the workload."""
        text = record_text(parsed, number)
        value = json_text.loads(text.text)
        for problem in line_problems(value):
            raise text.error(problem)
        assert isinstance(value, Mapping)
        shape = value["shape"]
        op_type = shape.get("op_type") if isinstance(shape, Mapping) else None
        record = Record(
            **stored(parsed, number, text),
            op_type=op_type if isinstance(op_type, str) else None,
            workload=shape,
            strategy=value["tiling"],
            cost_us=cost_us(value.get("cost_time")),
            extra=_extra(value),
        )
        return with_raw(record, parsed.raw(number))

    def workload_words(self, record: Record) -> str:
        """Return the operator with the shapes of its tensors."""
        return shape_words(record.workload)

    def check(self, parsed: ParsedFile) -> Iterator[Finding]:
        """Yield identity and value findings of every record."""
        return check_cube_file(parsed)

    def iter_keys(self, text: str, value: JsonValue, op_type: str | None) -> Iterator[str]:
        """Yield the key of a shape."""
        if isinstance(value, Mapping):
            yield cube_key(value)

    def serialize(self, parsed: ParsedFile, changes: Mapping[str, Record | None]) -> bytes:
        """Return the file with `changes` applied; its twin must then be made anew."""
        return splice(parsed, changes, render_cube)


def cube_key(shape: JsonObject) -> str:
    """Return the key of a shape: md5 of its canonical JSON without the names in it.

    The compiler looks up bit fields whose layout is not public; what is known is that names
    take no part in them. Two shapes of one key are one to the compiler; it may know more
    such pairs.
    """
    text = json.dumps(identity_part(shape), sort_keys=True, default=dict)
    return hashlib.md5(text.encode("ascii"), usedforsecurity=False).hexdigest()


def render_cube(record: Record) -> bytes:
    """Return the line of a record, as CANN writes it."""
    document: dict[str, JsonValue] = {"shape": record.workload, "tiling": record.strategy}
    if record.cost_us is not None:
        document["cost_time"] = record.cost_us
    return json_text.dumps({**document, **record.extra}).encode("utf-8")


def _extra(value: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    is_time = cost_us(value.get("cost_time")) is not None
    known = MEMBERS if is_time else ("shape", "tiling")
    return {name: value[name] for name in value if name not in known}


# ---- what a line must hold ----

STRUCTURE = Structure(schema="cube/1.json", depth=1)
MEMBERS = ("shape", "tiling", "cost_time")
# Source: CANN 8.1 auto_tune: names do not take part in the bits of a shape
NAME_MEMBERS = ("kernel_name", "test_case", "op_name", "platform")


def identity_part(shape: JsonObject) -> dict[str, JsonValue]:
    """Return the shape without the members that only name it."""
    return {name: shape[name] for name in shape if name not in NAME_MEMBERS}


def line_problems(value: JsonValue) -> Iterator[Problem]:
    """Yield why readers cannot use a line."""
    yield from not_a_record(value)
    if isinstance(value, Mapping) and value:
        yield from _member_problems(value)


def _member_problems(value: Mapping[str, JsonValue]) -> Iterator[Problem]:
    for name in ("shape", "tiling"):
        if name not in value:
            yield missing(name, hint="tune the workload again, or remove the record")
    if not isinstance(value.get("shape", {}), Mapping):
        yield wrong_type(value["shape"], ("shape",), "an object")
    if not isinstance(value.get("tiling", []), list | tuple | Mapping):
        yield wrong_type(value["tiling"], ("tiling",), "a list or an object")
    cost = value.get("cost_time", 1)
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        yield wrong_type(cost, ("cost_time",), "a number")


def check_cube_file(parsed: ParsedFile) -> Iterator[Finding]:
    """Yield identity and value findings of the records."""
    for number in range(len(parsed)):
        text = record_text(parsed, number)
        value = json_text.scan(text.text, 0)[0]
        assert isinstance(value, Mapping)
        for problem in (
            *STRUCTURE.problems(value),
            *_value_problems(value),
            *_identity_problems(parsed, number),
        ):
            yield text.finding(problem)
        yield from text.duplicates(value)


def _value_problems(value: Mapping[str, JsonValue]) -> Iterator[Problem]:
    yield from cost_problems(value.get("cost_time"))
    yield from unknown_members(value, MEMBERS)


def _identity_problems(parsed: ParsedFile, number: int) -> Iterator[Problem]:
    yield from duplicate_identity(
        parsed,
        number,
        ("shape",),
        "tiling",
        "remove the slower one: the binary twin cannot be made from both",
    )


# ---- the binary twin: head and sizes, as far as its layout is public ----
#
# The bits of a shape and of a tiling have no public layout, so a twin whose sizes fit may still
# hold other records than its JSON.
# Source: CANN 8.1 auto_tune: 64 bytes of head (checksum, length of the head, platform, number
# of cases, version), then shape bits and tiling bits per record in the order of the JSON.

HEAD_BYTES = 64
CHECK_SUM = 1031
_PLATFORM = b"AaZ"
_REBUILD = "make the twin anew with CANN's tools"


def check_binary_cache(parsed: ParsedFile, data: bytes | None) -> Iterator[Finding]:
    """Yield the problems of a bank's binary cache.

    Args:
        parsed: The JSON side.
        data: Bytes of the twin, None if there is none.
    """
    path = parsed.path.with_suffix(".bin")
    if data is None:
        yield make_finding(
            "AB508",
            Location(path=parsed.path),
            "binary twin is missing: readers see no bank",
            expected=path.name,
            hint=_REBUILD,
        )
        return
    yield from _head_problems(data, path)
    yield from _body_problems(data, path, len(parsed))


def _head_problems(data: bytes, path: Path) -> Iterator[Finding]:
    if len(data) < HEAD_BYTES:
        yield _wrong(path, "head is cut short", f"{len(data)} bytes", f">= {HEAD_BYTES} bytes")
        return
    check_sum, *lengths = struct.unpack_from("<III", data)
    if check_sum != CHECK_SUM:
        yield _wrong(path, "checksum of the head is not the usual", check_sum, CHECK_SUM)
    if HEAD_BYTES not in lengths:  # the width of the checksum is not public: 4 or 8 bytes
        yield _wrong(path, "length of the head is not the usual", lengths[0], HEAD_BYTES)
    if _PLATFORM not in data[:HEAD_BYTES] or b"version" not in data[:HEAD_BYTES]:
        yield _wrong(path, "head names no platform and version", "other bytes", "AaZ, version...")


def _body_problems(data: bytes, path: Path, records: int) -> Iterator[Finding]:
    """Yield a record count that does not fit.

    The count is the little-endian word behind the platform; the body must divide by it.
    """
    place = data.find(_PLATFORM, 8, HEAD_BYTES)
    if len(data) < HEAD_BYTES or place < 0:
        return
    words = [
        number
        for offset in range(place + len(_PLATFORM), HEAD_BYTES - 3)
        for (number,) in [struct.unpack_from("<I", data, offset)]
    ]
    if records not in words:
        yield _wrong(path, "head does not hold the number of records", "other numbers", records)
    body = len(data) - HEAD_BYTES
    if (body == 0) != (records == 0):
        yield _wrong(path, "number of records differs", f"{body} bytes of records", records)


def _wrong(path: Path, message: str, got: object, expected: object) -> Finding:
    return make_finding(
        "AB509", Location(path=path), message, got=str(got), expected=str(expected), hint=_REBUILD
    )
