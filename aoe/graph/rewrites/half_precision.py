"""Models in float16 and bfloat16 as float32 models between casts: rounded at their ends alone.

CPUs compute such tensors in float32. ONNX Runtime takes off the casts it has put in, but only
behind its fusions and only between operators that have no kernel of the narrow type: a Softmax is
taken apart as a function first, and attention, normalisations and GELU are joined nowhere. Where
rounding inside the model need not be kept, the model is written in float32 in front of all that.

Weights stay what they are, behind a Cast that ONNX Runtime computes once when it loads the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import zip_longest
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from aoe.graph.model_graph import ModelGraph, attributes_of, names_read, subgraphs
from aoe.graph.protos import copied, free_name
from aoe.graph.rewrites.always import with_constants
from aoe.graph.rewrites.cleanup import RANDOM
from aoe.graph.rewrites.editing import apply_edits, rename_reads
from aoe.graph.rewrites.offline import ON_CPU
from aoe.graph.rewrites.protocol import Edit, Finding, RewriteMatch, RewriteRule, RuleUse
from aoe.graph.weights import SMALL_BYTES, array_of, bytes_of
from aoe.operators import MICROSOFT_DOMAIN, op_key

HALVES: Mapping[int, str] = {TensorProto.FLOAT16: "float16", TensorProto.BFLOAT16: "bfloat16"}
"""Element types narrower than float32 that models compute in, with their names."""
_WIDENED_OPERATORS = ON_CPU | {"FusedConv", "FusedGemm", "MatMulNBits", "SkipGroupNorm"}
"""Operators of ONNX Runtime's own whose numbers all have one type, for which float32 will do."""
_KEPT_OPERATORS = frozenset(("BitCast", *RANDOM))
"""Operators that give something else in another type."""
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype")
_FLOAT = "tensor(float)"


def is_half_precision(proto: onnx.ModelProto, *types: int) -> bool:
    """Return True if a model has inputs, weights or casts of a type narrower than float32.

    Args:
        proto: The model.
        types: Those that count; all of `HALVES` if there are none.
    """
    counted = frozenset(types or HALVES)
    graph = proto.graph
    values = (*graph.input, *graph.output)
    found = {value.type.tensor_type.elem_type for value in values}
    found.update(tensor.data_type for tensor in graph.initializer)
    for node in graph.node:
        for item in node.attribute:
            if item.name in _TYPE_ATTRIBUTES:
                found.add(item.i)
            elif item.HasField("t"):
                found.add(item.t.data_type)
    return not counted.isdisjoint(found)


