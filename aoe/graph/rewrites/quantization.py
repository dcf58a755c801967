"""Quantised models in the form ONNX Runtime computes in integers on most CPUs.

Quantisers write activations as int8 by default. ONNX Runtime's integer kernels of x86 take uint8
activations: it joins an operator with the QuantizeLinear and DequantizeLinear around it only where
it can write int8 as uint8 itself, which it does for a value with one reader, and never for models
in quantised operators (QLinearConv and its like). Both types hold the same codes, 128 apart.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod

import numpy as np
import onnx

from aoe.graph.model_graph import ModelGraph, attributes_of, names_read
from aoe.graph.protos import copied
from aoe.graph.rewrites.always import rewritten
from aoe.graph.rewrites.constants import dequantised
from aoe.graph.rewrites.editing import Rewriting
from aoe.graph.rewrites.matching import (
    Array,
    attribute,
    is_op,
    maker,
    nodes_of,
    only_reader,
    value_of,
)
from aoe.graph.rewrites.protocol import Finding, RewriteRule
from aoe.graph.weights import bytes_of
from aoe.operators import op_key
from aoe.operators.quantised import Quantisation, quantisations_of

_OFFSET = 128
"""From the codes of int8 to those of uint8."""
_DOMAINS = ("", "com.microsoft")
_QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"


# ---- Which inputs and results of an operator hold codes of one type ----


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ports:
    """Inputs and results of a node that have to be of one integer type."""

    codes: tuple[int, ...] = ()  # Inputs
    # Inputs that are codes of a number too: zero points, a padding value, bounds of a Clip. With
    # each, the input that has its shape; -1 for a single number.
    points: tuple[tuple[int, int], ...] = ()
    results: tuple[int, ...] = (0,)


_CONV = _Ports(codes=(0,), points=((2, -1), (7, -1)))
_OF_TWO = _Ports(codes=(0, 3), points=((2, -1), (5, -1), (7, -1)))
_OF_ONE = _Ports(codes=(0,), points=((2, -1), (4, -1)))
_INTEGER_OPERATORS: Mapping[str, _Ports] = {
    "QLinearConv": _CONV,
    "QLinearMatMul": _CONV,
    "QGemm": _Ports(codes=(0,), points=((2, -1), (8, -1))),
    "QLinearAdd": _OF_TWO,
    "QLinearMul": _OF_TWO,
    "QLinearSigmoid": _OF_ONE,
    "QLinearLeakyRelu": _OF_ONE,
    "QLinearSoftmax": _OF_ONE,
    "QLinearAveragePool": _OF_ONE,
    "QLinearGlobalAveragePool": _OF_ONE,
    "QLinearReduceMean": _OF_ONE,
    "QLinearWhere": _Ports(codes=(1, 4), points=((3, -1), (6, -1), (8, -1))),
}
"""Operators that compute with codes; QLinearConcat has any number of inputs."""
_MOVEMENTS = (
    *("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Slice", "Gather"),
    *("GatherElements", "GatherND", "Expand", "Tile", "DepthToSpace", "SpaceToDepth", "Compress"),
    *("ReverseSequence", "MaxPool", "NhwcMaxPool", "ReduceMax", "ReduceMin", "Resize", "Upsample"),
)
"""Operators whose result has codes of their first input, unchanged."""
_LAST_READERS = ("ArgMax", "ArgMin", "Shape", "Size")
"""Operators that give the same result for codes of either type."""
_EVEN = ("Add", "Mul", "Concat", "Where")
"""Operators ONNX Runtime computes in integers only where all of their operands have one type."""
_CLIP_SINCE, _PAD_SINCE = 12, 11
"""Opsets with Clip of integers, and with the padding value as an input."""


def _ports(graph: ModelGraph, node: onnx.NodeProto) -> _Ports | None:
    """Return the ports of a node that can be written with uint8, None for any other node."""
    domain, op_type = op_key(node)
    if domain not in _DOMAINS:
        return None
    found = _ports_of_type(graph, node, op_type)
    if found is None or not node.input or not node.input[0]:
        return None
    return found if all(_is_known(graph, node, *point) for point in found.points) else None


def _ports_of_type(graph: ModelGraph, node: onnx.NodeProto, op_type: str) -> _Ports | None:
    if op_type in (_QUANTIZE, _DEQUANTIZE):
        return _edge(graph, node, op_type)
    if op_type == "QLinearConcat":
        inputs = range(2, len(node.input), 3)
        points = ((1, -1), *((at + 2, -1) for at in inputs))
        return _Ports(codes=tuple(inputs), points=points)
    known = _INTEGER_OPERATORS.get(op_type)
    if known is not None:
        return _with_product(graph, node, known)
    if op_type == "Concat":
        return _Ports(codes=tuple(range(len(node.input))))
    if op_type == "Where":
        return _Ports(codes=(1, 2))
    if op_type == "Split":
        return _Ports(codes=(0,), results=tuple(range(len(node.output))))
    if op_type in _LAST_READERS:
        return _Ports(codes=(0,), results=())
    if op_type in ("Relu", "Clip") and graph.opset("") >= _CLIP_SINCE:
        given = tuple((at, -1) for at in (1, 2) if len(node.input) > at and node.input[at])
        return _Ports(codes=(0,), points=given)
    if op_type == "Pad" and graph.opset("") >= _PAD_SINCE:
        pads_with_number = attribute(node, "mode", "constant") == "constant"
        return _Ports(codes=(0,), points=((2, -1),) if pads_with_number else ())
    return _Ports(codes=(0,)) if op_type in _MOVEMENTS and _moves(node) else None


def _edge(graph: ModelGraph, node: onnx.NodeProto, op_type: str) -> _Ports | None:
    """Return the ports of a QuantizeLinear or DequantizeLinear of one scale for each channel."""
    if attribute(node, "block_size", 0) or len(node.input) < 2:
        return None
    if op_type == _DEQUANTIZE:
        return _Ports(codes=(0,), points=((2, 1),), results=())
    # weights that were left in float stand between two nodes as activations do
    return None if node.input[0] in graph.initializers else _Ports(points=((2, 1),))


def _with_product(graph: ModelGraph, node: onnx.NodeProto, ports: _Ports) -> _Ports:
    """Return the ports of an operator on codes; the second operand of a product may be computed."""
    if node.op_type in ("QLinearMatMul", "QGemm") and node.input[3] not in graph.initializers:
        ports = replace(ports, codes=(0, 3), points=((2, -1), (5, -1), ports.points[1]))
    makes_float = node.op_type == "QGemm" and not _input(node, 8)
    return replace(ports, points=ports.points[:-1], results=()) if makes_float else ports


def _moves(node: onnx.NodeProto) -> bool:
    """Return True if an operator of `_MOVEMENTS` makes no values of its own."""
    if node.op_type not in ("Resize", "Upsample"):
        return True
    crops = attribute(node, "coordinate_transformation_mode", "") == "tf_crop_and_resize"
    return attribute(node, "mode", "nearest") == "nearest" and not crops


def _input(node: onnx.NodeProto, at: int) -> str:
    return str(node.input[at]) if len(node.input) > at else ""


def _is_known(graph: ModelGraph, node: onnx.NodeProto, at: int, shaped_as: int) -> bool:
    """Return True if a zero point is a constant, or one that is not given can be written."""
    name = _input(node, at)
    if name:
        return name in graph.initializers
    return shaped_as < 0 or _input(node, shaped_as) in graph.initializers


# ---- Values that have to change their type together ----


@dataclass(slots=True, kw_only=True)
class _Group:
    """Values that operators force to be of one type."""

    values: set[str] = field(default_factory=set)
    nodes: set[int] = field(default_factory=set)  # Indices of the operators
    types: set[int] = field(default_factory=set)  # What is known of the element type


@dataclass(frozen=True, slots=True)
class _Codes:
    """The values of a graph that are codes, as far as their operators can be rewritten."""

    graph: ModelGraph
    ports: Mapping[int, _Ports]  # By index of the node
    groups: tuple[_Group, ...]

    def made_elsewhere(self, name: str) -> bool:
        """Return True if a value is an input of the model, or the result of an unknown operator."""
        at = self.graph.producer.get(name)
        if at is None:
            return name not in self.graph.initializers
        known = self.ports.get(at)
        return known is None or name not in {self.graph.nodes[at].output[n] for n in known.results}

    def read_elsewhere(self, name: str) -> bool:
        """Return True if a value is a result of the model, or an unknown operator reads it."""
        if name in self.graph.output_names:
            return True
        return any(not self._reads_as_code(at, name) for at in self.graph.consumers.get(name, ()))

    def _reads_as_code(self, at: int, name: str) -> bool:
        node, known = self.graph.nodes[at], self.ports.get(at)
        if known is None:
            return False
        as_codes = sum(_input(node, n) == name for n in known.codes)
        return as_codes == names_read(node).count(name)


def _codes_of(graph: ModelGraph) -> _Codes:
    """Return the groups of a graph's values that hold codes."""
    ports = {at: known for at, node in enumerate(graph.nodes) if (known := _ports(graph, node))}
    leader: dict[str, str] = {}

    def find(name: str) -> str:
        while (up := leader.setdefault(name, name)) != name:
            leader[name] = name = leader[up]
        return name

    members = {at: _members(graph.nodes[at], known) for at, known in ports.items()}
    for names in members.values():
        for name in names:
            leader[find(name)] = find(names[0])
    groups = defaultdict[str, _Group](_Group)
    for at, names in members.items():
        if names:
            group = groups[find(names[0])]
            group.values.update(names)
            group.nodes.add(at)
            group.types.update(_types(graph, at, ports[at]))
    return _Codes(graph, ports, tuple(groups.values()))


