"""Convolutions of constant weights: with their neighbours taken in, or by other operators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import onnx

from aoe.graph.model_graph import ModelGraph, attributes_of
from aoe.graph.rewrites.editing import Rewriting, refuse
from aoe.graph.rewrites.matching import (
    Array,
    Shape,
    attribute,
    is_op,
    maker,
    nodes_of,
    only_reader,
    shape_of,
    unfit_window,
    value_of,
)
from aoe.graph.rewrites.protocol import Finding, RewriteRule

# ---- Convolutions whose weights are known, and may be made others ----


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownConv:
    """A Conv with constant weights."""

    node: onnx.NodeProto  # The node
    weight: Array  # (output channels, input channels / groups, *window) float32
    bias: Array | None  # (output channels) float32, None if it has none
    groups: int  # Number of groups

    def bias_or_zero(self) -> Array:
        """Return the bias, zeros if there is none."""
        return np.zeros(self.weight.shape[0], np.float32) if self.bias is None else self.bias

    def add_to(
        self,
        rewriting: Rewriting,
        source: str,
        weight: Array,
        bias: Array | None,
        output: str = "",
        *,
        name: str = "",
    ) -> str:
        """Add a Conv with the same attributes and other weights; `name` is that of the node."""
        inputs = [source, rewriting.constant(weight.astype(np.float32), "weight")]
        if bias is not None:
            inputs.append(rewriting.constant(bias.astype(np.float32), "bias"))
        return rewriting.copy(self.node, inputs, output, name=name)


def known_conv(graph: ModelGraph, node: onnx.NodeProto | None) -> KnownConv | str:
    """Return a Conv with its weights, or why they are not known."""
    if node is None or not is_op(node, "Conv"):
        return "no Conv stands there"
    weight = value_of(graph, node.input[1])
    has_bias = len(node.input) > 2 and bool(node.input[2])
    bias = value_of(graph, node.input[2]) if has_bias else None
    if weight is None or (has_bias and bias is None):
        return f"the weights of {node.name} are not constant"
    if weight.dtype != np.float32:
        return f"the weights of {node.name} are {weight.dtype}"
    return KnownConv(node=node, weight=weight, bias=bias, groups=attribute(node, "group", 1))


# ---- Batch normalisation taken into the weights of the convolutions around it ----
# ONNX Runtime does so where a BatchNormalization stands right behind a Conv. Here it goes on into
# the convolution behind it, and back through sums, joins and means to those in front.

_INTO_NEXT = "batch-norm-into-next"
_INTO_MAKERS = "batch-norm-into-makers"
_TRANSPARENT = ("Add", "Concat", "AveragePool", "GlobalAveragePool", "Identity", "Dropout")


def find_before(graph: ModelGraph) -> Iterator[Finding]:
    """Yield batch normalisations in front of a Conv that does not pad."""
    for index, node in nodes_of(graph, "BatchNormalization"):
        if is_op(maker(graph, node.input[0]), "Conv") and only_reader(graph, node.input[0]):
            continue  # ONNX Runtime takes it into that one
        reader = only_reader(graph, node.output[0])
        conv = None if reader is None else known_conv(graph, graph.nodes[reader])
        if reader is None or conv is None or isinstance(conv, str):
            continue
        factors = _factors(graph, node)
        auto_pad = attribute(conv.node, "auto_pad", "NOTSET")
        if isinstance(factors, str):
            yield refuse(graph, _INTO_NEXT, [index, reader], factors)
        elif auto_pad not in ("NOTSET", "VALID") or any(attribute(conv.node, "pads", ())):
            why = f"{conv.node.name} pads with zeros that are not normalised"
            yield refuse(graph, _INTO_NEXT, [index, reader], why)
        else:
            rewriting = Rewriting(graph, _INTO_NEXT, [index, reader])
            _take_in(rewriting, node.input[0], conv, *factors)
            yield rewriting.finish()


def _take_in(
    rewriting: Rewriting, source: str, conv: KnownConv, scale: Array, shift: Array
) -> None:
    """Add the Conv that scales and shifts its input channels itself."""
    outputs, width = conv.weight.shape[:2]
    first = np.repeat(np.arange(conv.groups) * width, outputs // conv.groups)
    channels = first[:, None] + np.arange(width)[None, :]  # (outputs, width): what each one reads
    spatial = (1,) * (conv.weight.ndim - 2)
    weight = conv.weight.astype(np.float64)
    summed = weight.sum(axis=tuple(range(2, weight.ndim)))
    bias = conv.bias_or_zero() + (summed * shift[channels]).sum(axis=1)
    scaled = weight * scale[channels].reshape(outputs, width, *spatial)
    conv.add_to(rewriting, source, scaled, bias, conv.node.output[0])


def find_behind(graph: ModelGraph) -> Iterator[Finding]:
    """Yield batch normalisations behind sums, joins and means of convolutions."""
    for index, node in nodes_of(graph, "BatchNormalization"):
        if not is_op(maker(graph, node.input[0]), *_TRANSPARENT):
            continue
        factors = _factors(graph, node)
        if isinstance(factors, str):
            yield refuse(graph, _INTO_MAKERS, [index], factors)
            continue
        walk = _Walk(graph=graph, nodes=[index])
        why = walk.up(node.input[0])
        if why:
            yield refuse(graph, _INTO_MAKERS, walk.nodes, why)
            continue
        rewriting = Rewriting(graph, _INTO_MAKERS, walk.nodes)
        made = _Pushing(graph, rewriting).push(node.input[0], *factors)
        rewriting.rename(made, node.output[0])
        yield rewriting.finish()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Walk:
    """Nodes between a batch normalisation and the convolutions that feed it."""

    graph: ModelGraph
    nodes: list[int]

    def up(self, name: str) -> str:
        """Walk to the convolutions; return why that ends elsewhere, empty if it does not."""
        index, node = self.graph.producer.get(name), maker(self.graph, name)
        if index is None or node is None:
            return f"{name} is made by no node"
        if only_reader(self.graph, name) is None:
            return f"{name} is read by others too"
        self.nodes.append(index)
        if is_op(node, "Conv"):
            conv = known_conv(self.graph, node)
            return conv if isinstance(conv, str) else ""
        if not is_op(node, *_TRANSPARENT) or len(node.output) > 1:
            return f"{node.op_type} {node.name} does not let a scale through"
        if is_op(node, "Concat") and attribute(node, "axis", 0) not in (1, -3):
            return f"{node.name} joins no channels"
        if is_op(node, "AveragePool") and attribute(node, "count_include_pad", 0):
            return f"{node.name} counts zeros that are not normalised"
        shapes = {shape_of(self.graph, read) for read in node.input}
        if is_op(node, "Add") and (len(shapes) != 1 or node.input[0] == node.input[1]):
            return f"{node.name} broadcasts"
        if None in shapes or any(len(shape) != 4 for shape in shapes if shape):
            return f"{node.name} reads what has no known shape"
        reads = node.input if is_op(node, "Add", "Concat") else node.input[:1]
        return next(filter(None, map(self.up, reads)), "")


class _Pushing:
    """Writes the nodes of a walk again, scaled and shifted."""

    def __init__(self, graph: ModelGraph, rewriting: Rewriting) -> None:
        self._graph = graph
        self._rewriting = rewriting

    def push(self, name: str, scale: Array, shift: Array) -> str:
        """Add what makes `scale * name + shift` and return its name."""
        node = maker(self._graph, name)
        assert node is not None
        conv = known_conv(self._graph, node)
        if isinstance(conv, KnownConv):
            weight = conv.weight * scale.reshape(-1, *(1,) * (conv.weight.ndim - 1))
            bias = conv.bias_or_zero() * scale + shift
            return conv.add_to(self._rewriting, node.input[0], weight, bias)
        if is_op(node, "Add"):
            parts = [
                self.push(node.input[0], scale, shift),
                self.push(node.input[1], scale, np.zeros_like(shift)),
            ]
        elif is_op(node, "Concat"):
            shapes = [shape_of(self._graph, read) for read in node.input]
            ends = np.cumsum([shape[1] for shape in shapes if shape is not None])[:-1]
            slices = zip(node.input, np.split(scale, ends), np.split(shift, ends), strict=True)
            parts = [self.push(*part) for part in slices]
        else:
            parts = [self.push(node.input[0], scale, shift)]
        return self._rewriting.copy(node, parts)


def _factors(graph: ModelGraph, node: onnx.NodeProto) -> tuple[Array, Array] | str:
    """Return scale and shift per channel, float64, or why they are not known."""
    values = [value_of(graph, name) for name in node.input[1:]]
    known = [value.astype(np.float64) for value in values if value is not None]
    if len(known) < 4 or len(node.output) > 1 or attribute(node, "training_mode", 0):
        return "its parameters are not constant"
    scale, bias, mean, variance = known
    factor = scale / np.sqrt(variance + attribute(node, "epsilon", 1e-5))
    if not (np.isfinite(factor).all() and np.isfinite(bias - mean * factor).all()):
        return "its parameters are not finite"
    return factor, bias - mean * factor


BEFORE_RULE = RewriteRule(
    name=_INTO_NEXT,
    what="BatchNormalization in front of a Conv goes into that Conv's weights",
    needs="constant parameters, a Conv without padding as the only reader, no Conv in front",
    tolerance=1e-4,
    find=find_before,
)
BEHIND_RULE = RewriteRule(
    name=_INTO_MAKERS,
    what="BatchNormalization behind sums, joins and means of Convs goes into their weights",
    needs="constant parameters; every value in between is read once",
    tolerance=1e-4,
    find=find_behind,
)


# ---- A gate per channel in front of a pointwise convolution: it scales the weights instead ----
# Squeeze-and-excite multiplies a whole tensor by one number per channel, which ONNX Runtime does
# outside the blocked layout. With one image the weights can be multiplied, which are fewer.

_GATE = "gate-into-weights"


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
        return refuse(graph, _GATE, nodes, f"{conv.node.name}: {why}")
    data, gate = reads
    outputs, channels = conv.weight.shape[:2]
    rewriting = Rewriting(graph, _GATE, nodes)
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
    name=_GATE,
    what="Mul by one number per channel and a pointwise Conv become a product of scaled weights",
    needs="one image, constant weights, one group, no stride; the Conv alone reads the product",
    tolerance=1e-4,
    find=find_gates,
)


# ---- Transposed convolutions whose windows do not overlap: pointwise, and a pixel shuffle ----

_TRANSPOSED = "transposed-to-pixel-shuffle"
_COLUMNS_SINCE = 11
"""Opset in which DepthToSpace has the order of channels of a weight."""


def find_pixel_shuffles(graph: ModelGraph) -> Iterator[Finding]:
    """Yield ConvTransposes whose stride is their kernel."""
    for index, node in nodes_of(graph, "ConvTranspose"):
        weight = value_of(graph, node.input[1])
        has_bias = len(node.input) > 2 and bool(node.input[2])
        bias = value_of(graph, node.input[2]) if has_bias else None
        if weight is None or (has_bias and bias is None):
            yield refuse(graph, _TRANSPOSED, [index], "the weights are not constant")
            continue
        why = _overlaps(node, weight)
        if not why and graph.opset("") < _COLUMNS_SINCE:
            why = f"opset {graph.opset('')} has no DepthToSpace by columns, {_COLUMNS_SINCE} does"
        if why:
            yield refuse(graph, _TRANSPOSED, [index], why)
        else:
            yield _as_pixels(graph, index, weight, bias)


def _overlaps(node: onnx.NodeProto, weight: Array) -> str:
    given = attributes_of(node)
    window = weight.shape[2:]
    if len(window) != 2 or window[0] != window[1] or window[0] < 2:
        return f"its kernel is {window}"
    if given.get("strides", (1, 1)) != window:
        return f"its windows overlap: strides are {given.get('strides', (1, 1))}"
    if given.get("group", 1) != 1:
        return f"it has {given['group']} groups"
    if given.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return f"it pads as {given['auto_pad']}"
    for name in ("pads", "output_padding", "output_shape"):
        if any(given.get(name, ())):
            return f"its {name} are {given[name]}"
    return "" if all(step == 1 for step in given.get("dilations", ())) else "it is dilated"


def _as_pixels(graph: ModelGraph, index: int, weight: Array, bias: Array | None) -> Finding:
    node = graph.nodes[index]
    channels, outputs, size = weight.shape[:3]
    rewriting = Rewriting(graph, _TRANSPOSED, [index])
    rows = weight.transpose(1, 2, 3, 0).reshape(outputs * size * size, channels, 1, 1)
    inputs = [node.input[0], rewriting.constant(rows, "weight")]
    if bias is not None:
        inputs.append(rewriting.constant(np.repeat(bias, size * size), "bias"))
    made = rewriting.add("Conv", inputs, kernel_shape=[1, 1])
    rewriting.add("DepthToSpace", [made], node.output[0], blocksize=size, mode="CRD")
    return rewriting.finish()


TRANSPOSED_RULE = RewriteRule(
    name=_TRANSPOSED,
    what="ConvTranspose whose stride is its kernel becomes a pointwise Conv and DepthToSpace",
    needs="constant weights, one group, a square kernel, no padding, opset 11",
    tolerance=1e-4,
    find=find_pixel_shuffles,
)


# ---- Parallel branches that are linear in one tensor: one convolution ----
# Networks are trained with a sum of convolutions, of a normalised copy and of the tensor itself
# (RepVGG, MobileOne, FastViT). Each summand is a convolution with the window of the largest one, so
# their weights are summed up. The sum reads no value that the largest one does not read: what is
# infinite or NaN stays one of both, and which one depends on the order of a sum.

_MERGED = "parallel-branches-merged"
_SUMS, _SCALED = ("Add", "Sub", "Sum"), ("Mul", "Div", "BatchNormalization")
_MOST_SOURCES = 4
"""Tensors that are tried as the one all branches read; the nearest come first."""
_MOST_LINEAR = 64
"""Nodes of one sum: a block of MobileOne has six branches with their normalisations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Branch:
    """A summand: a convolution of the tensor, or the tensor itself, times a factor a channel."""

    conv: KnownConv | None  # None for the tensor itself
    scale: Array  # Factor of each output channel, or one for all; float64


