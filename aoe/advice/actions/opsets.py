"""A newer opset, which has one operator for what an exporter spelled out for an older one."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import version_converter

from aoe.advice.actions.protocol import AdviceAction, Proposal, copied
from aoe.device.registry import default_device
from aoe.errors import RunError
from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.apply import apply_edits, choose_apart
from aoe.graph.rewrites.preparation import prepared
from aoe.graph.rewrites.protocol import RewriteMatch
from aoe.graph.rewrites.registry import RULES
from aoe.ort.static_shapes import infer_tensors
from aoe.target import Target

_NAME = "newer-opset"
_OPSETS = (17, 18, 20, 23)
"""Those that brought operators with kernels of their own: LayerNormalization, Mish, Gelu,
RMSNormalization and Attention. Source: the changelog of ONNX's operators."""


def propose_newer_opset(graph: ModelGraph, target: Target) -> Iterator[Proposal]:
    """Yield the model in the first newer opset in which a rule matches what it refused before."""
    before = {match.nodes for match in _matches(graph)}
    for opset in _OPSETS:
        if opset <= graph.opset(""):
            continue
        newer = _converted(graph, opset)
        if newer is None:
            return
        found = [match for match in _matches(newer) if match.nodes not in before]
        chosen = choose_apart(newer, found)
        if chosen:
            rules = ", ".join(dict.fromkeys(match.rule for match in chosen))
            yield Proposal(
                action=_NAME,
                what=f"exported with opset {opset} it has one operator for these: {rules}",
                op_names=tuple(dict.fromkeys(name for match in chosen for name in match.nodes)),
                edited=apply_edits(newer.proto, [match.edit for match in chosen]),
                needs_retraining=False,
            )
            return


def _matches(graph: ModelGraph) -> list[RewriteMatch]:
    rules = [rule for rule in RULES.values() if not rule.is_done_anyway]
    return [
        found for rule in rules for found in rule.find(graph) if isinstance(found, RewriteMatch)
    ]


def _converted(graph: ModelGraph, opset: int) -> ModelGraph | None:
    """Return the model in another opset, None where ONNX cannot convert it."""
    try:
        model = prepared(version_converter.convert_version(copied(graph.proto), opset))
        tensors = infer_tensors(model, default_device().open_session)
    except (RuntimeError, ValueError, RunError):  # the converter raises these as it likes
        return None
    return ModelGraph(model, tensors, block=graph.block)


NEWER_OPSET = AdviceAction(name=_NAME, propose=propose_newer_opset)