def _members(node: onnx.NodeProto, known: _Ports) -> list[str]:
    names = [_input(node, at) for at in known.codes]
    names += [node.output[at] for at in known.results if at < len(node.output)]
    return [name for name in names if name]


def _types(graph: ModelGraph, at: int, known: _Ports) -> Iterator[int]:
    """Yield the integer type of each zero point, input and attribute that fixes a node's codes."""
    node = graph.nodes[at]
    constants = [_input(node, one) for one, _ in known.points] + _members(node, known)
    for name in constants:
        if name in graph.initializers:
            yield graph.initializers[name].data_type
    inputs = {value.name: value.type.tensor_type.elem_type for value in graph.proto.graph.input}
    yield from (inputs[name] for name in _members(node, known) if name in inputs)
    if node.op_type == _QUANTIZE and not _input(node, 2):
        yield attribute(node, "output_dtype", 0) or onnx.TensorProto.UINT8


# ---- int8 activations as uint8 ----


def find_int8_activations(graph: ModelGraph) -> Iterator[Finding]:
    """Yield all values of int8 that are quantised in the model, as one match.

    Where other operators need int8, or a caller gives or takes it, a conversion of codes stands
    between, if operators on codes gain by it.
    """
    codes = _codes_of(graph)
    int8 = [one for one in codes.groups if one.types == {onnx.TensorProto.INT8}]
    worth = [group for group in int8 if _is_worth_it(codes, group)]
    if worth:
        nodes = {at for group in worth for at in group.nodes}
        change = _Change(codes, Rewriting(graph, UINT8_RULE.name, nodes, prefix=""))
        for group in worth:
            change.write(group)
        yield change.rewriting.finish()


