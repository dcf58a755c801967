"""The two files of a Caffe model: read, checked, converted; what they are if they are not that."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from aoe.entry.caffe.conversion import convert_network, inputs_read
from aoe.entry.caffe.network import CaffeInput, Network, parse_network
from aoe.entry.caffe.weights import StoredBlob, is_caffemodel, parse_weights
from aoe.entry.imported_model import MAX_BYTES, ImportedModel, digest_of, model_name
from aoe.entry.outputs import cut_at_outputs
from aoe.entry.protocol import Entry, ModelSource
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
    proto = convert_network(network, shapes, stored, place)
    _check(proto, place)
    cut_at_outputs(proto, source.output_nodes)
    return ImportedModel(
        name=model_name(source.path.stem),
        path=source.path,
        sha256=digest_of(proto, place),
        proto=proto,
        doubt="; ".join(_doubts(network, stored or {}, source.weight)),
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


def _doubts(
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
