"""From a network and its weights to an ONNX model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx
from onnx import TensorProto, helper

from aoe.entry.caffe.layers.registry import LAYERS, WAYS_OUT, LayerRule
from aoe.entry.caffe.network import CaffeInput, CaffeLayer, Network
from aoe.entry.caffe.scope import CaffeBlob, GraphParts, LayerScope, unused
from aoe.entry.caffe.weights import StoredBlob
from aoe.errors import ModelImportError

OPSET = 17
_IR_VERSION = 8
_WITHOUT_EFFECT = frozenset(
    {
        *("engine", "weight_filler", "bias_filler", "filler", "scale_filler", "force_nd_im2col"),
        *("stable_prod_grad", "cudnn_convolution_algo_seeker", "moving_average_fraction"),
        *("save_output_param", "visualize", "visualize_threshold", "save_file"),
    }
)
"""Parameters that say how a layer is trained or which code computes it, not what."""
_MOVES = frozenset({"Gather", "Identity", "Pad", "Reshape", "Slice", "Transpose", "Unsqueeze"})
"""Nodes that only bring the operands of a layer into place."""


@dataclass(slots=True)
class _Blobs:
    """The blobs there are after the layers so far.

    Attributes:
        made: By their names in the prototxt.
        unread: Names of those no layer has read since they were made.
        writers: How many layers write a name from here on; the last one's result keeps it.
    """

    made: dict[str, CaffeBlob] = field(default_factory=dict)
    unread: dict[str, None] = field(default_factory=dict)
    writers: dict[str, int] = field(default_factory=dict)


def convert_network(
    network: Network,
    shapes: Mapping[str, tuple[int, ...]],
    stored: Mapping[str, tuple[StoredBlob, ...]] | None,
    place: str,
) -> onnx.ModelProto:
    """Return a network as an ONNX model.

    Args:
        network: Its inference phase.
        shapes: Of the inputs, by name; every input that is read has one.
        stored: Weights by layer name, None if no file was given.
        place: What errors call the prototxt.

    Raises:
        ModelImportError: a layer is of an unknown type, does not fit what it reads, or lacks its
            weights.
        OptionError: there are layers with weights, and no file of weights.
    """
    _refuse_unknown(network.layers)
    parts, blobs, taken = GraphParts(), _Blobs(), set[str]()
    for name, shape in shapes.items():
        blobs.made[name] = CaffeBlob(name=unused(name, parts.names), shape=shape)
    inputs = dict(blobs.made)
    for name in (top for layer in network.layers for top in layer.tops):
        blobs.writers[name] = blobs.writers.get(name, 0) + 1
    for layer in network.layers:
        _convert(layer, parts, blobs, stored, taken)
    if not parts.nodes:
        raise ModelImportError(place, "no layer that computes anything")
    read = {name for node in parts.nodes for name in node.input}
    return _model(
        parts,
        [blob for blob in inputs.values() if blob.name in read],
        [blobs.made[name] for name in blobs.unread],
    )


def inputs_read(network: Network) -> tuple[CaffeInput, ...]:
    """Return the inputs layers read: labels are often only there for what is left out."""
    read = {bottom for layer in network.layers for bottom in layer.bottoms}
    return tuple(given for given in network.inputs if given.name in read)


def _refuse_unknown(layers: Iterable[CaffeLayer]) -> None:
    unknown = [layer for layer in layers if layer.type not in LAYERS]
    if not unknown:
        return
    others = sorted({layer.type for layer in unknown[1:]} - {unknown[0].type})
    more = f", nor can {', '.join(others[:8])}" if others else ""
    raise ModelImportError(
        unknown[0].place,
        f"layers of this type cannot be converted{more}",
        hint=WAYS_OUT.get(unknown[0].type, "cut the net before it, or export the model to ONNX"),
    )


def _convert(
    layer: CaffeLayer,
    parts: GraphParts,
    blobs: _Blobs,
    stored: Mapping[str, tuple[StoredBlob, ...]] | None,
    taken: set[str],
) -> None:
    """Add the nodes of one layer; its tops are blobs then."""
    rule = LAYERS[layer.type]
    _check_arity(layer, rule)
    scope = LayerScope(
        layer=layer,
        param=layer.fields.message(rule.param),
        bottoms=tuple(_bottom(layer, name, blobs) for name in layer.bottoms),
        parts=parts,
        stored=stored,
        taken=taken,
    )
    before = len(parts.nodes)
    results = rule.convert(scope)
    makers = {result: node for node in parts.nodes[before:] for result in node.output}
    for name, line in scope.param.left():
        if name not in _WITHOUT_EFFECT:
            raise ModelImportError(
                layer.place,
                f"{rule.param}.{name} is not known, so what it does to the result is not either",
                got=f"line {line}",
                hint="take it out if it changes nothing in inference",
            )
    made: set[str] = set()
    for name, result in zip(layer.tops, results, strict=True):
        if name in made or (name in blobs.made and name not in layer.bottoms):
            raise scope.error("a blob that is made twice", got=name)
        made.add(name)
        blobs.writers[name] -= 1
        blobs.made[name] = _named(makers, scope, result, name, is_last=not blobs.writers[name])
        blobs.unread[name] = None
    _name_what_computes(parts.nodes[before:])


def _name_what_computes(nodes: Sequence[onnx.NodeProto]) -> None:
    """Give the name of a layer to its first node that computes; tables and files speak of it.

    Args:
        nodes: Of one layer; the first has the layer's name.
    """
    computes = next((node for node in nodes if node.op_type not in _MOVES), None)
    if computes is not None and computes is not nodes[0]:
        nodes[0].name, computes.name = computes.name, nodes[0].name


def _check_arity(layer: CaffeLayer, rule: LayerRule) -> None:
    least, most = rule.bottoms
    tops = rule.tops if rule.tops[0] else (len(layer.bottoms),) * 2
    for what, found, (low, high) in (
        ("bottoms", len(layer.bottoms), (least, most)),
        ("tops", len(layer.tops), tops),
    ):
        if not low <= found <= high:
            raise ModelImportError(
                layer.place,
                f"number of {what}",
                got=found,
                expected=f"{low}" if low == high else f"{low} or more",
            )


def _bottom(layer: CaffeLayer, name: str, blobs: _Blobs) -> CaffeBlob:
    blobs.unread.pop(name, None)
    found = blobs.made.get(name)
    if found is None:
        raise ModelImportError(layer.place, "no layer before it makes its bottom", got=name)
    if found.open_axis is not None:
        raise ModelImportError(
            layer.place,
            "its bottom has a size that depends on the data",
            got=name,
            hint="leave the layer out",
        )
    return found


def _named(
    makers: dict[str, onnx.NodeProto],
    scope: LayerScope,
    result: CaffeBlob,
    top: str,
    *,
    is_last: bool,
) -> CaffeBlob:
    """Return a layer's result under the name of its top, which the last of several writers keeps.

    What no node of the layer computes, or has a name already, is passed on by an Identity.

    Args:
        makers: Nodes of the layer by result; one that has got the name of a top is taken out.
        scope: The layer.
        result: What the converter returned.
        top: Name in the prototxt.
        is_last: Whether no later layer writes it.
    """
    names = scope.parts.names
    wanted = top if is_last and top not in names else f"{top}/{scope.layer.name}"
    maker = makers.pop(result.name, None)
    name = unused(wanted, names)
    if maker is None:
        passed = scope.add("Identity", (result,), result.shape, open_axis=result.open_axis)
        maker, result = scope.parts.nodes[-1], passed
    maker.output[[*maker.output].index(result.name)] = name
    for reader in makers.values():
        for position, read in enumerate(reader.input):
            if read == result.name:
                reader.input[position] = name
    return replace(result, name=name)


def _model(
    parts: GraphParts, inputs: Sequence[CaffeBlob], outputs: Sequence[CaffeBlob]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        parts.nodes,
        "caffe",
        [_value(blob) for blob in inputs],
        [_value(blob) for blob in outputs],
        [*parts.constants.values()],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model: onnx.ModelProto = helper.make_model(
        graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="aoe"
    )
    return model


def _value(blob: CaffeBlob) -> onnx.ValueInfoProto:
    shape: list[int | str] = list(blob.shape)
    if blob.open_axis is not None:
        shape[blob.open_axis] = "found"
    value: onnx.ValueInfoProto = helper.make_tensor_value_info(blob.name, TensorProto.FLOAT, shape)
    return value
