"""Rules applied to every model, because ONNX Runtime then optimises more of it.

They are exact to the letter of what they look for, since nobody compares results. What they make
keeps the names of what it replaces: records, reports and regions lead back to the user's operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np
import onnx
from onnx import helper

from aoe.graph.model_graph import ModelGraph, TensorInfo, attributes_of
from aoe.graph.rewrites.editing import Rewriting, apply_edits, choose_disjoint
from aoe.graph.rewrites.matching import (
    AnyNumber,
    AnyTensor,
    Array,
    OneOf,
    Pattern,
    Shape,
    any_shape_of,
    attribute,
    find_pattern,
    is_elementwise,
    is_op,
    maker,
    nodes_of,
    only_reader,
    op,
    shape_of,
    value_of,
)
from aoe.graph.rewrites.protocol import Finding, RewriteMatch, RewriteRule, RuleUse
from aoe.graph.weights import SMALL_BYTES, bytes_of, without_initializers
from aoe.operators import op_key

_SHAPE_TYPES = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)
_X, _EPSILON = AnyTensor("x"), AnyNumber("epsilon")


def rewritten(proto: onnx.ModelProto, *rules: RewriteRule, tidy: bool = False) -> onnx.ModelProto:
    """Return a model with every match of some rules applied; see `rewritten_and_counted`."""
    return rewritten_and_counted(proto, *rules, tidy=tidy)[0]


def rewritten_and_counted(
    proto: onnx.ModelProto, *rules: RewriteRule, tidy: bool = False
) -> tuple[onnx.ModelProto, Counter[str]]:
    """Return a model with every match of some rules applied, one rule after the other.

    Args:
        proto: The model.
        rules: The rules, in the order in which they are applied.
        tidy: See `apply_edits`; ONNX Runtime leaves out by itself what nobody needs.

    Returns:
        The model, itself if there is no match, and the number of matches by the name of the rule.
    """
    graph: ModelGraph | None = None
    counts = Counter[str]()
    for rule in rules:
        if not {node.op_type for node in proto.graph.node}.issuperset(rule.op_types):
            continue
        graph = with_constants(proto) if graph is None else graph
        matches = [one for one in rule.findings(graph) if isinstance(one, RewriteMatch)]
        chosen = choose_disjoint(graph, matches)
        if chosen:
            proto = apply_edits(proto, [match.edit for match in chosen], tidy=tidy)
            graph = None
        counts[rule.name] = len(chosen)
    return proto, counts


def with_constants(proto: onnx.ModelProto) -> ModelGraph:
    """Return a view of a model in which nodes that make constants are constants."""
    graph = ModelGraph(proto, partial(_known_tensors, proto), block=0)
    for node in graph.nodes:
        value = attributes_of(node).get("value") if is_op(node, "Constant") else None
        if isinstance(value, onnx.TensorProto):
            graph.initializers[node.output[0]] = value
    return graph


def _known_tensors(proto: onnx.ModelProto) -> dict[str, TensorInfo]:
    """Return tensors of known type and rank, with 0 for extents that differ from run to run.

    What the file claims about tensors between its inputs and results is not believed.
    """
    bare = without_initializers(proto)
    del bare.graph.value_info[:]
    weights = _add_weights_as_inputs(bare, proto)
    graph = onnx.shape_inference.infer_shapes(bare, data_prop=True).graph
    found = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        tensor = value.type.tensor_type
        if value.name in weights:
            continue
        if tensor.elem_type and tensor.HasField("shape"):
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)).name
            extents = (d.dim_value if d.HasField("dim_value") else 0 for d in tensor.shape.dim)
            found[value.name] = TensorInfo(dtype=dtype, shape=tuple(extents))
    return found


def _add_weights_as_inputs(bare: onnx.ModelProto, proto: onnx.ModelProto) -> set[str]:
    """Give a model without weights those of another one, and return which of them are inputs.

    The values of integers and of small tensors may be shapes. Of all others types and extents will
    do, or the inference would copy the weights of a whole model five times.
    """
    listed, added = {value.name for value in proto.graph.input}, set[str]()
    for tensor in proto.graph.initializer:
        if bytes_of(tensor) <= SMALL_BYTES or tensor.data_type in _SHAPE_TYPES:
            bare.graph.initializer.append(tensor)
        elif tensor.name not in listed:
            added.add(tensor.name)
            bare.graph.input.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    return added


# ---- Group normalisation, spelled out in operators ONNX Runtime has kernels for ----
# Without a kernel of its own on the CPU, it is inlined as the function ONNX defines it by: two
# dozen nodes, most of which walk the tensor. As an InstanceNormalization between two Reshapes it
# is one walk, with a scale and a bias of channels behind it.

_PER_CHANNEL_SINCE = 21
"""Opset with scale and bias per channel; the older operator is deprecated."""
_NORMALIZED = ("float32", "float16")
"""Element types ONNX Runtime normalises, the second one between casts."""


def find_group_normalizations(graph: ModelGraph) -> Iterator[Finding]:
    """Yield group normalisations of known shape with constant parameters."""
    for index, node in nodes_of(graph, "GroupNormalization"):
        info = graph.find_info(node.input[0])
        groups = int(attribute(node, "num_groups", 0))
        parameters = [value_of(graph, name) for name in node.input[1:]]
        if info is None or info.dtype not in _NORMALIZED or 0 in info.shape:
            continue
        scale, bias = (None if one is None else _column(one, info.shape) for one in parameters)
        if graph.opset("") < _PER_CHANNEL_SINCE or len(info.shape) < 3 or groups < 1:
            continue
        if scale is None or bias is None:
            continue
        output = node.output[0]
        rewriting = Rewriting(graph, GROUPS_RULE.name, [index], prefix=f"{output}_")
        neutral = [
            rewriting.constant(np.full(groups, value, info.dtype), what)
            for what, value in (("one", 1), ("zero", 0))
        ]
        normalized = rewriting.name("normalized")
        wide = rewriting.integers((info.shape[0], groups, -1), "joined_shape")
        apart = rewriting.integers(info.shape, "shape")
        joined, made = rewriting.name("joined"), rewriting.name("groups")
        epsilon = float(attribute(node, "epsilon", 1e-5))
        rewriting.add("Reshape", [node.input[0], wide], joined, name=joined)
        inputs = [joined, *neutral]
        rewriting.add("InstanceNormalization", inputs, made, name=made, epsilon=epsilon)
        rewriting.add("Reshape", [made, apart], normalized, name=normalized)
        factors, summands = rewriting.constant(scale, "scale"), rewriting.constant(bias, "bias")
        scaled = rewriting.name("scaled")
        rewriting.add("Mul", [normalized, factors], scaled, name=scaled)
        rewriting.add("Add", [scaled, summands], output, name=node.name)
        yield rewriting.finish()


def _column(value: Array, shape: Shape) -> Array:
    """Return one number per channel as what multiplies images of a shape."""
    return value.reshape(-1, *(1,) * (len(shape) - 2))


GROUPS_RULE = RewriteRule(
    name="group-norm-spelled-out",
    what="GroupNormalization becomes InstanceNormalization between Reshapes, Mul and Add",
    needs="opset 21, known shapes, constant parameters",
    tolerance=1e-4,
    find=find_group_normalizations,
    use=RuleUse.ALWAYS,
    op_types=("GroupNormalization",),
)


# ---- Layer normalisation of channels that is written in parts, as one operator ----
# Networks in planes that have no operator for it take the mean over the channels off, divide by
# the root of the mean square, scale and add (`LayerNorm2d` of Segment Anything, the first
# ConvNeXt). ONNX Runtime joins such parts along the last axis alone, and walks the tensor for each.

_LAYER_NORM_SINCE = 17
"""Opset with LayerNormalization."""


def _square(pattern: Pattern) -> OneOf:
    return OneOf((op("Pow", pattern, 2), op("Mul", pattern, pattern)))


def _root(squared: Pattern, axis: int) -> Pattern:
    """Return the root of a mean square over an axis, with what keeps it from 0."""
    mean = op("ReduceMean", _square(squared), axes=(axis,), keepdims=1)
    return op("Sqrt", op("Add", mean, _EPSILON))


_DEVIATION = op("Sub", _X, op("ReduceMean", _X, axes=(1,), keepdims=1))
_OF_CHANNELS = op("Div", _DEVIATION, _root(_DEVIATION, 1))


def find_channel_parts(graph: ModelGraph) -> Iterator[Finding]:
    """Yield float32 normalisations of channels, with the scale and the bias behind them."""
    if graph.opset("") < _LAYER_NORM_SINCE:
        return
    for index, node in nodes_of(graph, "Div"):
        found = find_pattern(graph, node.output[0], _OF_CHANNELS, is_exact=True)
        shape = None if found is None else shape_of(graph, found.names["x"])
        if found is None or shape is None or len(shape) < 3 or shape[1] < 1:
            continue
        behind, scale, bias = _affine_behind(graph, index, shape)
        nodes = {*found.nodes, *behind}
        last = graph.nodes[max(nodes)]
        output, rank = last.output[0], len(shape)
        rewriting = Rewriting(graph, CHANNELS_RULE.name, nodes, prefix=f"{output}_channels_")
        rows, normalized = rewriting.name("last"), rewriting.name("normalized")
        parameters = [rewriting.constant(scale, "scale"), rewriting.constant(bias, "bias")]
        forth, back = (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))
        epsilon = value_of(graph, found.names["epsilon"])
        assert epsilon is not None
        rewriting.add("Transpose", [found.names["x"]], rows, name=rows, perm=forth)
        rewriting.add(
            "LayerNormalization",
            [rows, *parameters],
            normalized,
            name=normalized,
            axis=-1,
            epsilon=float(epsilon.reshape(-1)[0]),
        )
        rewriting.add("Transpose", [normalized], output, name=last.name, perm=back)
        yield rewriting.finish()


def _affine_behind(
    graph: ModelGraph, index: int, shape: Shape
) -> tuple[tuple[int, ...], Array, Array]:
    """Return the nodes behind another that scale channels, their factor and their summand."""
    nodes: tuple[int, ...] = ()
    values = [np.ones(shape[1], np.float32), np.zeros(shape[1], np.float32)]
    for number, op_type in enumerate(("Mul", "Add")):
        reader = only_reader(graph, graph.nodes[index].output[0])
        if reader is None or not is_op(graph.nodes[reader], op_type):
            break
        _, value = _with_constant(graph, graph.nodes[reader])
        if value is None or value.dtype != np.float32 or value.ndim > len(shape):
            break
        wide = (1,) * (len(shape) - value.ndim) + value.shape
        if wide != (1, shape[1], *(1,) * (len(shape) - 2)):
            break
        values[number] = value.reshape(-1)
        nodes, index = (*nodes, reader), reader
    return nodes, values[0], values[1]


def _with_constant(graph: ModelGraph, node: onnx.NodeProto) -> tuple[str, Array | None]:
    """Split the inputs of a node: the name of the computed one, and the constant or None."""
    left, right = node.input
    value = value_of(graph, right)
    return (left, value) if value is not None else (right, value_of(graph, left))


CHANNELS_RULE = RewriteRule(
    name="channel-norm-parts",
    what="Mean, Sub, mean square, Sqrt, Div over channels become LayerNormalization"
    " between Transposes",
    needs="float32, opset 17; nobody else reads what lies between",
    tolerance=1e-4,
    find=find_channel_parts,
    use=RuleUse.ALWAYS,
    op_types=("Sqrt", "Sub", "Div"),
)


# ---- Root mean square normalisation in the parts ONNX Runtime joins to one operator ----
# It knows Pow, ReduceMean, Add, Sqrt, Div and a product with the scale. Exporters of PyTorch write
# a product with the Reciprocal of the root instead, and a square as a product: no part is joined
# then, and the tensor is walked for each of them.

_QUOTIENT = OneOf(
    (op("Div", _X, _root(_X, -1)), op("Mul", _X, op("Reciprocal", _root(_X, -1)))),
)


def find_roots(graph: ModelGraph) -> Iterator[Finding]:
    """Yield squares and quotients that ONNX Runtime does not join to a float32 normalisation.

    Each is equal to what it becomes by itself.
    """
    for index, node in nodes_of(graph, "Div", "Mul"):
        found = find_pattern(graph, node.output[0], _QUOTIENT, is_exact=True)
        if found is None or not _is_scaled(graph, node.output[0]):
            continue
        epsilon = value_of(graph, found.names["epsilon"])
        by_type = {graph.nodes[at].op_type: at for at in sorted(found.nodes, reverse=True)}
        inner = [graph.nodes[at].output[0] for at in found.nodes - {index}]
        if epsilon is None or epsilon.dtype != np.float32:
            continue
        if any(only_reader(graph, name) is None for name in inner):
            continue
        if "Pow" not in by_type:
            square = graph.nodes[by_type["Mul"]]
            made = square.output[0]
            rewriting = Rewriting(graph, ROOTS_RULE.name, [by_type["Mul"]], prefix="")
            two = rewriting.constant(np.array(2, np.float32), "two")
            rewriting.add("Pow", [found.names["x"], two], made, name=square.name)
            yield rewriting.finish()
        if "Reciprocal" in by_type:
            gone = [by_type["Reciprocal"], index]
            rewriting = Rewriting(graph, ROOTS_RULE.name, gone, prefix="")
            root = graph.nodes[by_type["Sqrt"]].output[0]
            rewriting.add("Div", [found.names["x"], root], node.output[0], name=node.name)
            yield rewriting.finish()


def _is_scaled(graph: ModelGraph, quotient: str) -> bool:
    """Return True if a product with a constant row follows, without which nothing is joined."""
    readers = graph.consumers.get(quotient, ())
    if len(readers) != 1 or not is_op(graph.nodes[readers[0]], "Mul"):
        return False
    _, scale = _with_constant(graph, graph.nodes[readers[0]])
    return scale is not None and scale.dtype == np.float32 and scale.ndim == 1


ROOTS_RULE = RewriteRule(
    name="rms-norm-parts",
    what="x over the root of its mean square is written as Pow, ReduceMean, Add, Sqrt, Div",
    needs="float32, a constant scale behind it; nobody else reads what lies between",
    tolerance=1e-6,
    find=find_roots,
    use=RuleUse.ALWAYS,
    op_types=("Sqrt", "ReduceMean"),
)


# ---- Signs inside of rotary embeddings, as part of the factor behind them ----
# Heads are turned by `x * cosine + concat(-right, left) * sine`. The halves come apart for the Neg
# alone: where the sine is constant its sign may change instead, and what is left are moves, which
# one kernel reads through. 64 tokens of 8 heads of 64 take 12 us so, and 65 with the Split, the Neg
# and the Transpose in front of that kernel (one thread of a busy Xeon of family 6, model 167,
# onnxruntime 1.32, 2026-11-29).


def find_signs(graph: ModelGraph) -> Iterator[Finding]:
    """Yield parts that are negated, put side by side with others and multiplied by a constant."""
    for index, node in nodes_of(graph, "Mul"):
        name, factor = _with_constant(graph, node)
        joined = maker(graph, name)
        if (
            factor is None
            or factor.dtype.name not in _NORMALIZED
            or only_reader(graph, name) is None
        ):
            continue
        if joined is None or not is_op(joined, "Concat") or not factor.ndim:
            continue
        shapes = [any_shape_of(graph, part) for part in joined.input]
        rank = len(shapes[0] or ())
        if attribute(joined, "axis", 0) not in (-1, rank - 1) or factor.ndim > rank:
            continue
        if any(not shape or not shape[-1] for shape in shapes):
            continue
        negated = [_negated(graph, part) for part in joined.input]
        gone = [graph.producer[part] for part, of in zip(joined.input, negated, strict=True) if of]
        if not gone:
            continue
        signs = [
            np.full(shape[-1], -1 if of else 1, factor.dtype)
            for shape, of in zip(shapes, negated, strict=True)
            if shape
        ]
        rewriting = Rewriting(
            graph, SIGNS_RULE.name, [*gone, graph.producer[name], index], prefix=""
        )
        parts = [of or part for part, of in zip(joined.input, negated, strict=True)]
        rewriting.copy(joined, parts, name)
        signed = rewriting.constant(factor * np.concatenate(signs), f"{name}_signed")
        rewriting.add("Mul", [name, signed], node.output[0], name=node.name)
        yield rewriting.finish()


def _negated(graph: ModelGraph, name: str) -> str:
    """Return the input of the Neg that makes a tensor for one reader; empty where there is none."""
    node = maker(graph, name)
    is_negative = node is not None and is_op(node, "Neg") and only_reader(graph, name) is not None
    return node.input[0] if node is not None and is_negative else ""


SIGNS_RULE = RewriteRule(
    name="signs-into-factor",
    what="A Neg in front of a Concat and a product with a constant changes signs of the constant",
    needs="known last extents; nobody else reads what lies between",
    find=find_signs,
    use=RuleUse.ALWAYS,
    op_types=("Neg", "Concat", "Mul"),
)


# ---- Extents that older exporters compute, as the constants they are ----
# The TorchScript exporter writes `flatten` as Shape, Slice, Concat and Reshape. Where extents are
# known, the Shape is a constant, and does not read the tensor.


def find_known_extents(graph: ModelGraph) -> Iterator[Finding]:
    """Yield every Shape of known extents that is no result of the model."""
    for index, node in nodes_of(graph, "Shape"):
        shape = any_shape_of(graph, node.input[0])
        if shape is None or 0 in shape or node.output[0] in graph.output_names:
            continue
        extents = shape[attribute(node, "start", 0) : attribute(node, "end", None)]
        rewriting = Rewriting(graph, EXTENTS_RULE.name, [index])
        rewriting.replace_by_constant(node.output[0], np.array(extents, np.int64))
        yield rewriting.finish()


EXTENTS_RULE = RewriteRule(
    name="known-extents",
    what="Shape of known extents becomes a constant",
    needs="known extents; the result is none of the model's",
    find=find_known_extents,
    use=RuleUse.ALWAYS,
    op_types=("Shape",),
)


# ---- Depthwise convolutions between matrix products of tokens, as convolutions of images ----
# PVT-v2 and SegFormer widen tokens by a matrix product, filter every channel of the image they
# are, and narrow them by another product. As written, the wide tensor is turned in front of the
# filters and behind them, and ONNX Runtime brings it into the blocked layout and back besides. The
# products are pointwise convolutions: written so, the narrow tensors are turned, and what lies
# between stays in the blocked layout, where a kernel makes and filters wide channels while they
# are in the caches.
#
# ONNX Runtime alone, 3136 tokens of 64 widened to 512: 10.1 ms as written, 6.8 so; 196 of 320 to
# 1280: 4.0 and 3.7 (one thread of a loaded Zen 4, CPU time, 2026-11-27).

_BLOCK = 16
"""Channels of the blocked layout; of others ONNX Runtime fills the last block up."""
_SWAP, _CHANNELS_LAST, _CHANNELS_FIRST = (0, 2, 1), (0, 2, 3, 1), (0, 3, 1, 2)
_TOKENS, _IMAGE = 3, 4
"""Ranks: (images, tokens, channels) and (images, channels, height, width)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Product:
    """A product of tokens with a constant matrix, and its bias."""

    matmul: int  # Index of its MatMul
    last: int  # Index of the node that makes its result: the Add of the bias, or the MatMul
    weights: str  # Name of the matrix, (channels read, channels made)
    channels: tuple[int, int]  # Extents of the matrix
    bias: str  # Name of the summands, "" if there are none