def _is_worth_it(codes: _Codes, group: _Group) -> bool:
    graph = codes.graph
    if group.values <= graph.initializers.keys():
        return all(_is_even_operand(graph, at) for at in group.nodes)
    kinds = {graph.nodes[at].op_type for at in group.nodes}
    if kinds.intersection(("QLinearConcat", *_INTEGER_OPERATORS)):
        return True
    others = (codes.made_elsewhere(name) or codes.read_elsewhere(name) for name in group.values)
    return _QUANTIZE in kinds and not any(others)


def _is_even_operand(graph: ModelGraph, at: int) -> bool:
    """Return True if a node makes float values of a constant for operators in `_EVEN` alone.

    The weights of a product stay int8, its kernels want them so.
    """
    node = graph.nodes[at]
    if not is_op(node, _DEQUANTIZE) or node.output[0] in graph.output_names:
        return False
    made, readers = node.output[0], graph.consumers.get(node.output[0], ())
    return bool(readers) and all(_wants_even(graph.nodes[reader], made) for reader in readers)


def _wants_even(reader: onnx.NodeProto, name: str) -> bool:
    is_left = _input(reader, 0) == name and name not in list(reader.input)[1:]
    return is_op(reader, *_EVEN) or (is_op(reader, "Gather", "MatMul") and is_left)


