"""A workload in one short line, for people."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from aoebank.formats.text.json_text import dumps_compact
from aoebank.model.digest import sha256_of
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Record

WIDTH = 160
NameOf: TypeAlias = Callable[[str | None, str, JsonValue], str]  # as Format.value_name
_WEIGHTS = {
    "QLinearConv": (3, 4, 5),
    "QLinearMatMul": (3, 4, 5),
    "QGemm": (3, 4, 5),
    "DynamicQuantizeMatMul": (1, 2, 3),
    "MatMulIntegerToFloat": (1, 3, 5),
}
"""Operators with weights in integers: their inputs with the weights, scale and zero point."""
_LINEAR = ("QuantizeLinear", "DequantizeLinear")
_SYMMETRIC = {"int8": 0, "uint8": 128}
"""Zero point in the middle of a type, by type."""
_ZERO_POINT = "w_zero_point"
"""Attribute of an operator in a workload of the engine: the zero point of all its weights."""
_OP_NAME = re.compile(r'"op"\s*:\s*"([^"\\]{1,40})"')


def workload_text(record: Record, width: int = WIDTH, *, name_of: NameOf | None = None) -> str:
    """Return the workload of a record as text; a text that is cut ends in a digest of the whole.

    A runtime bank names every field of its key struct, most of them 0 or 1: those are left
    out, except for data types. A workload of the engine is told by `computed_words`.

    Args:
        name_of: Tells what a number stands for, which is then told beside it: `a_dtype=1(FLOAT16)`.

    >>> workload_text(Record(key="k", strategy={}, workload={"m": 16, "shape": [1, 3]}))
    'm=16 shape=[1,3]'
    """
    workload = record.workload
    if record.format == "graph":
        return _short(_operators(dumps_compact(workload)), workload, width, is_cut=True)
    if words := computed_words(workload):
        return _short(words, workload, width, is_cut=True)
    if isinstance(workload, Mapping):
        has_zeros = record.format != "runtime_kb"
        text = _members(workload, has_zeros=has_zeros, op_type=record.op_type, name_of=name_of)
    else:
        text = dumps_compact(workload)
    return _short(text, workload, width, is_cut=False)


def computed_words(workload: JsonValue) -> str:
    """Return what a workload of the engine computes, and of what; empty for any other workload.

    Operators in their order; then the tensors that are read, weights with their type, the kind of
    their zero point and whether they have a scale for each channel; then the result.

    >>> image, one = {"shape": [1, 56, 56, 64], "dtype": "uint8"}, {"shape": [], "dtype": "float32"}
    >>> weights = {"shape": [64, 64, 3, 3], "dtype": "int8", "constant": True}
    >>> conv = {"op": "QLinearConv", "in": ["x0", "x1", "", "x2", "x3"], "out": "t0",
    ...     "attr": {"kernel_shape": [3, 3], "w_zero_point": 0}}
    >>> scales = {"shape": [64], "dtype": "float32", "constant": True}
    >>> computed_words({"operations": [conv], "inputs": [image, one | {"constant": True},
    ...     weights, scales], "output": image})
    'QLinearConv 3x3 64->64: 1x56x56x64 uint8, weights int8 symmetric per channel'
    """
    if not isinstance(workload, Mapping):
        return ""
    known: Mapping[str, Any] = workload
    try:
        operations, inputs = list(known["operations"]), list(known["inputs"])
        tensors = {f"x{at}": spec for at, spec in enumerate(inputs)}
        chain = [_operator_words(operation, tensors) for operation in operations]
        weights = {ref for operation in operations for ref in _weights(operation)[:1]}
        parts = [
            _tensor(spec)
            for ref, spec in tensors.items()
            if ref not in weights and not spec.get("constant") and spec["shape"]
        ]
        parts += [_weights_words(one, tensors) for one in operations if _weights(one)]
        made, first = known["output"], inputs[0]
        if (made["shape"], made["dtype"]) != (first["shape"], first["dtype"]):
            parts.append(f"result {_tensor(made)}")
        if precision := workload.get("precision"):
            parts.append(f"products in {precision}")
        return f"{' + '.join(filter(None, chain))}: {', '.join(parts)}"
    except (KeyError, TypeError, IndexError, AttributeError, ValueError):  # of another engine
        return ""


def _operator_words(operation: Any, tensors: Mapping[str, Any]) -> str:
    """Return an operator by its name and geometry; empty for changes of layout."""
    name = str(operation["op"]).rpartition(":")[2]
    if name.startswith("Reorder"):
        return ""
    attributes = operation.get("attr", {})
    words = [name]
    filters = tensors.get(operation["in"][_at_weights(operation)], {}).get("shape", ())
    kernel = attributes.get("kernel_shape", filters[2:] if "Conv" in name else ())
    if kernel:
        words.append(_extents(kernel))
    if name in _LINEAR and not _is_one(tensors.get(operation["in"][1])):
        words.append("per channel")
    groups = attributes.get("group", 1)
    if kernel and len(filters) == len(kernel) + 2:
        words.append(f"{filters[1] * groups}->{filters[0]}")
    elif name in _WEIGHTS and len(filters) > 1:
        depth, width = filters[-2:][::-1] if attributes.get("transB") else filters[-2:]
        words.append(f"{depth}->{width}")
    if groups != 1:
        words.append("depthwise" if filters and filters[1] == 1 else f"in {groups} groups")
    for member, word in (("strides", "stride"), ("dilations", "dilation")):
        steps = set(attributes.get(member, ())) - {1}
        if steps:
            words.append(f"{word} {_extents(attributes[member])}")
    return " ".join(words)


def _at_weights(operation: Any) -> int:
    """Return the position of an operator's weights among its inputs."""
    name = str(operation["op"]).rpartition(":")[2]
    at = _WEIGHTS.get(name, (1,))[0]
    return at if at < len(operation["in"]) else 0


