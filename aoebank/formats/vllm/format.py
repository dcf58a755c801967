"""Triton configurations of vLLM and SGLang: a JSON object, a member per number of rows M.

Kernels of fused MoE layers, products of quantised matrices, and state updates of Mamba. Workload
and device are in the name of the file, so that a file holds one device alone. Its reader makes an
integer of each name and takes the row nearest to the M of a call.

Source: vllm 0.33.0, fused_moe.py and fp8_utils.py; sglang 0.5.23, fused_moe_triton_config.py and
fp8_kernel.py; checked against the 1,021 files of both.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from aoebank.formats.names import BankName
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.structure import Structure
from aoebank.formats.text import json_text
from aoebank.formats.text.checks import MOST_DIGITS
from aoebank.formats.text.containers import scan_members
from aoebank.formats.text.member_format import MemberFormat
from aoebank.formats.text.problem import Problem, RecordText, repeated, wrong_type
from aoebank.formats.text.record import member_text, stored
from aoebank.formats.text.scan import FileScan, start_scan
from aoebank.formats.text.splice import splice
from aoebank.model.finding import Finding, Location, make_finding
from aoebank.model.json_value import JsonObject, JsonValue
from aoebank.model.record import Record, with_raw
from aoebank.model.resolution import Query

VERSION = "triton_version"
STRUCTURE = Structure(schema="vllm/1.json", record=("additionalProperties",), depth=0)
_FILE_NAME = re.compile(
    r"(?P<sizes>E=\d+,N=\d+|N=\d+,K=\d+|headdim=\d+,dstate=\d+)"
    r",device_name=(?P<device>[^,=]*?)(?P<more>(?:,[a-z_]+=[^=]+?)*)(?P<down>_down)?\.json",
    re.ASCII,
)
_OP_TYPE = re.compile(r"(?P<sizes>[A-Za-z]+=\d+,[A-Za-z]+=\d+)(?P<more>.*)", re.ASCII | re.DOTALL)
_PARAMETER = re.compile(r"([A-Za-z_]+)=(.+?)(?=,[A-Za-z_]+=|$)", re.ASCII | re.DOTALL)
_KEY_START = re.compile(
    r'(?:^|[,{])[ \t\r\n]*(?P<key>"[ \t]*[0-9]{1,12}[ \t]*"[ \t]*:[ \t\r\n]*\{)', re.MULTILINE
)
_CONTENT = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*\{\s*(?:"triton_version"\s*:\s*"[^"\n]*"\s*,\s*)?'
    rb'"\s*[0-9]+\s*"\s*:\s*\{\s*"(?:BLOCK_SIZE_|tile_|GROUP_SIZE_|num_)'
)
_ROWS = re.compile(r"\s*[0-9]{1,12}\s*", re.ASCII)
_FIELDS = (
    *("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "SPLIT_K", "SWAP_AB"),
    *("USE_TMA", "grf_mode", "kpack", "matrix_instr_nonkdim", "num_ctas", "num_stages"),
    *("num_warps", "tile_k", "tile_k2", "tile_m", "tile_n", "tile_n2", "waves_per_eu"),
)
_BLOCKS = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "num_warps")
_PYTHON_WORDS = ("None", "True", "False")


class VllmFormat(MemberFormat):
    """Reads and writes `E=..,N=..,device_name=..[,dtype=..][,block_shape=[..]][_down].json`."""

    name = "vllm"
    empty = b"{\n}\n"
    content = _CONTENT  # An object starts with a row of Triton's members
    key_start = _KEY_START
    globs = (
        "E=*,N=*,device_name=*.json",
        "N=*,K=*,device_name=*.json",
        "headdim=*,dstate=*,device_name=*.json",
    )
    name_pattern = (
        "<E=..,N=..|N=..,K=..>,device_name=<device>[,dtype=..][,block_shape=[..]][_down].json"
    )
    indent = b"    "
    is_of_one_target = True
    target_word = "target"

    def parse_name(self, name: str) -> BankName | None:
        """Return the device, and as op_type the workload, from a file name.

        The blank that SGLang has in `block_shape=[128, 128]` is no part of the workload.
        """
        match = _FILE_NAME.fullmatch(name)
        if match is None or not match["device"]:
            return None
        more = re.sub(r"\s", "", match["more"])
        op_type = f"{match['sizes']}{more}{match['down'] or ''}"
        return BankName(soc_version=match["device"], op_type=op_type)

    def build_name(self, target: BankName | Query) -> str:
        """Return the name as vLLM spells it, without blanks."""
        match = _OP_TYPE.fullmatch(target.op_type or "")
        sizes, more = (match["sizes"], match["more"]) if match else ("<op_type>", "")
        return f"{sizes},device_name={target.soc_version or '<soc_version>'}{more}.json"

    def check_name(self, path: Path) -> Iterator[Finding]:
        """Yield a finding for a file whose name has an empty device."""
        match = _FILE_NAME.fullmatch(path.name)
        if match is not None and not match["device"]:
            yield make_finding(
                "AB518",
                Location(path=path),
                "device name is empty",
                expected="device_name=<device>",
                hint="rename it after the device the rows were tuned on; no look-up asks for it",
            )

    def parse(self, data: bytes, path: Path) -> ParsedFile:
        """Find the rows; `triton_version` is a property of the file."""
        scan = start_scan(data, path)
        scan_members(scan, _KEY_START)
        properties = _take_properties(scan)
        return replace(scan.file(self), properties=properties)

    def record(self, parsed: ParsedFile, number: int) -> Record:
        """Return the record at a position: M and what the file name says are the workload."""
        text = member_text(parsed, number)
        value = json_text.loads(text.text[text.value :])
        for problem in row_problems(value):
            raise text.error(problem)
        op_type = parsed.name.op_type if parsed.name else None
        record = Record(
            **stored(parsed, number, text),
            op_type=op_type,
            workload={"M": int(parsed.keys[number]), **read_workload(op_type or "")},
            strategy=value,
        )
        return with_raw(record, parsed.raw(number))

    def check(self, parsed: ParsedFile) -> Iterator[Finding]:
        """Yield the problems of each row, and rows that come twice."""
        for number, key in enumerate(parsed.keys):
            start, row = f'"{key}": ', parsed.text(number)
            is_plain = row.startswith(start) and _is_plain(row[len(start) :])
            if is_plain and parsed.find(key) == number:
                continue  # nearly all rows of nearly all files
            text = member_text(parsed, number)
            value = json_text.scan(text.text, text.value)[0]
            for problem in (
                *STRUCTURE.problems(value, row_problems(value)),
                *_name_problems(parsed, number, text),
                *_value_problems(value),
            ):
                yield text.finding(problem)
            yield from text.duplicates(value)

    def respell_key(self, parsed: ParsedFile, number: int) -> bytes:
        """Return a row named by its number without blanks and zeros."""
        text = parsed.text(number)
        name = json_text.dumps(parsed.keys[number])
        return (name + text[json_text.scan(text, 0)[1] :]).encode("utf-8")

    def header(self, parsed: ParsedFile) -> str:
        """Return the properties of the file: rows of two versions of Triton are no one file."""
        return ", ".join(
            parsed.data[start:end].decode("utf-8", errors="replace")
            for start, end in parsed.properties
        )

    def iter_keys(self, text: str, value: JsonValue, op_type: str | None) -> Iterator[str]:
        """Yield the number of rows of a workload."""
        rows = value.get("M") if isinstance(value, Mapping) else value
        if isinstance(rows, int):
            yield str(rows)

    def serialize(self, parsed: ParsedFile, changes: Mapping[str, Record | None]) -> bytes:
        """Return the file with `changes` applied, untouched rows byte for byte."""
        return splice(parsed, changes, render_row)


def render_member(record: Record, indent: str) -> bytes:
    """Return the member of a record, as `json.dump` with an indent writes it."""
    assert isinstance(record.strategy, Mapping)
    members = ",\n".join(
        f"{indent}{indent}{json_text.dumps(name)}: {json_text.dumps(value)}"
        for name, value in record.strategy.items()
    )
    body = f"{{\n{members}\n{indent}}}" if members else "{}"
    return f"{json_text.dumps(record.key)}: {body}".encode()


def render_row(record: Record) -> bytes:
    """Return the member of a row, as vLLM's tuner writes it."""
    return render_member(record, "    ")