@dataclass(frozen=True, slots=True, kw_only=True)
class _LinearSum:
    """Branches of one tensor and a summand for each channel."""

    branches: tuple[_Branch, ...]
    shift: Array  # Summand of each output channel, or one for all; float64
    nodes: frozenset[int] = frozenset()  # Nodes that compute the sum

    def scaled(self, factor: Array) -> _LinearSum:
        """Return the sum times a factor for each channel."""
        branches = tuple(replace(one, scale=one.scale * factor) for one in self.branches)
        return replace(self, branches=branches, shift=self.shift * factor)

    def plus(self, other: _LinearSum) -> _LinearSum:
        """Return the sum of both."""
        return _LinearSum(
            branches=(*self.branches, *other.branches),
            shift=self.shift + other.shift,
            nodes=self.nodes | other.nodes,
        )


def find_parallel(graph: ModelGraph) -> Iterator[Finding]:
    """Yield sums of two or more branches of one tensor of which one is a Conv."""
    taken: set[int] = set()
    for index in reversed(range(len(graph.nodes))):  # the largest sums first
        node = graph.nodes[index]
        if index in taken or not is_op(node, *_SUMS, *_SCALED):
            continue
        for source, rank in _sources(graph, index).items():
            found = _LinearReader(graph, source, rank).sum_of(node.output[0])
            convs = [] if found is None else [one.conv for one in found.branches if one.conv]
            if found is None or not convs or len(found.branches) < 2:
                continue
            if _is_read_inside(graph, found.nodes):  # else a smaller sum may be
                taken |= found.nodes
                yield _merged(graph, source, found, convs)
                break


