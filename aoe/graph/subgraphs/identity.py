"""Identity of subgraphs: operators, attributes, shapes, types and edges, but no names.

Values of weights do not count, for they do not decide how fast a subgraph is. Values that say what
is computed do: shapes, axes, pads, and scalars. `docs/formats.md` has the text that is hashed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from aoe.graph.model_graph import attributes_of
from aoe.graph.subgraphs.segment import Segment
from aoe.graph.weights import array_of

_VALUES_MAX = 64
"""Elements up to which integers count by value: what shapes, axes and pads have."""
_SCALED = ("Resize", "Upsample")
"""Operators whose floats count by value too: their scales say what is made."""
_HASH_BYTES = 8
_BLOCKED = "blocked"
_VERSION = 1
"""Of the text; another one makes every subgraph a new one."""


def graph_id(segment: Segment, blocked: Collection[str] = ()) -> str:
    """Return the identity of a subgraph, an unsigned 64-bit number in decimal.

    Args:
        segment: The subgraph.
        blocked: Inputs that come in ONNX Runtime's blocked layout, which another subgraph reads.
    """
    digest = hashlib.sha256(normalized_text(segment, blocked).encode()).digest()
    return str(int.from_bytes(digest[:_HASH_BYTES], "big"))


def normalized_text(segment: Segment, blocked: Collection[str] = ()) -> str:
    """Return the canonical JSON text whose hash is the identity of a subgraph."""
    graph = segment.graph
    references = {name: f"x{at}" for at, name in enumerate(segment.inputs)}
    for number, node in enumerate(graph.nodes):
        for place, name in enumerate(node.output):
            if name:
                references[name] = f"t{number}.{place}"
    nodes = [
        {
            "op": f"{node.domain}.{node.op_type}" if node.domain else node.op_type,
            "version": _since_version(node, graph.opset(node.domain)),
            "attributes": _attributes(node),
            "inputs": [
                _constant(graph.initializers[name], node.op_type in _SCALED)
                if name in graph.initializers
                else references.get(name, "")
                for name in node.input
            ],
            "outputs": sum(bool(name) for name in node.output),
        }
        for node in graph.nodes
    ]
    inputs = []
    for name in segment.inputs:
        info = graph.find_info(name)
        assert info is not None
        layout = [_BLOCKED] if name in blocked else []
        inputs.append([info.dtype, *info.shape, *layout])
    value = {
        "version": _VERSION,
        "inputs": inputs,
        "nodes": nodes,
        "outputs": [references[name] for name in segment.outputs],
    }
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _attributes(node: onnx.NodeProto) -> Mapping[str, Any]:
    return {name: _plain(value) for name, value in attributes_of(node).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, TensorProto):
        return _constant(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value if isinstance(value, int | str) else str(value)


def _constant(tensor: TensorProto, says_extents: bool = False) -> list[Any]:
    """Return type and shape of a constant, with its values where they say what is computed."""
    found: list[Any] = [TensorProto.DataType.Name(tensor.data_type).lower(), *tensor.dims]
    count = math.prod(tensor.dims)
    integers = tensor.data_type in (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)
    if count == 1 or ((integers or says_extents) and count <= _VALUES_MAX):
        array = array_of(tensor)
        found.append([str(item) for item in np.ravel(array).tolist()])
    return found


def _since_version(node: onnx.NodeProto, opset: int) -> int:
    if node.domain or not onnx.defs.has(node.op_type, opset, ""):
        return 1
    return int(onnx.defs.get_schema(node.op_type, opset, "").since_version)
