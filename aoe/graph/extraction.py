"""From nodes of a model to the workload they compute."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from aoe.graph.model_graph import ModelGraph, attributes_of
from aoe.graph.weights import array_of
from aoe.kernels.halide.iteration import MAX_AXES
from aoe.operators import (
    BLOCKED_CONVOLUTION,
    INDEX_DTYPES,
    KERNEL_DTYPES,
    MOVED_DTYPES,
    OPERATORS,
    RESULT_NUMBER,
    STORED_DTYPES,
    OperatorKey,
    OperatorKind,
    Shape,
    op_key,
)
from aoe.operators.element_types import BIAS, BOOLEAN, LEVELS
from aoe.operators.facts import QuantisedInputs
from aoe.operators.gathering import GATHER, LOOK_UP
from aoe.operators.movement import RESHAPE, RESHAPING, SPLIT, interpolates
from aoe.operators.products import PLAIN_CONVOLUTIONS, TRANSPOSED_CONVOLUTION
from aoe.operators.quantised import (
    INTEGER_CONVOLUTION,
    MEASURED_LEVELS,
    MEASURED_SCALE,
    QUANTISED_CONVOLUTIONS,
)
from aoe.operators.windows import same_padding
from aoe.workload import NCHWC_DOMAIN, AttributeValue, Layout, Operation, TensorSpec, Workload

# ---- How nodes are written: constant inputs as attributes, few words for one thing ----
# A convolution says how many zeros are around its image, never by which rule they are to be found.

_FOLDED_MAX = 64
"""Elements up to which a constant may be an attribute."""
_QUANTISED_WEIGHTS = 3
"""Position of the weights of a quantised convolution."""
_UNIFORM_MAX = 1 << 20
"""The same for constants whose elements are all equal, zero points of channels."""
_PADDED = (
    PLAIN_CONVOLUTIONS | QUANTISED_CONVOLUTIONS | {BLOCKED_CONVOLUTION, INTEGER_CONVOLUTION}
) - {TRANSPOSED_CONVOLUTION}
"""Operators whose zeros around what they read depend on its extents alone."""

_PRELU = ("", "PRelu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """A node as an operation, for one of its results."""

    key: OperatorKey  # Operator
    # Names of the tensors it reads; empty where an input is omitted, or folded.
    inputs: tuple[str, ...]
    attributes: Mapping[str, AttributeValue]  # Those of the node, and its constant inputs


def fold(graph: ModelGraph, node: onnx.NodeProto, output: str) -> Folded | str:
    """Return the nodes folded into `output`, or the reason why a workload cannot hold them.

    What only changes the shape is a Reshape, a part of a Split is a Slice: equal computations
    are equal workloads, whatever the model calls them. Of several results, an attribute says which.
    """
    key = op_key(node)
    if key in RESHAPING:
        info = graph.find_info(output)
        if info is None:
            return f"the shape of {output} may differ from run to run"
        return Folded(key=RESHAPE, inputs=(node.input[0],), attributes={"shape": info.shape})
    if key == SPLIT:
        return _slice_of_split(graph, node, output)
    inputs, attributes = list(node.input), dict(attributes_of(node))
    facts = OPERATORS.get(key)
    for constant in facts.constants if facts else ():
        if constant.position >= len(inputs) or not inputs[constant.position]:
            continue
        name = inputs[constant.position]
        value = _constant(graph, name, _UNIFORM_MAX if constant.is_uniform else _FOLDED_MAX)
        if value is None and is_look_up(graph, node):
            continue
        if value is None or value.ndim > 1:
            return f"{node.op_type} reads {name}, which is no short constant"
        if constant.is_uniform:
            if value.size < 1 or (value != value.flat[0]).any():
                return f"{node.op_type} reads {name}, whose values differ"
            attributes[constant.name] = int(value.flat[0])
        elif value.size:  # an empty one is as good as none: sizes and scales of a Resize
            found = value.tolist()
            attributes[constant.name] = tuple(found) if isinstance(found, list) else found
        inputs[constant.position] = ""
    while inputs and not inputs[-1]:
        inputs.pop()
    if key in _PADDED:
        attributes = _with_pads(graph, node, attributes)
    if output != node.output[0]:
        attributes[RESULT_NUMBER] = list(node.output).index(output)
    return Folded(key=key, inputs=tuple(inputs), attributes=attributes)


def is_look_up(graph: ModelGraph, node: onnx.NodeProto) -> bool:
    """Return True for a Gather of rows of a constant table by indices of each run."""
    if op_key(node) != GATHER or node.input[1] in graph.initializers:
        return False
    table = graph.initializers.get(node.input[0])
    axis = int(attributes_of(node).get("axis", 0))
    return table is not None and axis in (0, -len(table.dims)) and len(table.dims) > 0


def is_move(node: onnx.NodeProto) -> bool:
    """Return True for nodes that only copy, or only change the shape."""
    if op_key(node) in RESHAPING or op_key(node) == SPLIT:
        return True
    facts = OPERATORS.get(op_key(node))
    if facts is None or facts.kind is not OperatorKind.MOVEMENT:
        return False
    return not interpolates(op_key(node), attributes_of(node))


def _with_pads(
    graph: ModelGraph, node: onnx.NodeProto, attributes: dict[str, AttributeValue]
) -> dict[str, AttributeValue]:
    """Return the attributes of a convolution with the zeros its `auto_pad` stands for."""
    rule = str(attributes.get("auto_pad", "NOTSET"))
    position = _QUANTISED_WEIGHTS if op_key(node) in QUANTISED_CONVOLUTIONS else 1
    image, weights = graph.find_info(node.input[0]), graph.find_info(node.input[position])
    if rule not in ("SAME_UPPER", "SAME_LOWER", "VALID") or image is None or weights is None:
        return attributes
    axes = image.shape[1:-1] if attributes.get("channels_last", 0) else image.shape[2:]
    ends = list(_ends(rule, axes, weights.shape[2:], attributes))
    pads = (*(before for before, _ in ends), *(behind for _, behind in ends))
    return attributes | {"auto_pad": "NOTSET", "pads": pads}


def _ends(
    rule: str, extents: Shape, kernel: Shape, attributes: Mapping[str, AttributeValue]
) -> Iterator[tuple[int, int]]:
    """Yield the zeros before and behind each axis of an image."""
    strides, dilations = (_along(attributes, name, kernel) for name in ("strides", "dilations"))
    for extent, size, stride, dilation in zip(extents, kernel, strides, dilations, strict=True):
        reach = dilation * (size - 1) + 1
        is_same = rule.startswith("SAME")
        yield same_padding(rule, extent, stride, reach) if is_same else (0, 0)


def _along(attributes: Mapping[str, AttributeValue], name: str, kernel: Shape) -> Shape:
    """Return an attribute with a number for each axis of a kernel; ones if it is not given."""
    given = attributes.get(name)
    return tuple(int(item) for item in given) if isinstance(given, tuple) else (1,) * len(kernel)


def is_folded(node: onnx.NodeProto, position: int) -> bool:
    """Return True if an input of a node becomes an attribute."""
    key = op_key(node)
    if key in RESHAPING or key == SPLIT:
        return position > 0
    facts = OPERATORS.get(key)
    return facts is not None and any(item.position == position for item in facts.constants)


def _slice_of_split(graph: ModelGraph, node: onnx.NodeProto, output: str) -> Folded | str:
    """Return the part of a Split as a Slice."""
    whole = graph.find_info(node.input[0])
    parts: list[Shape] = []
    for name in node.output:
        info = graph.find_info(name)
        if info is None:
            return f"the shape of {name} may differ from run to run"
        parts.append(info.shape)
        if name == output:
            break
    if whole is None:
        return f"the shape of {node.input[0]} may differ from run to run"
    axis = int(attributes_of(node).get("axis", 0)) % len(whole.shape)
    end = sum(shape[axis] for shape in parts)
    attributes = {"axes": (axis,), "ends": (end,), "starts": (end - parts[-1][axis],)}
    return Folded(key=("", "Slice"), inputs=(node.input[0],), attributes=attributes)


def _constant(
    graph: ModelGraph, name: str, most: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]] | None:
    tensor = graph.initializers.get(name)
    if tensor is None or int(np.prod(tensor.dims, dtype=np.int64)) > most:
        return None
    return array_of(tensor)


def _parameters(quantised: QuantisedInputs) -> Collection[int]:
    return quantised.parameters


def _biases(quantised: QuantisedInputs) -> Collection[int]:
    return (quantised.bias,)


def _index_inputs(graph: ModelGraph, nodes: Sequence[onnx.NodeProto]) -> Sequence[Collection[int]]:
    """Return, for each of some nodes in topological order, the inputs that are indices.

    The first input of a move is indices if look-ups alone read what is moved.
    """
    found, asked, others = list[Collection[int]](), set[str](), set[str]()
    for node in reversed(nodes):
        facts, made = OPERATORS.get(op_key(node)), set(node.output)
        of_rows: Collection[int] = ()  # inputs that are indices of look-ups
        if is_look_up(graph, node):
            of_rows = LOOK_UP.indices
        elif is_move(node) and made & asked and not made & others:
            of_rows = (0,)
        for at, name in enumerate(node.input):
            (asked if at in of_rows else others).add(name)
        found.append(of_rows or (facts.indices if facts is not None else ()))
    return found[::-1]


UNCLASSIFIED = "unclassified"


@dataclass(frozen=True, slots=True, kw_only=True)
class Extracted:
    """A workload and the model's names of what it reads and writes."""

    workload: Workload
    inputs: tuple[str, ...]
    scalars: tuple[str, ...]
    output: str