class _Change:
    """Writes groups of int8 as uint8.

    Args:
        codes: The values of the graph.
        rewriting: Collects what takes the place of the nodes of all groups.
    """

    def __init__(self, codes: _Codes, rewriting: Rewriting) -> None:
        self.rewriting = rewriting
        self._codes = codes
        self._graph = codes.graph
        self._constants: dict[str, str] = {}

    def write(self, group: _Group) -> None:
        """Write the nodes of a group, and conversions where it meets what stays int8."""
        names, conversions = dict[str, str](), list[tuple[str, bool]]()
        for name in sorted(group.values):
            is_given = self._codes.made_elsewhere(name)
            if name in self._graph.initializers:
                names[name] = self._constant(name)
            elif is_given or self._codes.read_elsewhere(name):
                names[name] = self.rewriting.name(f"{name}_uint8")
                conversions.append((name, is_given))
        for at in sorted(group.nodes):
            self.rewriting.put(self._node(at, names))
        for name, is_given in conversions:
            self._convert(name, names[name], to_uint8=is_given)

    def _constant(self, name: str) -> str:
        """Return the name of a constant's codes as uint8, which are written once."""
        if name not in self._constants:
            value = value_of(self._graph, name)
            assert value is not None
            moved = (value.astype(np.int16) + _OFFSET).astype(np.uint8)
            self._constants[name] = self.rewriting.constant(moved, f"{name}_uint8")
        return self._constants[name]

    def _node(self, at: int, names: Mapping[str, str]) -> onnx.NodeProto:
        known = self._codes.ports[at]
        node: onnx.NodeProto = copied(self._graph.nodes[at])
        for one in known.codes:
            node.input[one] = names.get(node.input[one], node.input[one])
        for one in known.results:
            node.output[one] = names.get(node.output[one], node.output[one])
        for one, shaped_as in known.points:
            given = _input(node, one)
            node.input.extend([""] * (one + 1 - len(node.input)))
            node.input[one] = self._constant(given) if given else self._zero(node, shaped_as)
        for said in node.attribute:
            if said.name == "output_dtype" and node.op_type == _QUANTIZE:
                said.i = onnx.TensorProto.UINT8
        if node.op_type == "Relu":
            node.op_type = "Clip"
            node.input.append(self._zero(node, -1))
        return node

    def _zero(self, node: onnx.NodeProto, shaped_as: int) -> str:
        """Return the zero point of a node that is given none, which stands for 0."""
        scale = value_of(self._graph, _input(node, shaped_as)) if shaped_as >= 0 else None
        value = np.full(() if scale is None else scale.shape, _OFFSET, np.uint8)
        return self.rewriting.constant(value, f"{node.output[0]}_zero")

    def _convert(self, int8: str, uint8: str, *, to_uint8: bool) -> None:
        """Add nodes that make codes of one type from the other; a scale of 1 rounds nothing."""
        rewriting = self.rewriting
        one = rewriting.constant(np.array(1, np.float32), f"{uint8}_scale")
        signed = rewriting.constant(np.array(0, np.int8), f"{uint8}_from")
        unsigned = rewriting.constant(np.array(_OFFSET, np.uint8), f"{uint8}_to")
        value = rewriting.name(f"{uint8}_value")
        if to_uint8:
            rewriting.add(_DEQUANTIZE, [int8, one, signed], value)
            rewriting.add(_QUANTIZE, [value, one, unsigned], uint8)
        else:
            rewriting.add(_DEQUANTIZE, [uint8, one, unsigned], value)
            rewriting.add(_QUANTIZE, [value, one, signed], int8)


