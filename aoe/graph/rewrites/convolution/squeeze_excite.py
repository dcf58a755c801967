"""A gate per channel in front of a pointwise convolution: it scales the weights instead.

Squeeze-and-excite multiplies a whole tensor by one number per channel, which ONNX Runtime does
outside the blocked layout. With one image the weights can be multiplied, which are fewer.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.building import Rewriting, refuse
from aoe.graph.rewrites.convolution.weights import KnownConv, known_conv
from aoe.graph.rewrites.protocol import Finding, RewriteRule
from aoe.graph.rewrites.reading import nodes_of, only_reader, shape_of, unfit_window

_NAME = "gate-into-weights"


def find_gates(graph: ModelGraph) -> Iterator[Finding]:
    """Yield products with one number per channel that a pointwise Conv reads."""
    for index, node in nodes_of(graph, "Mul"):
        shapes = [shape_of(graph, name) for name in node.input]
        reader = only_reader(graph, node.output[0])
        if None in shapes or reader is None or any(len(s) != 4 for s in shapes if s is not None):
            continue
        conv = known_conv(graph, graph.nodes[reader])
        wide = shape_of(graph, node.output[0])
        if isinstance(conv, str) or wide is None:
            continue
        gate = next((at for at, shape in enumerate(shapes) if shape == (*wide[:2], 1, 1)), None)
        if gate is None or shapes[1 - gate] != wide or node.input[gate] in graph.initializers:
            continue
        yield _gated(graph, [index, reader], conv, (node.input[1 - gate], node.input[gate]), wide)


def _gated(
    graph: ModelGraph,
    nodes: list[int],
    conv: KnownConv,
    reads: tuple[str, str],
    wide: tuple[int, ...],
) -> Finding:
    why = unfit_window(conv.node) or (f"it has {conv.groups} groups" if conv.groups > 1 else "")
    if any(extent != 1 for extent in conv.weight.shape[2:]):
        why = f"its kernel is {conv.weight.shape[2:]}"
    if wide[0] != 1:
        why = f"{wide[0]} images have gates of their own"
    if why:
        return refuse(graph, _NAME, nodes, f"{conv.node.name}: {why}")
    data, gate = reads
    outputs, channels = conv.weight.shape[:2]
    rewriting = Rewriting(graph, _NAME, nodes)
    row = rewriting.add("Reshape", [gate, rewriting.constant(np.array([1, channels]), "row")])
    weight = rewriting.constant(conv.weight.reshape(outputs, channels), "weight")
    scaled = rewriting.add("Mul", [weight, row])
    shape = rewriting.constant(np.array([channels, wide[2] * wide[3]]), "flat")
    flat = rewriting.add("Reshape", [data, shape])
    inputs = [scaled, flat]
    if conv.bias is not None:
        inputs.append(rewriting.constant(conv.bias.reshape(-1, 1), "bias"))
    product = rewriting.add("Gemm" if conv.bias is not None else "MatMul", inputs)
    back = rewriting.constant(np.array([1, outputs, *wide[2:]]), "shape")
    rewriting.add("Reshape", [product, back], conv.node.output[0])
    return rewriting.finish()


GATE_RULE = RewriteRule(
    name=_NAME,
    what="Mul by one number per channel and a pointwise Conv become a product of scaled weights",
    needs="one image, constant weights, one group, no stride; the Conv alone reads the product",
    tolerance=1e-4,
    find=find_gates,
)
