"""Format C, the cube ("GA") bank: JSON lines of shape and tiling, with a binary twin.

Source: CANN 8.1 auto_tune.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from aoebank.formats.cube.binary_cache import check_binary_cache
from aoebank.formats.cube.rules import MEMBERS, check_cube_file, identity_part, line_problems
from aoebank.formats.names import BankName, open_parts
from aoebank.formats.protocol import Format, ParsedFile
from aoebank.formats.text import json_text
from aoebank.formats.text.json_lines import iter_values
from aoebank.formats.text.record import cost_us, record_text, stored
from aoebank.formats.text.scan import start_scan
from aoebank.formats.text.splice import splice
from aoebank.model.finding import Finding
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

    def recognizes_content(self, head: bytes) -> bool:
        """True if the first line holds a shape and a tiling."""
        return _CONTENT.match(head) is not None

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
