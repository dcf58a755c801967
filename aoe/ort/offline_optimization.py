"""ONNX Runtime's own graph optimisation, done ahead of time and written down."""

from __future__ import annotations

from pathlib import Path

import onnx

from aoe.ort.sessions import OpenSession, session_options
from aoe.workload import NCHWC_DOMAIN


def optimize_offline(
    proto: onnx.ModelProto, file: Path, open_session: OpenSession, *, threads: int
) -> onnx.ModelProto:
    """Return the graph ONNX Runtime really runs, blocked layouts included.

    Args:
        proto: A model with static input shapes.
        file: Where ONNX Runtime writes the optimised model; in a directory of the caller's.
        open_session: Loads a model on the device it is optimised for.
        threads: Intra-op threads of the session.

    Raises:
        RunError: ONNX Runtime cannot load the model.
    """
    options = session_options(threads=threads, optimize=True)
    options.optimized_model_filepath = str(file)
    open_session(proto.SerializeToString(), options)
    optimized = onnx.load(str(file))
    _name_nodes(optimized)
    _put_in_order(optimized)
    return optimized


def _name_nodes(proto: onnx.ModelProto) -> None:
    """Give every node of the main graph a distinct name, keeping those the model gave.

    Names ONNX Runtime makes up for reorder nodes differ from run to run; they are replaced by
    names made from what the node reads.
    """
    used: set[str] = set()
    for node in proto.graph.node:
        if not node.name or (node.domain == NCHWC_DOMAIN and node.op_type.startswith("Reorder")):
            node.name = f"{node.op_type}_{next(iter(node.input), '')}"
        while node.name in used:
            node.name += "_"
        used.add(node.name)


def _put_in_order(proto: onnx.ModelProto) -> None:
    """Sort what ONNX Runtime writes in the order of a hash table, so that equal models are equal.

    Attributes, initializers and opset imports mean the same in any order.
    """
    for node in proto.graph.node:
        node.attribute.sort(key=lambda attribute: attribute.name)
    proto.graph.initializer.sort(key=lambda tensor: tensor.name)
    proto.opset_import.sort(key=lambda entry: entry.domain)