UINT8_RULE = RewriteRule(
    name="int8-activations-as-uint8",
    what="int8 activations and their zero points become uint8, 128 more",
    needs="constant zero points, no blocks of scales; weights of products stay int8",
    find=find_int8_activations,
)


# ---- Relu and Clip behind the QuantizeLinear that reads them ----
# Rounding and saturating are monotone: Q(min(max(x, a), b)) is min(max(Q(x), Q(a)), Q(b)). The
# operator in front then stands between quantised values and is computed in integers. Where the
# range of the codes ends at the bounds already, ONNX Runtime leaves the operator out itself.

_SCALAR = 1


def find_clamps(graph: ModelGraph) -> Iterator[Finding]:
    """Yield Relu and Clip of which nothing but a QuantizeLinear of one scale reads the result."""
    if graph.opset("") < _CLIP_SINCE:
        return
    for index, node in nodes_of(graph, "Relu", "Clip"):
        reader, bounds = only_reader(graph, node.output[0]), _bounds(graph, node)
        if reader is None or not is_op(graph.nodes[reader], _QUANTIZE) or bounds is None:
            continue
        rounding = _rounding(graph, graph.nodes[reader])
        if rounding is None:
            continue
        limits = rounding.limits(*bounds)
        source = maker(graph, node.input[0])
        stays = is_op(source, _DEQUANTIZE)
        is_free = only_reader(graph, node.input[0]) == index
        is_even = source is not None and _rounding(graph, source) == rounding
        if limits == (None, None) or not (is_even if stays else is_free):
            continue
        made = graph.nodes[reader].output[0]
        rewriting = Rewriting(graph, CLAMP_RULE.name, [index, reader], prefix=f"{made}_")
        if stays and source is not None:  # its codes are those of the QuantizeLinear
            codes = source.input[0]
        else:
            codes = rewriting.name("unclamped")
            moved = copied(graph.nodes[reader])
            moved.input[0], moved.output[0] = node.input[0], codes
            rewriting.put(moved)
        inputs = [codes]
        for value, what in zip(limits, ("least", "most"), strict=True):
            is_given = value is not None
            inputs.append(
                rewriting.constant(np.array(value, rounding.dtype), what) if is_given else ""
            )
        rewriting.add("Clip", inputs if inputs[-1] else inputs[:-1], made, name=node.name)
        yield rewriting.finish()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rounding:
    """The step, the zero point and the type of a QuantizeLinear or DequantizeLinear."""

    scale: float
    zero: int
    dtype: str  # NumPy's name

    def limits(self, low: float | None, high: float | None) -> tuple[int | None, int | None]:
        """Return bounds of a number as bounds of its code; None where every code keeps one."""
        codes = np.iinfo(self.dtype)
        found = [None if bound is None else self._code_of(bound) for bound in (low, high)]
        lowest, highest = (
            None if code == end else code
            for code, end in zip(found, (codes.min, codes.max), strict=True)
        )
        return lowest, highest

    def _code_of(self, value: float) -> int:
        codes = np.iinfo(self.dtype)
        code = np.rint(np.float32(value) / np.float32(self.scale)) + self.zero
        return int(np.clip(code, codes.min, codes.max))


def _rounding(graph: ModelGraph, node: onnx.NodeProto) -> _Rounding | None:
    """Return the rounding of a node with one float32 scale and an 8-bit type, else None."""
    if not is_op(node, _QUANTIZE, _DEQUANTIZE) or len(node.input) < 3:
        return None
    scale, zero = (value_of(graph, name) for name in node.input[1:3])
    if scale is None or zero is None or scale.size != _SCALAR or zero.size != _SCALAR:
        return None
    if scale.dtype != np.float32 or zero.dtype.name not in ("int8", "uint8"):
        return None
    step = float(scale.reshape(-1)[0])
    if not (np.isfinite(step) and step > 0):
        return None
    return _Rounding(scale=step, zero=int(zero.reshape(-1)[0]), dtype=zero.dtype.name)


