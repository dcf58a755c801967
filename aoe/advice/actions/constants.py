"""What never changes is computed once, by ONNX Runtime itself, and kept as a constant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from aoe.advice.actions.protocol import AdviceAction, Proposal, model_of, without_shapes
from aoe.advice.constants import find_recomputed
from aoe.device.registry import default_device
from aoe.errors import RunError
from aoe.graph.model_graph import ModelGraph, names_read
from aoe.graph.protos import refill
from aoe.graph.rewrite import drop_unused_initializers
from aoe.graph.rewrites.matching import Array
from aoe.ort.sessions import run_session, session_options, session_source
from aoe.target import Target

_NAME = "constants-once"
_MOST_BYTES = 1 << 28
"""What is kept is part of the file from then on."""


def propose_constants(graph: ModelGraph, target: Target) -> Iterator[Proposal]:
    """Yield the model with what it computes from constants alone as constants."""
    indices = [at for at in find_recomputed(graph) if not _makes_result(graph, at)]
    inside = set(indices)
    made = [name for at in indices for name in graph.nodes[at].output if name]
    names = [name for name in made if not inside.issuperset(graph.consumers.get(name, ()))]
    values = _computed(graph, indices, names) if names else []
    if not values or sum(value.nbytes for value in values) > _MOST_BYTES:
        return
    model = without_shapes(graph.proto)
    kept = [node for at, node in enumerate(model.graph.node) if at not in inside]
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
    refill(model.graph.node, kept)
    model.graph.initializer.extend(map(numpy_helper.from_array, values, names))
    drop_unused_initializers(model.graph)
    yield Proposal(
        action=_NAME,
        what="what is computed from constants alone becomes a constant",
        op_names=tuple(graph.nodes[at].name for at in indices),
        edited=model,
        needs_retraining=False,
    )


def _makes_result(graph: ModelGraph, index: int) -> bool:
    return not graph.output_names.isdisjoint(graph.nodes[index].output)


def _computed(graph: ModelGraph, indices: Sequence[int], names: Sequence[str]) -> list[Array]:
    """Return the values of names, in their order; none where ONNX Runtime cannot compute them."""
    nodes = [graph.nodes[at] for at in indices]
    read = {name for node in nodes for name in names_read(node)}
    results = [helper.make_empty_tensor_value_info(name) for name in names]
    weights = [tensor for name, tensor in graph.initializers.items() if name in read]
    model = model_of(helper.make_graph(nodes, _NAME, [], results, weights), graph.proto)
    try:
        options = session_options(threads=1, optimize=False)
        session = default_device().open_session(session_source(model, options), options)
        return [np.asarray(value) for value in run_session(session, {})]
    except (RunError, ValueError):  # ValueError: more than protobuf can write
        return []


CONSTANTS = AdviceAction(name=_NAME, propose=propose_constants)
