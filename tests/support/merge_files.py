"""Bank files of every format out of numbers: which keys, which answers, how they are written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from aoebank import workload_key
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.registry import get_format
from aoebank.formats.runtime_kb.operator_schema import operator_schemas
from aoebank.formats.text.checks import BOM
from aoebank.merging.versions import Versions

NAMES = {
    "runtime_kb": "Ascend910B2_24_AiCore_MatMulV3_runtime_kb.json",
    "unified": "Ascend910B2_24_AiCore_matmul.json",
    "cube": "AIC_24_L1_SIZE_512_repository_Ascend910B2_matmul.json",
    "vector": "Ascend910B2_AiCore_24_v001_20260101_000000_000000.json",
    "graph": "ascend910b2_l2cache.json",
    "gradient": "Ascend910B2_gradient_fusion.json",
}
TIMED = ("unified", "cube", "vector")
HEADER = '{"version": "2.1"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one record says."""

    tile: int = 1
    cost_us: float | None = None  # Left out where the format has no time


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How a file is written, without a meaning of its own."""

    newline: str = "\n"
    has_bom: bool = False
    ends_with_newline: bool = True
    is_spaced: bool = False


def make_file(name: str, answers: Mapping[int, Answer], style: Style | None = None) -> bytes:
    """Return the bytes of a file with these answers, in this order."""
    style = style or Style()
    return write_file(
        name, [record_text(name, *answer, style) for answer in answers.items()], style
    )


def write_file(name: str, texts: Sequence[str], style: Style | None = None) -> bytes:
    """Return the bytes of a file with these records."""
    style = style or Style()
    newline = style.newline
    if name in ("runtime_kb", "cube", "graph"):
        lines = [HEADER, *texts] if name == "graph" else list(texts)
        lines = lines or ["{}"]
        text = newline.join(lines)
        text += newline if style.ends_with_newline else ""
    elif name == "gradient":
        text = "[" + ("," + newline).join(texts) + "]"
    else:
        body = (f",{newline}").join(f"    {text}" if style.is_spaced else text for text in texts)
        text = "{" + newline + body + newline + "}" + newline
    return (BOM if style.has_bom else b"") + text.encode("utf-8")


def record_text(name: str, key: int, answer: Answer, style: Style | None = None) -> str:
    """Return the text of one record."""
    dump = _spaced if style and style.is_spaced else _compact
    tile, cost = answer.tile, answer.cost_us
    time: dict[str, Any] = {} if cost is None else {"cost_time": cost}
    if name == "runtime_kb":
        return dump(
            {
                "id": key,
                "info_dict": {**_matmul(), "m": key + 1},
                "knowledge": {**_tiling(), "baseM": tile},
                "op": "MatMulV3",
                "version": 0,
            }
        )
    if name == "unified":
        workload = {"op_type": "matmul", "A_shape": [key + 1, 16]}
        candidate = {"knowledge": {"tile": tile}, "info_dict": workload, **time}
        text = json.dumps(workload)  # the key is a hash over this very spelling
        written = dump([candidate]).replace(dump(workload), text)
        return f'"{workload_key(workload)}": {written}'
    if name == "cube":
        shape = {"op_type": "matmul", "A_shape": [key + 1, 4, 16, 16]}
        return dump({"shape": shape, "tiling": [tile, 2, 24], **time})
    if name == "vector":
        feature = json.dumps([[1, [[0, 0]], [24, key + 1], [], 9, [1]], [12, [], [], 9, []]])
        inner = json.dumps([[0, [251, tile, 254, 0]], 0 if cost is None else cost])
        return f"{json.dumps(feature)}:{' ' if dump is _spaced else ''}{json.dumps(inner)}"
    if name == "graph":
        group = {"cut": [1], "fusionType": [True], "scopeId": [-tile], "ubPass": {}}
        strategy = {"modelName": "m", "end2EndTime": 7, "group": [group]}
        feature = {"feature": [{"struct": [{"op": "Conv2D"}]}]}
        return dump({"feature": feature, "graphID": str(2**40 + key), "strategy": strategy})
    value = {"gradientSize": [2048 * tile, 4096], "gradientTime": [tile, tile + 1]}
    return dump({"modelhash": str(2**50 + key), "modelvalue": value})


def parse(name: str, data: bytes | None, side: str = "bank") -> ParsedFile | None:
    """Parse bytes as a file of a format; None stays None."""
    return None if data is None else get_format(name).parse(data, Path(side, NAMES[name]))


def get(name: str, data: bytes, side: str = "bank") -> ParsedFile:
    """Parse bytes as a file of a format."""
    return get_format(name).parse(data, Path(side, NAMES[name]))


def versions(name: str, base: bytes | None, ours: bytes | None, theirs: bytes | None) -> Versions:
    """Parse three versions of a file of a format."""
    return Versions(base=parse(name, base), ours=parse(name, ours), theirs=parse(name, theirs))


def records_of(name: str, data: bytes | None) -> dict[str, bytes]:
    """Return the bytes of the record of each key."""
    if data is None:
        return {}
    parsed = get(name, data)
    return {key: parsed.raw(parsed.find(key) or 0) for key in parsed.keys}


def key_of(name: str, number: int) -> str:
    """Return the key of the records made for a number."""
    return get(name, make_file(name, {number: Answer()})).keys[0]


@cache
def _matmul() -> dict[str, Any]:
    zero: dict[str, Any] = {"?": False, "f": 0.0}
    fields = operator_schemas()["MatMulV3"].workload.fields
    return {field.name: zero.get(field.code, 0) for field in fields}


@cache
def _tiling() -> dict[str, int]:
    names = operator_schemas()["MatMulV3"].strategy.names
    return {**dict.fromkeys(names, 1), "usedCoreNum": 24}


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _spaced(value: Any) -> str:
    return json.dumps(value, separators=(", ", " : "))