def _bounds(graph: ModelGraph, node: onnx.NodeProto) -> tuple[float | None, float | None] | None:
    """Return the bounds of a Relu or Clip, each None if it has none; None if one is computed."""
    if is_op(node, "Relu"):
        return 0.0, None
    found: list[float | None] = []
    for at in (1, 2):
        value = value_of(graph, name) if (name := _input(node, at)) else None
        if name and (value is None or value.size != _SCALAR or value.dtype != np.float32):
            return None
        found.append(None if value is None else float(value.reshape(-1)[0]))
    low, high = found
    is_empty = low is not None and high is not None and not low <= high
    return None if is_empty else (low, high)


CLAMP_RULE = RewriteRule(
    name="clamp-of-codes",
    what="Relu or Clip in front of a QuantizeLinear becomes a Clip of its codes",
    needs="float32, one scale, constant bounds; nobody else reads what lies between; no NaN",
    find=find_clamps,
    op_types=(_QUANTIZE,),
)


# ---- Biases in the scale of the products they are added to ----
# Integer kernels add a bias to sums of products, so it has to be in their scale. With any other
# scale, ONNX Runtime computes a Conv in float32; a Gemm it joins all the same, and adds the codes
# of the bias as if they were in that scale (findings/onnxruntime_gemm_bias_in_integers.sh).

_BIAS = 2
_SAME_SCALE = 1e-6
"""Relative difference of scales up to which they are one scale: a product rounded to float32."""


def find_biases(graph: ModelGraph) -> Iterator[Finding]:
    """Yield Conv and Gemm on codes whose bias is int32 in another scale than that of products.

    The bias is rounded anew, by at most half of that scale.
    """
    for index, node in nodes_of(graph, "Conv", "Gemm"):
        bias = _bias_in_scale(graph, node)
        if bias is None:
            continue
        codes, scale = bias
        rewriting = Rewriting(graph, BIAS_RULE.name, [index], prefix=f"{node.output[0]}_bias_")
        made = copied(node)
        inputs = [rewriting.constant(codes, "codes"), rewriting.constant(scale, "scale")]
        made.input[_BIAS] = rewriting.add(_DEQUANTIZE, inputs, axis=0 if scale.ndim else None)
        rewriting.put(made)
        yield rewriting.finish()


def _bias_in_scale(graph: ModelGraph, node: onnx.NodeProto) -> tuple[Array, Array] | None:
    """Return int32 codes of a bias and the scale of products, None where they are as they are."""
    if any(attribute(node, name, 1.0) != 1.0 for name in ("alpha", "beta")):
        return None  # never joined
    found = [maker(graph, name) for name in node.input]
    makers = [one for one in found if one is not None and is_op(one, _DEQUANTIZE)]
    scales = [value_of(graph, one.input[1]) for one in makers]
    known = [one for one in scales if one is not None and one.dtype == np.float32]
    if len(known) <= _BIAS:
        return None
    (x_scale, w_scale, b_scale), (code_name, _, *zero_name) = known, makers[_BIAS].input
    codes, zero = value_of(graph, code_name), value_of(graph, "".join(zero_name))
    if codes is None or codes.dtype != np.int32 or codes.ndim != 1 or x_scale.size != 1:
        return None
    scale = (x_scale.reshape(()) * w_scale).reshape(-1 if w_scale.size > 1 else ())
    is_usable = np.isfinite(scale).all() and (scale > 0).all() and np.isfinite(b_scale).all()
    if not is_usable or any(one.size not in (1, codes.size) for one in (scale, b_scale)):
        return None
    if zero is not None and zero.any():
        return None
    if np.allclose(b_scale.reshape(-1), scale.reshape(-1), rtol=_SAME_SCALE, atol=0):
        return None
    wanted = np.rint(codes * b_scale.astype(np.float64).reshape(-1) / scale)
    limits = np.iinfo(np.int32)
    if (wanted < limits.min).any() or (wanted > limits.max).any():
        return None
    return wanted.astype(np.int32), scale