def read_workload(op_type: str) -> JsonObject:
    """Return the parameters of a workload in a file name, numbers and lists as such.

    >>> read_workload("E=8,N=512,dtype=fp8_w8a8,block_shape=[128,128]_down")
    {'E': 8, 'N': 512, 'dtype': 'fp8_w8a8', 'block_shape': [128, 128], 'down': True}
    """
    own = op_type.removesuffix("_down")
    found: dict[str, JsonValue] = {name: _value(text) for name, text in _PARAMETER.findall(own)}
    return found if own == op_type else {**found, "down": True}


def _value(text: str) -> JsonValue:
    try:
        return json_text.loads({"True": "true", "False": "false"}.get(text, text))
    except json_text.JsonTextError:
        return text


def _take_properties(scan: FileScan) -> tuple[tuple[int, int], ...]:
    """Leave the rows in a scan, by their number, and return the places of the other members."""
    names, starts, ends = scan.keys, scan.starts, scan.ends
    scan.keys, scan.starts, scan.ends = [], array("Q"), array("Q")
    properties = []
    for name, start, end in zip(names, starts, ends, strict=True):
        # int() takes no more digits, in the reader neither
        if name.isascii() and name.isdecimal() and len(name) <= MOST_DIGITS:  # nearly all of them
            scan.add(name if name[0] != "0" else str(int(name)), start, end)
        elif _ROWS.fullmatch(name):
            scan.add(str(int(name)), start, end)
        else:
            properties.append((start, end))
            for problem in _property_problems(name, scan.text_at(start, end)):
                scan.report(problem, start, end)
    return tuple(properties)