def extract_workload(graph: ModelGraph, nodes: Sequence[int]) -> Extracted | str:
    """Return the workload of `nodes` (topological order, the last makes the result).

    Its `op_type` is `unclassified`: choosing a kernel family is the caller's.

    Returns:
        The workload with its names, or a sentence that says why the nodes are not tunable.
    """
    return _Extraction(graph, nodes).run()


class _Extraction:
    def __init__(self, graph: ModelGraph, nodes: Sequence[int]) -> None:
        self._graph = graph
        self._nodes = [graph.nodes[index] for index in nodes]
        self._indices = _index_inputs(graph, self._nodes)
        self._inputs: dict[str, TensorSpec] = {}
        self._scalars: dict[str, float] = {}
        self._references: dict[str, str] = {}

    def run(self) -> Extracted | str:
        results = {name for node in self._nodes for name in node.output if name}
        operations = []
        for index, node in enumerate(self._nodes):
            reason = _odd_attribute(node)
            if reason:
                return reason
            for number, name in enumerate(self._made(node)):
                folded = fold(self._graph, node, name)
                if isinstance(folded, str):
                    return folded
                for read in folded.inputs:
                    reason = self._refer(read, results)
                    if reason:
                        return reason
                output = f"t{index}_{number}" if number else f"t{index}"
                self._references[name] = output
                operations.append(self._operation(folded, output))
        last = result_of(self._graph, self._nodes[-1])
        result = self._spec(last)
        if isinstance(result, str):
            return result
        return Extracted(
            workload=Workload(
                op_type=UNCLASSIFIED,
                inputs=tuple(self._inputs.values()),
                scalars=tuple(self._scalars.values()),
                operations=tuple(operations),
                output=result,
            ),
            inputs=tuple(self._inputs),
            scalars=tuple(self._scalars),
            output=last,
        )

    def _made(self, node: onnx.NodeProto) -> list[str]:
        """Return the results of a node that something in the region, or behind it, reads."""
        if len(node.output) == 1 or node is self._nodes[-1]:
            return [result_of(self._graph, node)]
        read = {name for other in self._nodes for name in other.input}
        return [name for name in node.output if name in read]

    def _refer(self, name: str, results: set[str]) -> str | None:
        """Give a name its reference; return a reason if the tensor cannot be read."""
        if not name or name in self._references or name in results:
            return None
        scalar = self._graph.find_scalar(name)
        # a record is JSON, which has no infinities: those stay operands
        if (
            scalar is not None
            and math.isfinite(scalar)
            and not self._is_shaped(name)
            and not self._is_quantised_as(name, _parameters)
            and not self._is_scale(name)
            and not self._is_slope(name)
        ):
            self._references[name] = f"s{len(self._scalars)}"
            self._scalars[name] = scalar
            return None
        spec = self._spec(name)
        if isinstance(spec, str):
            return spec
        self._references[name] = f"x{len(self._inputs)}"
        self._inputs[name] = spec
        return None

    def _is_shaped(self, name: str) -> bool:
        """Return True for one-element tensors whose shape means something.

        Those are parameters of a one-channel normalisation, and operands of a higher rank than
        the result of the region, which they would lift.
        """
        last = self._graph.find_info(self._nodes[-1].output[0])
        if last is None or len(self._graph.initializers[name].dims) > len(last.shape):
            return True
        return any(name in _channel_parameters(node) for node in self._nodes)

    def _spec(self, name: str) -> TensorSpec | str:
        info = self._graph.find_info(name)
        if info is None:
            return f"the shape of {name} may differ from run to run"
        if info.dtype not in self._dtypes(name):
            return f"{name} is {info.dtype}, kernels compute in float32"
        if len(info.shape) > MAX_AXES:
            return f"{name} has rank {len(info.shape)}, more than {MAX_AXES}"
        if any(extent < 1 for extent in info.shape):
            return f"{name} is empty, shape {info.shape}"
        blocked = name in self._graph.blocked and self._layout_matters()
        block = self._graph.block if blocked else 0
        if blocked and (len(info.shape) != 4 or info.shape[1] % block):
            return f"{name} has {info.shape} in the blocked layout, not a multiple of {block}"
        return TensorSpec(
            shape=info.shape,
            dtype=info.dtype,
            layout=Layout.BLOCKED if blocked else Layout.PLAIN,
            block=block,
            constant=name in self._graph.initializers,
        )

    def _dtypes(self, name: str) -> frozenset[str]:
        """Return the element types a kernel for these nodes takes, or makes, of a tensor."""
        if self._holds_indices(name):
            return INDEX_DTYPES
        facts = [OPERATORS.get(op_key(node)) for node in self._nodes]
        moved = all(one is not None and one.kind is OperatorKind.MOVEMENT for one in facts)
        if self._is_quantised_as(name, _biases):
            return frozenset({BIAS})
        conditions = {BOOLEAN} if self._is_condition(name) else set[str]()
        return KERNEL_DTYPES | conditions | (MOVED_DTYPES if moved else STORED_DTYPES)

    def _holds_indices(self, name: str) -> bool:
        """Return True for tensors only indices are read from, moved perhaps, or written to."""
        roles = set()
        for node, indices in zip(self._nodes, self._indices, strict=True):
            roles |= {at in indices for at, other in enumerate(node.input) if other == name}
            if name in node.output:
                facts = OPERATORS.get(op_key(node))
                roles.add(facts is not None and facts.makes_indices)
        return roles == {True}

    def _is_quantised_as(
        self, name: str, positions: Callable[[QuantisedInputs], Collection[int]]
    ) -> bool:
        """Return True for tensors that operators of levels read at some positions."""
        for node in self._nodes:
            facts = OPERATORS.get(op_key(node))
            quantised = facts.quantised if facts else None
            if quantised and any(
                at in positions(quantised) for at, other in enumerate(node.input) if other == name
            ):
                return True
        return False

    def _is_scale(self, name: str) -> bool:
        """Return True for the scale of weights, which a scale that is measured is multiplied by.

        It stays an input, so that layers of one shape share a record.
        """
        for node in self._nodes:
            if name not in node.input or len(node.input) != 2:
                continue
            for other in node.input:
                made_by = self._graph.producer.get(other)
                maker = None if made_by is None else self._graph.nodes[made_by]
                if maker is not None and op_key(maker) == MEASURED_LEVELS:
                    return bool(maker.output[MEASURED_SCALE] == other)
        return False

    def _is_slope(self, name: str) -> bool:
        """True for the slope of a PRelu: a weight, so that layers of one shape share a record."""
        return any(op_key(node) == _PRELU and name in node.input[1:] for node in self._nodes)

    def _is_condition(self, name: str) -> bool:
        """True for tensors that are read as booleans alone; a kernel makes none."""
        roles = {name not in node.output for node in self._nodes}
        for node in self._nodes:
            facts = OPERATORS.get(op_key(node))
            read = [at for at, other in enumerate(node.input) if other == name]
            roles |= {facts is not None and facts.signature.reads_boolean(at) for at in read}
        return roles == {True}

    def _layout_matters(self) -> bool:
        """A chain without layout-bound operators computes the same in any element order."""
        return any(node.domain == NCHWC_DOMAIN for node in self._nodes)

    def _operation(self, folded: Folded, output: str) -> Operation:
        domain, op_type = folded.key
        return Operation(
            op_type=op_type,
            domain=domain,
            version=_since_version(domain, op_type, self._graph.opset(domain)),
            inputs=tuple(self._references[name] if name else "" for name in folded.inputs),
            output=output,
            attributes=folded.attributes,
        )