def _is_read_inside(graph: ModelGraph, nodes: frozenset[int]) -> bool:
    """Return True if nobody else reads what nodes make, but for the last of them."""
    inner = [graph.nodes[at].output[0] for at in nodes - {max(nodes)}]
    return not any(
        name in graph.output_names or not nodes.issuperset(graph.consumers.get(name, ()))
        for name in inner
    )


def _sources(graph: ModelGraph, index: int) -> dict[str, int]:
    """Return the tensors that the nearest convolutions below a sum read, and their ranks."""
    found: dict[str, int] = {}
    waiting, seen = [index], {index}
    while waiting and len(found) < _MOST_SOURCES and len(seen) < _MOST_LINEAR:
        for name in graph.nodes[waiting.pop(0)].input:
            at, node = graph.producer.get(name), maker(graph, name)
            if at is None or node is None or at in seen:
                continue
            seen.add(at)
            if is_op(node, "Conv") and node.input[1] in graph.initializers:
                found.setdefault(node.input[0], len(graph.initializers[node.input[1]].dims))
            elif is_op(node, *_SUMS, *_SCALED):
                waiting.append(at)
    return found


class _LinearReader:
    """Reads tensors as sums of branches of one tensor.

    Args:
        graph: The model.
        source: Name of the tensor.
        rank: Number of its axes.
    """

    def __init__(self, graph: ModelGraph, source: str, rank: int) -> None:
        self._graph = graph
        self._source = source
        self._rank = rank

    def sum_of(self, name: str) -> _LinearSum | None:
        """Return the sum that makes a tensor, None if that is anything else."""
        if name == self._source:
            return _LinearSum(branches=(_Branch(conv=None, scale=np.ones(1)),), shift=np.zeros(1))
        index, node = self._graph.producer.get(name), maker(self._graph, name)
        if index is None or node is None:
            return None
        if is_op(node, "Conv"):
            found = self._of_conv(node)
        elif is_op(node, "BatchNormalization"):
            factors, inner = _factors(self._graph, node), self.sum_of(node.input[0])
            found = None
            if inner is not None and not isinstance(factors, str):
                found = inner.scaled(factors[0])
                found = replace(found, shift=found.shift + factors[1])
        elif is_op(node, *_SUMS):
            found = self._of_terms(node)
        else:
            found = self._of_product(node) if is_op(node, *_SCALED) else None
        return None if found is None else replace(found, nodes=found.nodes | {index})

    def _of_conv(self, node: onnx.NodeProto) -> _LinearSum | None:
        conv = known_conv(self._graph, node) if node.input[0] == self._source else ""
        if isinstance(conv, str):
            return None
        shift = conv.bias_or_zero().astype(np.float64)
        return _LinearSum(branches=(_Branch(conv=conv, scale=np.ones(1)),), shift=shift)

    def _of_terms(self, node: onnx.NodeProto) -> _LinearSum | None:
        """Return the sum of computed tensors and of constants."""
        total = _LinearSum(branches=(), shift=np.zeros(1))
        for at, name in enumerate(node.input):
            constant = self._constant(name)
            if constant is None:
                term = self.sum_of(name)
            else:
                term = _LinearSum(branches=(), shift=constant)
            if term is None:
                return None
            is_negative = at == 1 and is_op(node, "Sub")
            total = total.plus(term.scaled(np.full(1, -1.0)) if is_negative else term)
        return total

    def _of_product(self, node: onnx.NodeProto) -> _LinearSum | None:
        """Return the product of a computed tensor and a constant."""
        left, right = node.input
        factor, computed = self._constant(right), left
        if factor is None and is_op(node, "Mul"):
            factor, computed = self._constant(left), right
        inner = None if factor is None else self.sum_of(computed)
        if factor is None or inner is None:
            return None
        return inner.scaled(1 / factor if is_op(node, "Div") else factor)

    def _constant(self, name: str) -> Array | None:
        """Return a constant that is one number, or one for each channel, else None."""
        value = value_of(self._graph, name)
        if value is None or value.dtype != np.float32 or value.ndim > self._rank:
            return None
        axis = value.ndim - self._rank + 1
        if value.size != 1 and (axis < 0 or value.shape[axis] != value.size):
            return None
        return value.reshape(-1).astype(np.float64)