def written_in_float32(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose narrow tensors are float32; its inputs and outputs keep their types.

    The model itself, if there is nothing to widen.
    """
    if not is_half_precision(proto):
        return proto
    found = FLOAT32_RULE.findings(with_constants(proto))
    edits = [one.edit for one in found if isinstance(one, RewriteMatch)]
    return apply_edits(proto, edits) if edits else proto


def find_half_precision(graph: ModelGraph) -> Iterator[Finding]:
    """Yield all nodes that read or make a narrow tensor, as one match."""
    types = element_types(graph)
    widening = _Widening(graph, {name: kind for name, kind in types.items() if kind in HALVES})
    removed, added = [], []
    for index, node in enumerate(graph.nodes):
        if not widening.touches(node):
            continue
        is_widened = _is_widened(graph, node, types)
        made = widening.widened(node) if is_widened else widening.kept(node)
        if is_widened or made != node:
            removed.append(index)
            added.append(made)
    if removed:
        edit = Edit(
            removed=tuple(removed),
            added=(*widening.casts, *added),
            initializers=tuple(widening.constants),
        )
        names = tuple(graph.nodes[index].name for index in removed)
        yield RewriteMatch(rule=FLOAT32_RULE.name, nodes=names, edit=edit)


class _Widening:
    """Nodes of a model in float32; what others need of them in the narrow type is cast back.

    A tensor keeps its name in the type most of the new model knows it in: inputs, outputs and
    weights in their own, results of nodes in float32.

    Args:
        graph: The model.
        halves: Element types of its narrow tensors.

    Attributes:
        casts: Nodes that bring tensors into the other type.
        constants: Small weights in float32.
    """

    def __init__(self, graph: ModelGraph, halves: Mapping[str, int]) -> None:
        self._graph = graph
        self._halves = halves
        inputs = {value.name for value in graph.proto.graph.input}
        stored = {tensor.name for tensor in graph.proto.graph.initializer}
        self._own_type = inputs | stored | graph.output_names
        self._taken: set[str] = set()
        self._wide: dict[str, str] = {}
        self._narrow: dict[str, str] = {}
        self.casts: list[onnx.NodeProto] = []
        self.constants: list[TensorProto] = []

    def touches(self, node: onnx.NodeProto) -> bool:
        """True if a node reads or makes a narrow tensor."""
        return any(name in self._halves for name in (*names_read(node), *node.output))

    def widened(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """Return a node in float32."""
        made = copied(node)
        made.input[:] = [self._wide_name(name) for name in node.input]
        for item in made.attribute:
            if item.name in _TYPE_ATTRIBUTES and item.i in HALVES:
                item.i = TensorProto.FLOAT
            elif item.HasField("t") and item.t.data_type in HALVES:
                item.t.CopyFrom(_float32(item.t, item.t.name))
        for at, name in enumerate(node.output):
            if name in self._halves and name in self._own_type:
                made.output[at] = self._wide_name(name, is_made=True)
                self._cast(made.output[at], name, self._halves[name])
        return made

    def kept(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """Return a node as it is, which reads and makes the narrow tensors."""
        read = dict.fromkeys(name for name in names_read(node) if name in self._halves)
        made = copied(node)
        rename_reads(made, {name: self._narrow_name(name) for name in read})
        for at, name in enumerate(node.output):
            if name in self._halves and name not in self._own_type:
                made.output[at] = self._narrow_name(name, is_made=True)
                self._cast(made.output[at], name, TensorProto.FLOAT)
        return made

    def _wide_name(self, name: str, *, is_made: bool = False) -> str:
        """Return the name of a tensor in float32, and see to it that there is one.

        Args:
            name: Of a tensor of any type.
            is_made: True if a node makes it in float32.
        """
        if name not in self._halves or name not in self._own_type:
            return name
        if name not in self._wide:
            self._wide[name] = self._free(f"{name}_float32")
            tensor = self._graph.initializers.get(name)
            if tensor is not None and bytes_of(tensor) <= SMALL_BYTES:
                self.constants.append(_float32(tensor, self._wide[name]))
            elif not is_made:
                self._cast(name, self._wide[name], TensorProto.FLOAT)
        return self._wide[name]

    def _narrow_name(self, name: str, *, is_made: bool = False) -> str:
        """Return the name of a narrow tensor in its own type; see `_wide_name`."""
        if name in self._own_type:
            return name
        if name not in self._narrow:
            self._narrow[name] = self._free(f"{name}_{HALVES[self._halves[name]]}")
            if not is_made:
                self._cast(name, self._narrow[name], self._halves[name])
        return self._narrow[name]

    def _cast(self, name: str, result: str, kind: int) -> None:
        node = self._free(f"Cast_{result}")
        self.casts.append(helper.make_node("Cast", [name], [result], name=node, to=kind))

    def _free(self, wanted: str) -> str:
        name = free_name(wanted, self._taken, *self._graph.names)
        self._taken.add(name)
        return name


def _float32(tensor: TensorProto, name: str) -> TensorProto:
    return numpy_helper.from_array(array_of(tensor).astype(np.float32), name)


# ---- Nodes that compute the same in float32 ----


def _is_widened(graph: ModelGraph, node: onnx.NodeProto, types: Mapping[str, int]) -> bool:
    """Return True if a node may have float32 wherever it has a narrow type."""
    if any(subgraphs(node)) or node.op_type in _KEPT_OPERATORS or _looks_up(graph, node):
        return False
    if any(name and name not in types for name in node.input):
        return False
    domain, op_type = op_key(node)
    if domain == MICROSOFT_DOMAIN:
        return op_type in _WIDENED_OPERATORS
    schema = None if domain else _schema(op_type, graph.opset(""))
    if schema is None:
        return False
    allowed = {one.type_param_str: one.allowed_type_strs for one in schema.type_constraints}
    read = {kind for name, kind in _typed(node.input, schema.inputs) if types.get(name) in HALVES}
    made = {kind for name, kind in _typed(node.output, schema.outputs) if types.get(name) in HALVES}
    if any(_FLOAT not in allowed.get(kind, ()) for kind in read | made):
        return False
    return made <= read or _names_half(node)


def _looks_up(graph: ModelGraph, node: onnx.NodeProto) -> bool:
    """Return True if a node takes rows out of a table, which would double with wider ones."""
    return node.op_type == "Gather" and node.input[0] in graph.initializers


def _names_half(node: onnx.NodeProto) -> bool:
    """Return True if an attribute of a node says that it makes a narrow type."""
    return any(
        item.i in HALVES if item.name in _TYPE_ATTRIBUTES else item.t.data_type in HALVES
        for item in node.attribute
    )


def _typed(names: Sequence[str], formals: Any) -> Iterator[tuple[str, str]]:
    """Yield the inputs or outputs of a node with their type parameters; the last may be many."""
    kinds = [one.type_str for one in formals]
    return zip_longest(names, kinds[: len(names)], fillvalue=kinds[-1] if kinds else "")


@cache
def _schema(op_type: str, opset: int) -> Any:
    """Return ONNX's definition of an operator, None if this release has none."""
    try:
        return onnx.defs.get_schema(op_type, opset)
    except onnx.defs.SchemaError:
        return None


# ---- Types of tensors ----


def element_types(graph: ModelGraph) -> dict[str, int]:
    """Return the element types of a model's tensors, as far as they can be told.

    Shape inference knows no operators of ONNX Runtime's own, nor what lies behind them: these have
    one type for all their numbers, and others make what they read.
    """
    bare = copied(graph.proto)
    del bare.graph.value_info[:]
    inferred = onnx.shape_inference.infer_shapes(bare).graph
    found = {
        value.name: value.type.tensor_type.elem_type
        for value in (*inferred.input, *inferred.value_info, *inferred.output)
        if value.type.tensor_type.elem_type
    }
    found.update({name: tensor.data_type for name, tensor in graph.initializers.items()})
    for node in graph.nodes:
        for name, kind in zip(node.output, _made_types(graph, node, found), strict=False):
            if name and kind:
                found.setdefault(name, kind)
    return found


def _made_types(
    graph: ModelGraph, node: onnx.NodeProto, known: Mapping[str, int]
) -> Iterable[int | None]:
    """Return the types of what a node makes, by the types of what it reads."""
    domain, op_type = op_key(node)
    if domain == MICROSOFT_DOMAIN and op_type in _WIDENED_OPERATORS and node.input:
        return [known.get(node.input[0])] * len(node.output)
    schema = None if domain else _schema(op_type, graph.opset(""))
    if schema is None:
        return []
    said = attributes_of(node)
    if op_type == "Cast":
        return [said.get("to")]
    read = {kind: known[name] for name, kind in _typed(node.input, schema.inputs) if name in known}
    return [
        read.get(kind) or _ELEMENT_TYPES.get(kind)
        for _, kind in _typed(node.output, schema.outputs)
    ]


_ELEMENT_TYPES = {f"tensor({name.lower()})": kind for name, kind in TensorProto.DataType.items()}
"""By ONNX's words for them."""


FLOAT32_RULE = RewriteRule(
    name="half-precision-as-float32",
    what="float16 and bfloat16 between inputs, weights and outputs become float32",
    needs="operators that have float32 too; others keep their types, between casts",
    tolerance=1e-2,
    find=find_half_precision,
    use=RuleUse.ALLOWED,
)
