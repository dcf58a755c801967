"""What an action is: it finds nodes, and says how the model would be without what is slow there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import onnx

from aoe.graph.model_graph import ModelGraph
from aoe.graph.protos import copied
from aoe.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One edited copy of a model.

    Attributes:
        action: Name of the action, of the rule for an equal way to write the model.
        what: What becomes what, one sentence without a full stop.
        op_names: Nodes it is about.
        edited: The copy.
        needs_retraining: True if it computes something else.
        baseline: What the copy is compared with; None for the model itself.
    """

    action: str
    what: str
    op_names: tuple[str, ...]
    edited: onnx.ModelProto
    needs_retraining: bool
    baseline: onnx.ModelProto | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceAction:
    """A way to make a model faster.

    Attributes:
        name: In words with hyphens.
        propose: Yields edited copies; nothing where it does not apply.
    """

    name: str
    propose: Callable[[ModelGraph, Target], Iterator[Proposal]]


def without_shapes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy without what is claimed about shapes, which an edit may change."""
    model = copied(proto)
    del model.graph.value_info[:]
    for value in model.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    return model


def model_of(graph: onnx.GraphProto, proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model of a graph whose operators are those of another model."""
    return onnx.ModelProto(
        ir_version=proto.ir_version,
        opset_import=proto.opset_import,
        functions=proto.functions,
        graph=graph,
    )
