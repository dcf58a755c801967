"""Extents that older exporters compute, as the constants they are.

The TorchScript exporter writes `flatten` as Shape, Slice, Concat and Reshape. Where extents are
known, the Shape is a constant, and does not read the tensor.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from aoe.graph.model_graph import attributes_of
from aoe.graph.protos import copied, refill
from aoe.operators import op_key
from aoe.ort.spelling.reading import known_tensors


def write_known_extents(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in which every Shape of known extents is a constant.

    The model itself, if there is none. A Shape that makes a result of the model stays.
    """
    results = {value.name for value in proto.graph.output}
    asked = [node for node in proto.graph.node if op_key(node) == ("", "Shape")]
    asked = [node for node in asked if node.output[0] not in results]
    known = known_tensors(proto) if asked else {}
    values: dict[str, tuple[int, ...]] = {}
    for node in asked:
        info, said = known.get(node.input[0]), attributes_of(node)
        if info is not None and all(info.shape):
            values[node.output[0]] = info.shape[said.get("start", 0) : said.get("end")]
    if not values:
        return proto
    written = copied(proto)
    refill(written.graph.node, [n for n in written.graph.node if n.output[0] not in values])
    written.graph.initializer.extend(
        numpy_helper.from_array(np.array(value, np.int64), name) for name, value in values.items()
    )
    return written
