"""Normalisations exporters spell out: one operator each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.editing import Rewriting, refuse
from aoe.graph.rewrites.matching import (
    AnyNumber,
    AnyTensor,
    Array,
    Occurrence,
    OneOf,
    Pattern,
    Shape,
    find_pattern,
    is_op,
    maker,
    nodes_of,
    number_of,
    only_reader,
    op,
    opset_lacks,
    shape_of,
    value_of,
)
from aoe.graph.rewrites.protocol import Finding, RewriteRule

_LAYER = "layer-norm"
_CHANNELS = "layer-norm-of-channels"
_RMS = "rms-norm"
_GROUPS = "group-norm"
_LAYER_SINCE, _RMS_SINCE = 17, 23
_AXES_ARE_INPUT_SINCE = 18
"""Opset in which ReduceMean reads its axes."""
_X, _EPSILON = AnyTensor("x"), AnyNumber("epsilon")


def _square(pattern: Pattern) -> OneOf:
    return OneOf((op("Pow", pattern, 2), op("Mul", pattern, pattern)))


def _over_root(dividend: Pattern, variance: Pattern) -> OneOf:
    """Return `dividend / sqrt(variance + epsilon)` as exporters write it."""
    total = op("Add", variance, _EPSILON)
    return OneOf(
        (
            op("Div", dividend, op("Sqrt", total)),
            op("Mul", dividend, op("Reciprocal", op("Sqrt", total))),
            op("Mul", dividend, op("Div", 1, op("Sqrt", total))),
            op("Mul", dividend, op("Pow", total, -0.5)),
        )
    )


def _centred(axis: int) -> OneOf:
    distance = op("Sub", _X, op("ReduceMean", _X, axes=(axis,), keepdims=1))
    variance = op("ReduceMean", _square(distance), axes=(axis,), keepdims=1)
    return _over_root(distance, variance)


_LAST, _SECOND = _centred(-1), _centred(1)
_UNCENTRED = _over_root(_X, op("ReduceMean", _square(_X), axes=(-1,), keepdims=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scaled:
    """A normalised tensor with the scale and the bias behind it, (length) float32 each."""

    output: str
    nodes: tuple[int, ...]
    scale: Array | None
    bias: Array | None


def find_layers(graph: ModelGraph) -> Iterator[Finding]:
    """Yield normalisations over the last axis, centred."""
    for found, output, shape in _cores(graph, _LAST):
        scaled = _scaled(graph, output, shape, len(shape) - 1)
        nodes = [*found.nodes, *scaled.nodes]
        if why := opset_lacks(graph, "LayerNormalization", _LAYER_SINCE):
            yield refuse(graph, _LAYER, nodes, why)
        else:
            yield _layer(graph, found, scaled, shape)


def _layer(graph: ModelGraph, found: Occurrence, scaled: _Scaled, shape: Shape) -> Finding:
    rewriting = Rewriting(graph, _LAYER, [*found.nodes, *scaled.nodes])
    inputs = [found.names["x"], *_parameters(rewriting, scaled, shape[-1])]
    rewriting.add(
        "LayerNormalization", inputs, scaled.output, axis=-1, epsilon=_epsilon(graph, found)
    )
    return rewriting.finish()


def find_channels(graph: ModelGraph) -> Iterator[Finding]:
    """Yield normalisations over the channels of images."""
    for found, output, shape in _cores(graph, _SECOND):
        if len(shape) != 4:
            continue
        scaled = _scaled(graph, output, shape, 1)
        nodes = [*found.nodes, *scaled.nodes]
        if why := opset_lacks(graph, "LayerNormalization", _LAYER_SINCE):
            yield refuse(graph, _CHANNELS, nodes, why)
            continue
        rewriting = Rewriting(graph, _CHANNELS, nodes)
        last = rewriting.add("Transpose", [found.names["x"]], perm=[0, 2, 3, 1])
        inputs = [last, *_parameters(rewriting, scaled, shape[1])]
        epsilon = _epsilon(graph, found)
        made = rewriting.add("LayerNormalization", inputs, axis=-1, epsilon=epsilon)
        rewriting.add("Transpose", [made], scaled.output, perm=[0, 3, 1, 2])
        yield rewriting.finish()


def find_root_means(graph: ModelGraph) -> Iterator[Finding]:
    """Yield normalisations over the last axis that are not centred."""
    for found, output, shape in _cores(graph, _UNCENTRED):
        scaled = _scaled(graph, output, shape, len(shape) - 1, with_bias=False)
        nodes = [*found.nodes, *scaled.nodes]
        if graph.opset("") < _RMS_SINCE and _is_fused_there(graph, output, scaled):
            yield refuse(graph, _RMS, nodes, "ONNX Runtime fuses it as it is written")
            continue
        rewriting = Rewriting(graph, _RMS, nodes)
        inputs = [found.names["x"], _parameters(rewriting, scaled, shape[-1])[0]]
        epsilon = _epsilon(graph, found)
        if graph.opset("") < _RMS_SINCE:
            _add_fused_form(rewriting, inputs, scaled.output, epsilon, graph.opset(""))
        else:
            rewriting.add("RMSNormalization", inputs, scaled.output, axis=-1, epsilon=epsilon)
        yield rewriting.finish()


def _is_fused_there(graph: ModelGraph, output: str, scaled: _Scaled) -> bool:
    """Return True for what ONNX Runtime makes one operator of: a Div by the root, and a scale."""
    divided = maker(graph, output)
    return scaled.scale is not None and is_op(divided, "Div")


def _add_fused_form(
    rewriting: Rewriting, inputs: list[str], output: str, epsilon: float, opset: int
) -> None:
    """Add the nodes ONNX Runtime's SimplifiedLayerNormFusion looks for.

    What PyTorch writes, a product with the Reciprocal of the root, it leaves as it is.
    Source: onnxruntime/core/optimizer/layer_norm_fusion.cc, ONNX Runtime 1.31.
    """
    x, scale = inputs
    two = rewriting.constant(np.full((), 2, np.float32), "two")
    square = rewriting.add("Pow", [x, two])
    if opset < _AXES_ARE_INPUT_SINCE:
        mean = rewriting.add("ReduceMean", [square], axes=(-1,), keepdims=1)
    else:
        axes = rewriting.integers([-1], "axes")
        mean = rewriting.add("ReduceMean", [square, axes], keepdims=1)
    small = rewriting.constant(np.full((), epsilon, np.float32), "epsilon")
    root = rewriting.add("Sqrt", [rewriting.add("Add", [mean, small])])
    rewriting.add("Mul", [rewriting.add("Div", [x, root]), scale], output)


def find_groups(graph: ModelGraph) -> Iterator[Finding]:
    """Yield normalisations of groups of channels, which stand between two Reshapes."""
    for found, output, shape in _cores(graph, _LAST):
        reader = only_reader(graph, output)
        before = maker(graph, found.names["x"])
        if len(shape) != 3 or reader is None or not is_op(before, "Reshape"):
            continue
        if not is_op(graph.nodes[reader], "Reshape"):
            yield refuse(graph, _GROUPS, found.nodes, "what comes out is not taken apart again")
            continue
        rewriting = Rewriting(graph, _GROUPS, found.nodes)
        parameters = [
            rewriting.constant(np.full(shape[1], value, np.float32), what)
            for what, value in (("scale", 1), ("bias", 0))
        ]
        epsilon = _epsilon(graph, found)
        inputs = [found.names["x"], *parameters]
        rewriting.add("InstanceNormalization", inputs, output, epsilon=epsilon)
        yield rewriting.finish()


def _cores(graph: ModelGraph, pattern: Pattern) -> Iterator[tuple[Occurrence, str, Shape]]:
    """Yield the nodes of a normalisation, its result, and the shape of that."""
    for _, node in nodes_of(graph, "Div", "Mul"):
        found = find_pattern(graph, node.output[0], pattern)
        shape = shape_of(graph, node.output[0])
        if found is not None and shape and shape_of(graph, found.names["x"]) == shape:
            yield found, node.output[0], shape


def _scaled(
    graph: ModelGraph, name: str, shape: Shape, axis: int, *, with_bias: bool = True
) -> _Scaled:
    """Return the Mul and the Add behind a tensor, as far as they are one number per channel."""
    nodes: list[int] = []
    values: list[Array | None] = []
    for op_type in ("Mul", "Add") if with_bias else ("Mul",):
        reader = only_reader(graph, name)
        node = None if reader is None else graph.nodes[reader]
        value = None
        if node is not None and reader is not None and is_op(node, op_type):
            other = next((read for read in node.input if read != name), "")
            value = _row(value_of(graph, other) if other else None, shape, axis)
            if value is not None:
                nodes.append(reader)
                name = node.output[0]
        values.append(value)
    bias = values[1] if with_bias else None
    return _Scaled(output=name, nodes=tuple(nodes), scale=values[0], bias=bias)


def _row(value: Array | None, shape: Shape, axis: int) -> Array | None:
    if value is None or value.dtype != np.float32 or value.ndim > len(shape):
        return None
    wide = (1,) * (len(shape) - value.ndim) + value.shape
    if value.size == 1:
        return np.full(shape[axis], value.reshape(-1)[0], np.float32)
    expected = tuple(extent if at == axis else 1 for at, extent in enumerate(shape))
    return value.reshape(-1) if wide == expected else None


def _parameters(rewriting: Rewriting, scaled: _Scaled, length: int) -> list[str]:
    scale = np.ones(length, np.float32) if scaled.scale is None else scaled.scale
    parameters = [rewriting.constant(scale, "scale")]
    if scaled.bias is not None:
        parameters.append(rewriting.constant(scaled.bias, "bias"))
    return parameters


def _epsilon(graph: ModelGraph, found: Occurrence) -> float:
    epsilon = number_of(graph, found.names["epsilon"])
    assert epsilon is not None
    return epsilon


_ONCE = "float32, known shapes; nobody else reads what lies between"
LAYER_RULE = RewriteRule(
    name=_LAYER,
    what="Mean, Sub, variance, Sqrt, Div over the last axis become LayerNormalization",
    needs=f"{_ONCE}; opset 17",
    tolerance=1e-4,
    find=find_layers,
)
CHANNELS_RULE = RewriteRule(
    name=_CHANNELS,
    what="The same over the channels of images becomes LayerNormalization between Transposes",
    needs=f"{_ONCE}; opset 17",
    tolerance=1e-4,
    find=find_channels,
)
RMS_RULE = RewriteRule(
    name=_RMS,
    what="x over the root of its mean square becomes RMSNormalization, or what is fused to it",
    needs=f"{_ONCE}; below opset 23 not what ONNX Runtime fuses as it is",
    tolerance=1e-4,
    version=2,
    find=find_root_means,
)
GROUPS_RULE = RewriteRule(
    name=_GROUPS,
    what="Mean and variance of groups of channels, spelled out, become InstanceNormalization",
    needs=f"{_ONCE}; a Reshape to (batch, groups, -1) in front and one behind",
    tolerance=1e-4,
    find=find_groups,
)