def _merged(graph: ModelGraph, source: str, found: _LinearSum, convs: list[KnownConv]) -> Finding:
    whole = max(convs, key=lambda conv: prod(conv.weight.shape[2:]))
    window = _window(whole)
    weight = np.zeros(whole.weight.shape, np.float64)
    outputs = len(weight)
    for branch in found.branches:
        why = window if isinstance(window, str) else _add_branch(weight, whole, window, branch)
        if why:
            return refuse(graph, _MERGED, found.nodes, f"{whole.node.name}: {why}")
    bias = np.broadcast_to(found.shift, (outputs,))
    with np.errstate(over="ignore"):
        if not (np.isfinite(np.float32(weight)).all() and np.isfinite(np.float32(bias)).all()):
            return refuse(graph, _MERGED, found.nodes, "the summed weights are not finite")
    rewriting = Rewriting(graph, _MERGED, found.nodes)
    output = graph.nodes[max(found.nodes)].output[0]
    # users list operators by name, for --modify_mixlist and in reports
    name, shift = whole.node.name, bias if bias.any() else None
    whole.add_to(rewriting, source, weight, shift, output, name=name)
    return rewriting.finish()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """Which values of an image a convolution reads, by axis."""

    offsets: tuple[Shape, ...]  # Of each tap, from the result's own place times the stride
    strides: Shape
    lost: Shape  # Places behind the last result, and in front of the first, that have none


