"""What the engine stores, in words: workloads and schedules of its records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from aoebank.formats.text.member_words import member_text
from aoebank.model.json_value import JsonValue

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

_RESULT = "result"
"""Attribute of one of several operations that stand for the results of one node."""
_MANY = 3


def computed_words(workload: JsonValue) -> str:
    """Return operators and tensors of an engine's workload in words; empty for any other one.

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
    >>> total = {"op": "ReduceSum", "in": ["x0"], "out": "t0", "attr": {"keepdims": 0}}
    >>> computed_words({"operations": [total], "inputs": [image], "output": one})
    'ReduceSum: 1x56x56x64 uint8, result scalar float32'
    >>> pool = {"op": "MaxPool", "in": ["x0"], "out": "t0", "attr": {"kernel_shape": [3, 3]}}
    >>> computed_words({"operations": [pool], "inputs": [image], "output": image})
    'MaxPool 3x3: 1x56x56x64 uint8'
    >>> image, kernel = image | {"dtype": "float32"}, weights | {"shape": [64, 8, 2, 2]}
    >>> grown = {"op": "ConvTranspose", "in": ["x0", "x1"], "attr": {"strides": [2, 2]}}
    >>> computed_words({"operations": [grown], "inputs": [image, kernel], "output": image})
    'ConvTranspose 2x2 64->8 stride 2x2: 1x56x56x64 float32'
    """
    if not isinstance(workload, Mapping):
        return ""
    known: Mapping[str, Any] = workload
    try:
        operations, inputs = list(known["operations"]), list(known["inputs"])
        tensors = {f"x{at}": spec for at, spec in enumerate(inputs)}
        chain = [_operator_words(operation, tensors) for operation in _nodes(operations)]
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
        return f"{' + '.join(_counted(filter(None, chain)))}: {', '.join(_counted(parts))}"
    except (KeyError, TypeError, IndexError, AttributeError, ValueError):  # of another engine
        return ""


def _counted(words: Iterable[str]) -> Iterator[str]:
    """Yield words, of `_MANY` and more equal neighbours one with their number.

    >>> [*_counted(["Slice", "Slice", "Slice", "Gather", "Gather"])]
    ['Slice (3 times)', 'Gather', 'Gather']
    """
    for word, group in groupby(words):
        count = len([*group])
        yield from [f"{word} ({count} times)"] if count >= _MANY else [word] * count


def _nodes(operations: Iterable[Any]) -> Iterator[Any]:
    """Yield operations, of those that are results of one node the first."""
    known = []
    for one in operations:
        node = one["op"], one["in"]
        if _RESULT not in one.get("attr", {}) or node not in known:
            yield one
        known.append(node)


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
    if "Conv" in name and kernel and len(filters) == len(kernel) + 2:  # a pool reads no filters
        channels = filters[1] * groups, filters[0]
        depth, width = channels[::-1] if "Transpose" in name else channels
        words.append(f"{depth}->{width}")
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
    return f"{_extents(spec['shape']) or 'scalar'} {spec['dtype']}{layout}"


def _extents(extents: Iterable[int]) -> str:
    return "x".join(map(str, extents))


def schedule_words(strategy: JsonValue) -> Iterator[str]:
    """Yield the knobs of a strategy of the engine, then its steps as a tree of stages.

    Nothing for any other strategy.

    >>> split, vectorize = ["split", "y", "x", "xo", "xi", 8, "auto"], ["vectorize", "y", "xi", 8]
    >>> knobs = {"vector": 8, "inner": "row"}
    >>> print(*schedule_words({"knobs": knobs, "steps": [split, vectorize]}), sep="\\n")
    vector=8 inner=row
    y
      split x -> xo, xi by 8
      vectorize xi by 8
    """
    lines = step_lines(strategy)
    knobs = strategy.get("knobs") if lines and isinstance(strategy, Mapping) else None
    if not isinstance(knobs, Mapping):
        return
    yield " ".join(member_text(name, value) for name, value in knobs.items()) or "no knobs"
    last = ""
    for line in lines:
        stage, colon, done = line.partition(": ")
        if not colon:
            yield line
            continue
        if stage != last:
            yield stage
        yield f"  {done}"
        last = stage


def step_lines(strategy: JsonValue) -> tuple[str, ...]:
    """Return the steps of a strategy of the engine in words; nothing for any other strategy."""
    match strategy:
        case {"steps": [_, *_] as steps}:
            lines = tuple(map(step_words, steps))
            return lines if all(lines) else ()  # else of another version of the engine
    return ()


def step_words(step: JsonValue) -> str:
    """Return a step of a schedule in words, its stage first; empty for what is no step.

    Nothing of the step is lost: two different ones have different words.

    >>> step_words(["split", "y", "x", "xo", "xi", 16, "auto"])
    'y: split x -> xo, xi by 16'
    """
    match step:
        case ["algorithm", str(name)]:
            return f"algorithm {name}"
        case ["split", str(stage), str(var), str(outer), str(inner), int(factor), str(tail)]:
            ending = "" if tail == "auto" else f" ({tail})"
            return f"{stage}: split {var} -> {outer}, {inner} by {factor}{ending}"
        case ["fuse", str(stage), str(outer), str(inner), str(fused)]:
            return f"{stage}: fuse {outer}, {inner} -> {fused}"
        case ["reorder", str(stage), list(order)]:
            return f"{stage}: reorder {', '.join(map(str, order))}"
        case [("vectorize" | "unroll") as word, str(stage), str(var), int(factor)]:
            return f"{stage}: {word} {var} by {factor}"
        case ["parallel", str(stage), str(var), None | int() as task_size]:
            return f"{stage}: parallel {var}" + ("" if task_size is None else f" by {task_size}")
        case ["compute_at", str(stage), str(at_stage), str(var)]:
            return f"{stage}: compute at {at_stage} {var}"
        case ["compute_root", str(stage)]:
            return f"{stage}: compute root"
        case ["store_in", str(stage), str(memory)]:
            return f"{stage}: store in {memory}"
        case ["atomic", str(stage)]:
            return f"{stage}: atomic"
        case ["never_partition", str(stage), str(var)]:
            return f"{stage}: never partition {var}"
    return ""