def _weights(operation: Any) -> list[str]:
    """Return weights in integers, their scale and zero point; nothing for other operators."""
    places = _WEIGHTS.get(str(operation["op"]).rpartition(":")[2], ())
    read = operation["in"]
    return [read[at] if at < len(read) else "" for at in places]


def _weights_words(operation: Any, tensors: Mapping[str, Any]) -> str:
    """Return the type of weights, the kind of their zero point and what shares a scale."""
    weights, scale, zero = _weights(operation)
    dtype = tensors[weights]["dtype"]
    point = operation["attr"].get(_ZERO_POINT)
    if point is not None:
        kind = "symmetric" if point == _SYMMETRIC.get(dtype) else f"zero point {point}"
    else:
        kind = "any zero point" if zero else "zero point 0"
    shared = "tensor" if _is_one(tensors.get(scale)) else "channel"
    return f"weights {dtype} {kind} per {shared}"


def _is_one(spec: Any) -> bool:
    """True for a number, be it a tensor of the workload or known when the kernel is compiled."""
    return spec is None or all(extent == 1 for extent in spec["shape"])


def _tensor(spec: Any) -> str:
    layout = f" {spec['layout']}" if str(spec.get("layout", "")).endswith("c") else ""
    return f"{_extents(spec['shape'])} {spec['dtype']}{layout}"


def _extents(extents: Iterable[int]) -> str:
    return "x".join(map(str, extents))


def _members(
    workload: Mapping[str, JsonValue],
    *,
    has_zeros: bool,
    op_type: str | None,
    name_of: NameOf | None,
) -> str:
    def meaning(name: str, value: JsonValue) -> str:
        word = name_of(op_type, name, value) if name_of is not None else ""
        return f"({word})" if word else ""

    return " ".join(
        f"{_name(name)}={_value(value)}{meaning(name, value)}"
        for name, value in workload.items()
        if has_zeros or "dtype" in name.lower() or value not in (0, 1)
    )


def _name(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else dumps_compact(name)


def _value(value: JsonValue) -> str:
    if type(value) is int or (isinstance(value, str) and value.isidentifier() and value.isascii()):
        return str(value)
    return dumps_compact(value)


def _operators(text: str) -> str:
    """Return the operators of a subgraph, each with how often it is in it."""
    counts = Counter(_OP_NAME.findall(text))
    return _joined(f"{name} x{number}" if number > 1 else name for name, number in counts.items())


def _joined(words: Iterable[str]) -> str:
    return " ".join(words) or "subgraph"


def _short(text: str, workload: JsonValue, width: int, *, is_cut: bool) -> str:
    if len(text) <= width and not is_cut:
        return text
    digest = sha256_of(dumps_compact(workload).encode("utf-8"))[:8]
    cut = text if len(text) <= width else f"{text[: width - 3]}..."
    return f"{cut} ({digest})"