BIAS_RULE = RewriteRule(
    name="bias-in-scale-of-products",
    what="the int32 bias of a Conv or Gemm on codes is written in the scale of their products",
    needs="constant float32 scales, one of the input; a bias in another scale that fits in int32",
    find=find_biases,
    op_types=(_DEQUANTIZE,),
)


# ---- Constants that are dequantised in every run ----

_FOLDED_TYPES = ("int8", "uint8", "int32")
_FLOAT_BYTES = 4


def find_dequantized(graph: ModelGraph, names: Iterable[str] | None = None) -> Iterator[Finding]:
    """Yield DequantizeLinear of constants, with the float32 values in their place.

    Args:
        graph: The model.
        names: Constants that are meant; None for all.
    """
    wanted = graph.initializers.keys() if names is None else set(names)
    for index, node in nodes_of(graph, _DEQUANTIZE):
        if node.input[0] in wanted and node.output[0] not in graph.output_names:
            value = _dequantized(graph, node)
            if value is not None:
                rewriting = Rewriting(graph, FOLD_RULE.name, [index])
                rewriting.replace_by_constant(node.output[0], value)
                yield rewriting.finish()


def _dequantized(graph: ModelGraph, node: onnx.NodeProto) -> Array | None:
    inputs = [value_of(graph, name) for name in node.input if name]
    known = [one for one in inputs if one is not None]
    if len(known) < len(inputs) or attribute(node, "block_size", 0):
        return None
    if known[0].dtype.name not in _FOLDED_TYPES or known[1].dtype != np.float32:
        return None
    return dequantised(known, attributes_of(node))


FOLD_RULE = RewriteRule(
    name="dequantized-constants-folded",
    what="DequantizeLinear of a constant becomes its float32 values",
    needs="8 or 32 bits, float32 scales, no blocks",
    find=find_dequantized,
    op_types=(_DEQUANTIZE,),
)


# ---- All of them ----


def with_uint8_activations(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with the same results whose activations are uint8, where they were int8.

    The model itself if it has none.
    """
    if Quantisation.STATIC not in quantisations_of(node.op_type for node in proto.graph.node):
        return proto
    return rewritten(proto, CLAMP_RULE, UINT8_RULE, tidy=True)


def with_biases_in_scale(
    proto: onnx.ModelProto,
) -> tuple[onnx.ModelProto, list[onnx.NodeProto]]:
    """Return a model with biases in the scale of the products they are added to, and their readers.

    The model itself if all of them are.
    """
    made = rewritten(proto, BIAS_RULE, tidy=True)
    if made is proto:
        return proto, []
    before = {node.output[0]: list(node.input) for node in proto.graph.node}
    readers = [node for node in made.graph.node if is_op(node, "Conv", "Gemm")]
    return made, [one for one in readers if before[one.output[0]] != list(one.input)]


def with_folded_constants(
    proto: onnx.ModelProto, optimized: onnx.ModelProto, growth: float = math.inf
) -> onnx.ModelProto:
    """Return a model without the constants that its optimised form dequantises in every run.

    Args:
        proto: The model.
        optimized: The same, as ONNX Runtime optimises it.
        growth: Most bytes of their float values over those of all constants; the smallest ones come
            first.
    """
    constants = {tensor.name: tensor for tensor in optimized.graph.initializer}
    dequantized = [node for node in optimized.graph.node if is_op(node, _DEQUANTIZE)]
    others = [node for node in optimized.graph.node if not is_op(node, _DEQUANTIZE)]
    in_integers = {name for node in others for name in names_read(node)}
    wanted = {node.input[0] for node in dequantized} & constants.keys() - in_integers
    left, left_bytes = set[str](), growth * sum(map(bytes_of, constants.values()))
    for name in sorted(wanted, key=lambda name: (prod(constants[name].dims), name)):
        left_bytes -= _FLOAT_BYTES * prod(constants[name].dims)
        if left_bytes >= 0:
            left.add(name)
    fold = replace(FOLD_RULE, find=partial(find_dequantized, names=left))
    return rewritten(proto, fold, tidy=True) if left else proto
