"""Conversion of a Caffe model, prototxt and caffemodel, to ONNX; other files are told apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto, helper

from aoe.entry.caffe.layers.registry import LAYERS, WAYS_OUT, LayerRule
from aoe.entry.caffe.network import CaffeInput, CaffeLayer, Network, parse_network
from aoe.entry.caffe.scope import CaffeBlob, GraphParts, LayerScope, unused
from aoe.entry.caffe.weights import StoredBlob, is_caffemodel, parse_weights
from aoe.entry.outputs import cut_at_outputs
from aoe.entry.protocol import MAX_BYTES, Entry, ImportedModel, ModelSource, digest_of, model_name
from aoe.errors import ModelImportError, ModelNotFoundError
from aoebank import plural

_MOST_TEXT = 2**24  # the longest public prototxts (ResNet-152, DenseNet-201) have 0.1 MiB
_HDF5 = b"\x89HDF\r\n\x1a\n"
_SWAPPED = "--model is for the prototxt, --weight for the caffemodel"


def load_caffe(source: ModelSource) -> ImportedModel:
    """Read a prototxt and its caffemodel and convert them to ONNX.

    `source.shapes` are the shapes of inputs, whatever the prototxt says about their extents; a
    layer whose weights no longer fit is an error.

    Raises:
        ModelNotFoundError: a file is not there.
        ModelImportError: unreadable, of another kind, truncated, a layer that cannot be converted,
            weights that are missing or do not fit, or an input whose shape stays open.
        OptionError: layers with weights, and no weight file.
    """
    place = f"--model={source.path}"
    content = _bytes_of(source.path, place, _MOST_TEXT)
    network = parse_network(_text_of(content, place), place)
    shapes = {given.name: _shape_of(given, source) for given in inputs_read(network)}
    _check_names(network, source.shapes)
    stored = None if source.weight is None else _weights_of(source.weight)
    proto = convert_network(network, shapes, stored, place, source.output_nodes)
    _check(proto, place)
    return ImportedModel(
        name=model_name(source.path.stem),
        path=source.path,
        sha256=digest_of(proto, place),
        proto=proto,
        caveat="; ".join(_caveats(network, stored or {}, source.weight)),
    )


def _bytes_of(path: Path, place: str, most: int) -> bytes:
    """Return the bytes of a file of at most `most` bytes."""
    try:
        size = path.stat().st_size
        if path.is_dir():
            raise ModelImportError(place, "is a directory")
        if size > most:
            raise ModelImportError(
                place, "too large", got=f"{size} bytes", expected=f"at most {most} bytes"
            )
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ModelNotFoundError(place, "no such file") from error
    except OSError as error:
        raise ModelImportError(place, f"cannot be read: {error}") from error


def _text_of(content: bytes, place: str) -> str:
    if b"\0" in content:
        raise _other_kind(content, place, "not a prototxt, which is text")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _other_kind(content, place, "not a prototxt, which is text in UTF-8") from error


def _weights_of(path: Path) -> Mapping[str, tuple[StoredBlob, ...]]:
    place = f"--weight={path}"
    content = _bytes_of(path, place, MAX_BYTES)
    try:
        return parse_weights(content, place)
    except ModelImportError as error:
        if error.hint:
            raise
        raise _other_kind(content, place, error.problem) from error


def _other_kind(content: bytes, place: str, problem: str) -> ModelImportError:
    """Return an error about a file of another kind, with a hint if the kind is known."""
    hint = None
    if content.startswith(_HDF5):
        problem, hint = "weights in HDF5 cannot be read", "save them as a caffemodel"
    elif _is_onnx(content):
        problem, hint = "an ONNX model", "--framework=5 --model=FILE, without --weight"
    elif place.startswith("--model") and is_caffemodel(content):
        problem, hint = "a caffemodel, not a prototxt", _SWAPPED
    elif place.startswith("--weight") and _looks_like_text(content):
        problem, hint = "text, not a caffemodel", _SWAPPED
    return ModelImportError(place, problem, hint=hint)


def _is_onnx(content: bytes) -> bool:
    try:
        proto = onnx.ModelProto.FromString(content)
    except DecodeError:
        return False
    return bool(proto.graph.node) and bool(proto.opset_import)


def _looks_like_text(content: bytes) -> bool:
    try:
        return "layer" in content[: 2**16].decode("utf-8")
    except UnicodeDecodeError:
        return False


def _shape_of(given: CaffeInput, source: ModelSource) -> tuple[int, ...]:
    """Return the shape of an input: as the options say, the prototxt, or an array it is run on."""
    asked = source.shapes.get(given.name)
    if asked is not None:
        if given.shape is not None and len(asked) != len(given.shape):
            raise ModelImportError(
                "--input_shape",
                f"input {given.name} has another rank",
                got=f"{len(asked)} extents",
                expected=f"{len(given.shape)}: {_written(given.shape)}",
            )
        if not all(asked):
            raise ModelImportError("--input_shape", "an extent of 0", got=_written(asked))
        return asked
    if given.shape is not None:
        return given.shape
    file = source.given.files_of([given.name]).get(given.name) if source.given else None
    if file is not None:
        return tuple(file.load().shape)
    raise ModelImportError(
        given.place,
        f"the shape of input {given.name} is left open, and tuning needs one",
        hint=f'--input_shape="{given.name}:{_written(given.suggestion)}"',
    )


def _check_names(network: Network, shapes: Mapping[str, tuple[int, ...]]) -> None:
    names = [given.name for given in network.inputs]
    for name in shapes:
        if name not in names:
            raise ModelImportError(
                "--input_shape", "the model has no such input", got=name, expected=names[:8]
            )


def _check(proto: onnx.ModelProto, place: str) -> None:
    if proto.ByteSize() > MAX_BYTES:
        raise ModelImportError(
            place,
            "the model with its weights is too large",
            got=f"{proto.ByteSize()} bytes",
            expected=f"at most {MAX_BYTES} bytes",
        )
    try:
        onnx.checker.check_model(proto)
    except onnx.checker.ValidationError as error:
        first = (str(error).strip().splitlines() or ["the checker does not say why"])[0]
        raise ModelImportError(place, f"no valid model comes of it: {first}") from error


def _caveats(
    network: Network, stored: Mapping[str, tuple[StoredBlob, ...]], weight: Path | None
) -> list[str]:
    """Return warnings: weights of unknown layers, layers that were left out."""
    found = []
    unknown = [name for name in stored if name not in network.names]
    if unknown:
        found.append(
            f"{weight} has weights for {plural(len(unknown), 'layer')} the prototxt does not have, "
            f"{unknown[0]} for one"
        )
    if network.left_out:
        types = sorted({layer.type for layer in network.left_out})
        found.append(f"layers for training are left out: {', '.join(types)}")
    return found


def _written(shape: tuple[int, ...]) -> str:
    return ",".join(map(str, shape))


CAFFE = Entry(
    framework="Caffe",
    load=load_caffe,
    takes_weight=True,
    takes_output_nodes=True,
    suffixes=(".prototxt",),
    weight_suffix=".caffemodel",
)


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
    """The blobs there are after the layers so far."""

    made: dict[str, CaffeBlob] = field(default_factory=dict)  # By their names in the prototxt
    # Names of those no layer has read since they were made.
    unread: dict[str, None] = field(default_factory=dict)
    # How many layers write a name from here on; the last one's result keeps it.
    writers: dict[str, int] = field(default_factory=dict)
    # Values of the tops by layer: a layer in place makes another one than the last of its name.
    tops: dict[str, tuple[str, ...]] = field(default_factory=dict)


def convert_network(
    network: Network,
    shapes: Mapping[str, tuple[int, ...]],
    stored: Mapping[str, tuple[StoredBlob, ...]] | None,
    place: str,
    output_nodes: Sequence[str] = (),
) -> onnx.ModelProto:
    """Return a network as an ONNX model.

    Args:
        network: Its inference phase.
        shapes: Of the inputs, by name; every input that is read has one.
        stored: Weights by layer name, None if no file was given.
        place: What errors call the prototxt.
        output_nodes: Tops to cut the network off at, as `layer:0` or by their names; none for all
            that no layer reads.

    Raises:
        ModelImportError: a layer is of an unknown type, does not fit what it reads, or lacks its
            weights, or there is no such top.
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
    model = _model(
        parts,
        [blob for blob in inputs.values() if blob.name in read],
        [blobs.made[name] for name in blobs.unread],
    )
    cut_at_outputs(model, [_value_of(entry, blobs.tops) for entry in output_nodes])
    return model


def _value_of(entry: str, tops: Mapping[str, tuple[str, ...]]) -> str:
    """Return the value a layer and the number of its top stand for, another entry as it is.

    A layer may be several nodes, so that the node of its name is a part of it.
    """
    layer, colon, number = entry.rpartition(":")
    if not colon or layer not in tops:
        return entry
    values = tops[layer]
    if not number.isdecimal() or int(number) >= len(values):
        raise ModelImportError(
            "--out_nodes",
            f"layer {layer} has no such top",
            got=entry,
            expected=" or ".join(f"{layer}:{at}" for at in range(len(values))),
        )
    return values[int(number)]


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
    blobs.tops.setdefault(layer.name, tuple(blobs.made[name].name for name in layer.tops))
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