def _property_problems(name: str, text: RecordText) -> Iterator[Problem]:
    if name != VERSION:
        yield Problem(
            code="AB313",
            tokens=(),
            message="row is named by no number: its reader fails on the file",
            got=json_text.dumps(name)[:40],
            expected="a number of rows, or triton_version",
            hint="rename it to the M it was tuned for, or remove it",
        )
        return
    value = json_text.loads(f"{{{text.text}}}")
    assert isinstance(value, Mapping)
    if not isinstance(value[VERSION], str):
        yield wrong_type(value[VERSION], (VERSION,), "a string")


def row_problems(value: JsonValue) -> Iterator[Problem]:
    """Yield why readers cannot use a row."""
    if not isinstance(value, Mapping):
        yield replace(
            wrong_type(value, ("row",), "an object"), tokens=(), message="row is no object"
        )


@lru_cache(maxsize=4096)
def _is_plain(text: str) -> bool:
    """True if a configuration has known arguments alone, once each and as Triton takes them.

    Files of one project repeat their configurations, so that few are read.
    """
    try:
        value = json_text.loads(text)
    except json_text.JsonTextError:
        return False
    # each colon is behind a name, and as many as there are members: no name comes twice
    return (
        isinstance(value, Mapping)
        and all(type(member) in (int, str) for member in value.values())
        and text.count(":") == len(value)
        and not any(_value_problems(value))
    )


def _name_problems(parsed: ParsedFile, number: int, text: RecordText) -> Iterator[Problem]:
    key = parsed.keys[number]
    if parsed.find(key) != number:
        yield replace(repeated("number of rows", key), expected="each number once")
    spelled = json_text.scan(text.text, 0)[0]
    if spelled != key:
        yield Problem(
            code="AB314",
            tokens=(),
            message="key is spelled with blanks or zeros",
            got=json_text.dumps(spelled)[:40],
            expected=key,
            hint="aoebank validate --fix --fix-class key FILE; readers make a number of it",
        )


def _value_problems(value: JsonValue) -> Iterator[Problem]:
    for name in value if isinstance(value, Mapping) else ():
        if name not in _FIELDS:
            yield Problem(
                code="AB211",
                tokens=(name,),
                message="unknown member of a configuration: the kernel takes no such argument",
                got=json_text.dumps(name)[:40],
                hint="remove it",
            )
    yield from argument_problems(value)


def argument_problems(value: JsonValue) -> Iterator[Problem]:
    """Yield the arguments of a kernel that Triton does not compile, or that mean another thing."""
    for name, member in value.items() if isinstance(value, Mapping) else ():
        if isinstance(member, Mapping):
            yield wrong_type(member, (name,), "a number, a text or a constant")
        elif name in _BLOCKS and not _is_power_of_two(member):
            yield Problem(
                code="AB404",
                tokens=(name,),
                message=f"{name} is no power of two: Triton does not compile the kernel",
                got=json.dumps(member)[:40],  # of 1e999 an infinity, which is no JSON
                expected="a power of two",
                hint="tune the workload again, or remove the record",
            )
        if member in _PYTHON_WORDS and isinstance(member, str):
            yield Problem(
                code="AB411",
                tokens=(name,),
                message="value is the text of a Python constant",
                got=json_text.dumps(member),
                expected={"None": "null"}.get(member, member.lower()),
                hint="write the constant of JSON: to a kernel any text is true",
            )


def _is_power_of_two(value: JsonValue) -> bool:
    return type(value) is int and value > 0 and value & (value - 1) == 0