@dataclass(frozen=True, slots=True, kw_only=True)
class _FeedForward:
    """A product, a depthwise convolution, a chain and another product."""

    widening: _Product  # The product in front of the convolution
    convolution: int  # Index of the convolution
    # Indices of the element-wise nodes behind it, in order; they read tokens.
    chain: tuple[int, ...]
    tokens: str  # Name of what the chain reads
    narrowing: _Product  # The product behind the chain
    nodes: frozenset[int]  # Indices of all nodes


def write_tokens_as_images(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose depthwise convolutions between products stand between convolutions.

    The model itself, if there are none of tokens in float32 and of known shapes.
    """
    kinds = {node.op_type for node in proto.graph.node}
    if not kinds.issuperset(TOKENS_RULE.op_types) or not any(map(_is_grouped, proto.graph.node)):
        return proto
    known = rewritten(proto, EXTENTS_RULE)
    written = rewritten(known, TOKENS_RULE, tidy=True)
    return proto if written is known else written


def find_feed_forwards(graph: ModelGraph) -> Iterator[Finding]:
    """Yield depthwise convolutions of images of tokens between two products."""
    for index, node in nodes_of(graph, "Conv"):
        part = _feed_forward(graph, index) if _is_grouped(node) else None
        if part is not None:
            yield _as_images(graph, part)


def _as_images(graph: ModelGraph, part: _FeedForward) -> Finding:
    """Write a part; nodes that compute, and what they make, keep the names they have."""
    nodes, widening, narrowing = graph.nodes, part.widening, part.narrowing
    result = nodes[max(part.nodes)].output[0]
    rewriting = Rewriting(graph, TOKENS_RULE.name, part.nodes, prefix="")
    filtered = nodes[part.convolution]
    given, made = _tokens_shape(graph, filtered.input[0]), _tokens_shape(graph, filtered.output[0])
    pixels = rewriting.name(f"{result}_pixels")
    extents = (given[0], *given[2:], widening.channels[0])
    _add_reshape(rewriting, nodes[widening.matmul].input[0], pixels, extents)
    image = rewriting.name(f"{result}_image")
    rewriting.add("Transpose", [pixels], image, name=image, perm=_CHANNELS_FIRST)
    wide = nodes[widening.last].output[0]
    _add_pointwise(graph, rewriting, widening, image, wide)
    inputs = [wide, *filtered.input[1:]]
    rewriting.copy(filtered, inputs, filtered.output[0], name=filtered.name)
    as_image = {part.tokens: filtered.output[0]}
    for node in (nodes[at] for at in part.chain):
        inputs = [as_image.get(name, name) for name in node.input]
        rewriting.copy(node, inputs, node.output[0], name=node.name)
    activated = nodes[narrowing.matmul].input[0]
    narrow = nodes[narrowing.matmul].output[0]
    if narrow == result:
        narrow = rewriting.name(f"{result}_narrow")
    _add_pointwise(graph, rewriting, narrowing, as_image.get(activated, activated), narrow)
    last = rewriting.name(f"{result}_last")
    rewriting.add("Transpose", [narrow], last, name=last, perm=_CHANNELS_LAST)
    _add_reshape(rewriting, last, result, (made[0], prod(made[2:]), narrowing.channels[1]))
    return rewriting.finish()


def _add_pointwise(
    graph: ModelGraph, rewriting: Rewriting, product: _Product, image: str, made: str
) -> None:
    """Add a pointwise convolution; ONNX Runtime turns its weights once."""
    read, written = product.channels
    turned, weights = (rewriting.name(f"{made}_{what}") for what in ("turned", "weights"))
    rewriting.add("Transpose", [product.weights], turned, name=turned, perm=(1, 0))
    _add_reshape(rewriting, turned, weights, (written, read, 1, 1))
    inputs = [image, weights, *filter(None, [product.bias])]
    name = graph.nodes[product.matmul].name
    rewriting.add("Conv", inputs, made, name=name, kernel_shape=(1, 1))


def _add_reshape(rewriting: Rewriting, x: str, made: str, extents: Sequence[int]) -> None:
    shape = rewriting.integers(extents, f"{made}_extents")
    rewriting.add("Reshape", [x, shape], made, name=rewriting.name(f"{made}_reshaped"))


def _is_grouped(node: onnx.NodeProto) -> bool:
    return op_key(node) == ("", "Conv") and attribute(node, "group", 1) > 1


def _feed_forward(graph: ModelGraph, convolution: int) -> _FeedForward | None:
    """Return the part a convolution in groups belongs to, None if there is none."""
    node = graph.nodes[convolution]
    weights = value_of(graph, node.input[1])
    front, behind = _image_of_tokens(graph, node.input[0]), _tokens_of_image(graph, convolution)
    if weights is None or weights.ndim != _IMAGE or front is None or behind is None:
        return None
    widening = _product_in_front(graph, graph.nodes[front[1]].input[0])
    tokens = graph.nodes[behind[1]].output[0]
    chain, matmul = _chain(graph, tokens)
    narrowing = None if matmul is None else _product(graph, matmul)
    if widening is None or narrowing is None:
        return None
    channels = weights.shape[0]
    is_depthwise = weights.shape[1] == 1 and _tokens_shape(graph, node.input[0])[1] == channels
    narrow = widening.channels[0], narrowing.channels[1]
    if not is_depthwise or any(one % _BLOCK or one > channels for one in (*narrow, channels)):
        return None
    of_products = (widening.matmul, widening.last, narrowing.matmul, narrowing.last)
    nodes = frozenset({*front, convolution, *behind, *chain, *of_products})
    for name in (graph.nodes[at].output[0] for at in nodes - {max(nodes)}):
        if name in graph.output_names or not nodes.issuperset(graph.consumers.get(name, ())):
            return None
    return _FeedForward(
        widening=widening,
        convolution=convolution,
        chain=chain,
        tokens=tokens,
        narrowing=narrowing,
        nodes=nodes,
    )


def _tokens_shape(graph: ModelGraph, name: str) -> Shape:
    """Return the shape of a float32 tensor, () if it may differ from run to run."""
    shape = shape_of(graph, name) or ()
    return () if 0 in shape else shape


def _image_of_tokens(graph: ModelGraph, image: str) -> tuple[int, int] | None:
    """Return the Reshape and the Transpose that make an image of tokens."""
    reshape = maker(graph, image)
    turn = maker(graph, reshape.input[0]) if is_op(reshape, "Reshape") and reshape else None
    if reshape is None or turn is None or not _is_swap(turn):
        return None
    is_image = _is_image_of(graph, image, turn.input[0])
    return (graph.producer[image], graph.producer[reshape.input[0]]) if is_image else None


def _tokens_of_image(graph: ModelGraph, convolution: int) -> tuple[int, int] | None:
    """Return the Reshape and the Transpose that make tokens of an image."""
    image = graph.nodes[convolution].output[0]
    reshape = only_reader(graph, image)
    if reshape is None or not is_op(graph.nodes[reshape], "Reshape"):
        return None
    turn = only_reader(graph, graph.nodes[reshape].output[0])
    if turn is None or not _is_swap(graph.nodes[turn]):
        return None
    tokens = graph.nodes[turn].output[0]
    return (reshape, turn) if _is_image_of(graph, image, tokens) else None


def _is_swap(node: onnx.NodeProto) -> bool:
    return is_op(node, "Transpose") and attribute(node, "perm", ()) == _SWAP


def _is_image_of(graph: ModelGraph, image: str, tokens: str) -> bool:
    """True if two tensors of known shapes have the same channels of as many pixels."""
    whole, rows = _tokens_shape(graph, image), _tokens_shape(graph, tokens)
    if len(whole) != _IMAGE or len(rows) != _TOKENS:
        return False
    return rows == (whole[0], prod(whole[2:]), whole[1])


def _product_in_front(graph: ModelGraph, tokens: str) -> _Product | None:
    """Return the product that makes tokens."""
    summed = maker(graph, tokens)
    sources = summed.input if summed is not None and is_op(summed, "Add") else [tokens]
    found = [graph.producer[name] for name in sources if is_op(maker(graph, name), "MatMul")]
    product = _product(graph, found[0]) if len(found) == 1 else None
    makes = product is not None and graph.nodes[product.last].output[0] == tokens
    return product if makes else None


def _product(graph: ModelGraph, matmul: int) -> _Product | None:
    """Return a product of tokens with a constant matrix, with its bias if it has one."""
    node = graph.nodes[matmul]
    matrix = value_of(graph, node.input[1])
    is_of_tokens = len(_tokens_shape(graph, node.output[0])) == _TOKENS
    if matrix is None or matrix.ndim != 2 or not is_of_tokens:
        return None
    read, written = matrix.shape
    last, bias, reader = matmul, "", only_reader(graph, node.output[0])
    if reader is not None and is_op(graph.nodes[reader], "Add"):
        computed, added = _with_constant(graph, graph.nodes[reader])
        if added is not None and added.shape == (written,):
            last = reader
            bias = next(name for name in graph.nodes[reader].input if name != computed)
    return _Product(
        matmul=matmul, last=last, weights=node.input[1], channels=(read, written), bias=bias
    )


def _chain(graph: ModelGraph, tokens: str) -> tuple[tuple[int, ...], int | None]:
    """Return the element-wise nodes behind tokens, and the MatMul that reads their result.

    Others may read what is between: that is for the caller to find out.
    """
    known, chain, waiting = {tokens}, set[int](), {*graph.consumers.get(tokens, ())}
    products: list[int] = []
    while waiting:
        at = min(waiting)  # behind all that it reads
        waiting.remove(at)
        node = graph.nodes[at]
        others = [name for name in node.input if name and name not in known]
        if is_op(node, "MatMul") and node.input[0] in known and len(others) == 1:
            products.append(at)
        elif _makes_tokens(graph, node, tokens) and all(_is_number(graph, one) for one in others):
            chain.add(at)
            known.add(node.output[0])
            waiting.update(graph.consumers.get(node.output[0], ()))
        else:
            return (), None
    return tuple(sorted(chain)), products[0] if len(products) == 1 else None


def _makes_tokens(graph: ModelGraph, node: onnx.NodeProto, tokens: str) -> bool:
    is_as_large = _tokens_shape(graph, node.output[0]) == _tokens_shape(graph, tokens)
    return is_elementwise(node) and is_as_large


def _is_number(graph: ModelGraph, name: str) -> bool:
    value = value_of(graph, name)
    return value is not None and value.size == 1 and value.ndim <= _TOKENS


TOKENS_RULE = RewriteRule(
    name="tokens-as-images",
    what="MatMul, depthwise Conv and MatMul of tokens become three Convs of images",
    needs="float32, known shapes, constant weights, whole blocks of channels, the widest between",
    tolerance=1e-4,
    find=find_feed_forwards,
    use=RuleUse.ALWAYS,
    op_types=("MatMul", "Transpose"),
)
ALWAYS = (GROUPS_RULE, CHANNELS_RULE, ROOTS_RULE, SIGNS_RULE)
"""Applied to every model, in this order."""