def _window(conv: KnownConv) -> _Window | str:
    """Return the window of a convolution, or why it is not known."""
    axes, given = conv.weight.ndim - 2, attributes_of(conv.node)
    if given.get("auto_pad", "NOTSET") not in ("NOTSET", ""):
        return f"{conv.node.name} pads as {given['auto_pad']}"
    pads = given.get("pads", (0,) * (2 * axes))
    steps = given.get("dilations", (1,) * axes)
    extents = conv.weight.shape[2:]
    before, behind = pads[:axes], pads[axes:]
    taps = zip(extents, steps, before, strict=True)
    ends = zip(extents, steps, before, behind, strict=True)
    return _Window(
        offsets=tuple(tuple(i * step - pad for i in range(extent)) for extent, step, pad in taps),
        strides=tuple(given.get("strides", (1,) * axes)),
        lost=tuple((extent - 1) * step - pad - end for extent, step, pad, end in ends),
    )


def _add_branch(weight: Array, whole: KnownConv, window: _Window, branch: _Branch) -> str:
    """Add the weights of a branch in place; return why that is impossible, empty if it is done."""
    conv, (outputs, inputs, *_) = branch.conv, weight.shape
    scale = np.broadcast_to(branch.scale, (outputs,)).reshape(-1, *(1,) * (weight.ndim - 1))
    if conv is None:
        if outputs != inputs * whole.groups:
            return f"it makes {outputs} channels of {inputs * whole.groups}, the tensor keeps them"
        own = np.zeros((outputs, inputs, *(1,) * (weight.ndim - 2)))
        own[np.arange(outputs), np.arange(outputs) % inputs] = 1
        axes = weight.ndim - 2
        read: _Window | str = _Window(offsets=((0,),) * axes, strides=(1,) * axes, lost=(0,) * axes)
    else:
        own, read = conv.weight, _window(conv)
        if conv.groups != whole.groups or own.shape[:2] != weight.shape[:2]:
            return f"{conv.node.name} has other groups or channels"
    if isinstance(read, str):
        return read
    if (read.strides, read.lost) != (window.strides, window.lost):
        return "a branch has results at other places"
    taps = []
    for offsets, known in zip(read.offsets, window.offsets, strict=True):
        if not set(offsets) <= set(known):
            return "a branch reads what it does not"
        taps.append([known.index(offset) for offset in offsets])
    weight[np.ix_(range(outputs), range(inputs), *taps)] += own * scale
    return ""


PARALLEL_RULE = RewriteRule(
    name=_MERGED,
    what="A sum of Convs of one tensor, of the tensor itself and of its normalised copy becomes one"
    " Conv",
    needs="constant weights, the same groups and strides; one window holds all others; finite"
    " inputs (where an infinity is read, results may be NaN for infinite, or infinite for NaN)",
    tolerance=1e-5,
    find=find_parallel,
    op_types=("Conv",),
)
