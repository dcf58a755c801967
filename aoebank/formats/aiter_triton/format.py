"""Triton configurations of aiter: a JSON object, a member per class of sizes.

A class is a range of M: `M_LEQ_64` serves what no smaller bound does, `M_GEQ_4096` the rest from
there on, `any` all that is left; `small` and others are ranges that the kernel's look-up knows.
Device, kernel and often N and K are in the name of the file.

Source: aiter 0.1.7, `_get_config` of ops/triton, checked against the 118 files of configs/.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from aoebank.formats.names import BankName
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.structure import Structure
from aoebank.formats.text import json_text
from aoebank.formats.text.member_format import MemberFormat
from aoebank.formats.text.problem import Problem, repeated
from aoebank.formats.text.record import member_text, stored
from aoebank.formats.text.splice import splice
from aoebank.formats.vllm.format import argument_problems, render_member, row_problems
from aoebank.model.finding import Finding
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Record, with_raw
from aoebank.model.resolution import Query

STRUCTURE = Structure(schema="aiter_triton/1.json", record=("additionalProperties",), depth=0)
_FILE_NAME = re.compile(
    r"(?P<device>(?:MI|gfx)[0-9][0-9A-Za-z]*)-(?P<op>[A-Z0-9_=.-]*(?:GEMM|FF|MOE)[\w=.-]*)\.json",
    re.ASCII,
)
_SIZE = re.compile(r"-([NK][0-9]?)=([0-9]{1,9})(?=-|$)", re.ASCII)
_KEY_START = re.compile(
    r'(?:^|[,{])[ \t\r\n]*(?P<key>"[A-Za-z_][A-Za-z0-9_]*"[ \t]*:[ \t\r\n]*\{)', re.MULTILINE
)
_CONTENT = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*\{\s*"(?:any|default|(?:small|medium|x?large)\w*|M_[0-9A-Z_]+)"\s*:\s*\{'
    rb'\s*"(?:BLOCK_SIZE_|GROUP_SIZE_|num_|NUM_)'
)
_AT_MOST = re.compile(r"M_LEQ_([0-9]{1,9})", re.ASCII)
_AT_LEAST = re.compile(r"M_GEQ_([0-9]{1,9})", re.ASCII)
_ALL_LEFT = frozenset({"any", "default"})


class AiterTritonFormat(MemberFormat):
    """Reads and writes `<device>-<kernel>[-N=..-K=..].json`."""

    name = "aiter_triton"
    empty = b"{\n}\n"
    content = _CONTENT  # An object starts with a class of sizes that holds Triton's members
    key_start = _KEY_START
    globs = ("MI*-*GEMM*.json", "MI*-FF*.json", "MI*-MOE*.json", "gfx*-*GEMM*.json")
    name_pattern = "<device>-<kernel>[-N=..-K=..].json"
    indent = b"  "
    is_of_one_target = True
    target_word = "target"

    def parse_name(self, name: str) -> BankName | None:
        """Return the device, and as op_type the kernel with its sizes."""
        match = _FILE_NAME.fullmatch(name)
        return BankName(soc_version=match["device"], op_type=match["op"]) if match else None

    def build_name(self, target: BankName | Query) -> str:
        """Return the name of the configuration of a kernel."""
        return f"{target.soc_version or '<soc_version>'}-{target.op_type or '<op_type>'}.json"

    def record(self, parsed: ParsedFile, number: int) -> Record:
        """Return the record at a position: class, kernel and sizes are the workload."""
        text = member_text(parsed, number)
        value = json_text.loads(text.text[text.value :])
        for problem in row_problems(value):
            raise text.error(problem)
        op_type = parsed.name.op_type if parsed.name else None
        record = Record(
            **stored(parsed, number, text),
            op_type=op_type,
            workload={**_workload(parsed.keys[number]), **_sizes(op_type or "")},
            strategy=value,
        )
        return with_raw(record, parsed.raw(number))

    def check(self, parsed: ParsedFile) -> Iterator[Finding]:
        """Yield the problems of each class, classes that come twice, and a gap between them."""
        gap = _find_gap(parsed.keys)
        for number, key in enumerate(parsed.keys):
            text = member_text(parsed, number)
            value = json_text.scan(text.text, text.value)[0]
            problems = [
                *STRUCTURE.problems(value, row_problems(value)),
                *argument_problems(value),
                *([repeated("class", key)] if parsed.find(key) != number else ()),
            ]
            # a file read record by record has no last one of its own
            if gap and number == len(parsed) - 1 and len(parsed) > 1:
                problems.append(gap)
            for problem in problems:
                yield text.finding(problem)
            yield from text.duplicates(value)

    def serialize(self, parsed: ParsedFile, changes: Mapping[str, Record | None]) -> bytes:
        """Return the file with `changes` applied, untouched classes byte for byte."""
        return splice(parsed, changes, _render)


def _render(record: Record) -> bytes:
    return render_member(record, "  ")


def _workload(name: str) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = {"class": name}
    for member, pattern in (("M_max", _AT_MOST), ("M_min", _AT_LEAST)):
        match = pattern.fullmatch(name)
        if match is not None:
            found[member] = int(match[1])
    return found


def _sizes(op_type: str) -> dict[str, JsonValue]:
    return {name: int(size) for name, size in _SIZE.findall(op_type)}


def _find_gap(keys: Sequence[str]) -> Problem | None:
    """Return the range of M no class serves, where bounds are all there is."""
    if _ALL_LEFT & {*keys}:
        return None
    at_most = [int(match[1]) for key in keys if (match := _AT_MOST.fullmatch(key))]
    at_least = [int(match[1]) for key in keys if (match := _AT_LEAST.fullmatch(key))]
    if not at_most and not at_least:
        return None
    first = max(at_most, default=0) + 1
    last = min(at_least) - 1 if at_least else None
    if last is not None and last < first:
        return None
    return Problem(
        code="AB316",
        tokens=(),
        message="classes leave a gap: the look-up of a size in it ends in an error",
        got=f"no class for M from {first} " + ("on" if last is None else f"to {last}"),
        expected="a class any",
        hint="add a class any",
    )