def result_of(graph: ModelGraph, node: onnx.NodeProto) -> str:
    """Return the first result of a node that is read and that a kernel may make; else its first."""
    facts = OPERATORS.get(op_key(node))
    made = node.output[: facts.results] if facts else node.output[:1]
    return str(next((name for name in made if graph.is_read(name)), node.output[0]))


def _channel_parameters(node: onnx.NodeProto) -> list[str]:
    """Return the tensors a node reads one value per channel of."""
    facts = OPERATORS.get(op_key(node))
    return [node.input[i] for i in facts.channel_values if i < len(node.input)] if facts else []


def converts(node: onnx.NodeProto) -> bool:
    """Return True for nodes whose result is of another type than what they read."""
    facts = OPERATORS.get(op_key(node))
    return facts is not None and facts.signature.converts


def has_kernel_types(graph: ModelGraph, node: onnx.NodeProto) -> bool:
    """Return False for nodes that convert what kernels cannot read, or to what they cannot make."""
    if not converts(node):
        return True
    known = [graph.find_info(name) for name in (node.input[0], node.output[0])]
    if any(info and info.dtype not in KERNEL_DTYPES | STORED_DTYPES for info in known):
        return False
    made = known[1]  # a cast to integers cuts off, and overflows as the CPU does
    return op_key(node) != ("", "Cast") or made is None or made.dtype not in LEVELS


def _odd_attribute(node: onnx.NodeProto) -> str | None:
    """Return a reason if a record cannot hold an attribute of the node."""
    for name, value in attributes_of(node).items():
        if isinstance(value, float) and not math.isfinite(value):
            return f"attribute {name} is {value}"
    return None


def _since_version(domain: str, op_type: str, opset: int) -> int:
    if domain or not onnx.defs.has(op_type, opset, domain):
        return 1  # ONNX Runtime has operators of its own in ONNX's domain
    return int(onnx.defs.get_schema(op_type, opset, domain).since_version)
