"""Weights a model keeps in files of their own: measured before they are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import onnx
from onnx.external_data_helper import (
    ExternalDataInfo,
    load_external_data_for_tensor,
    uses_external_data,
)

from aoe.errors import ModelImportError
from aoe.graph.model_graph import subgraphs
from aoe.graph.weights import settle


def external_tensors(proto: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Return the tensors whose data lies in another file, also inside subgraphs."""
    functions = (_tensors_of(function.node) for function in proto.functions)
    found = chain(proto.graph.initializer, _tensors_of(proto.graph.node), *functions)
    return [tensor for tensor in found if uses_external_data(tensor)]


def weight_locations(proto: onnx.ModelProto) -> list[str]:
    """Return the files of the weights that lie outside, as the model names them, sorted."""
    entries = chain.from_iterable(tensor.external_data for tensor in external_tensors(proto))
    return sorted({entry.value for entry in entries if entry.key == "location"})


def stored_bytes(tensor: onnx.TensorProto, model: Path) -> int:
    """Return the number of bytes of a tensor in its file.

    Args:
        tensor: One of `external_tensors`.
        model: File of the model it belongs to.

    Raises:
        ModelImportError: the file is not there, or ends before the tensor does.
    """
    place = _place(tensor, model)
    file = model.parent / place.location
    if not place.location or not file.is_file():
        raise ModelImportError(
            _where(tensor, model),
            "their file is not there",
            got=place.location or "no name",
            hint="it belongs into the folder of the model",
        )
    size, offset = file.stat().st_size, place.offset or 0
    length = max(size - offset, 0) if place.length is None else place.length
    if offset + length > size:
        raise ModelImportError(
            _where(tensor, model),
            f"{file} ends before they do, so it is truncated",
            got=f"{size} bytes",
            expected=f"at least {offset + length}",
        )
    return int(length)


def keep_outside(tensor: onnx.TensorProto, model: Path) -> None:
    """Let the data of a tensor stay in its file, which lies below the folder of the model.

    Raises:
        ModelImportError: as `stored_bytes`, or the file lies where it must not.
    """
    length, place = stored_bytes(tensor, model), _place(tensor, model)
    folder = model.parent.resolve()
    file = (folder / place.location).resolve()
    if Path(place.location).is_absolute() or not file.is_relative_to(folder):
        raise ModelImportError(
            _where(tensor, model),
            "their file is not in the folder of the model",
            got=place.location,
            hint="put it beside the model, a link out of the folder does not do",
        )
    settle(tensor, file, place.offset or 0, length)


def load_external(tensor: onnx.TensorProto, model: Path) -> None:
    """Read the data of a tensor into the model.

    Raises:
        ModelImportError: the file cannot be read, or lies where it must not.
    """
    try:
        load_external_data_for_tensor(tensor, str(model.parent))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise ModelImportError(_where(tensor, model), f"cannot be read: {error}") from error


def _place(tensor: onnx.TensorProto, model: Path) -> ExternalDataInfo:
    try:
        return ExternalDataInfo(tensor)
    except ValueError as error:
        raise ModelImportError(_where(tensor, model), f"no such place: {error}") from error


def _where(tensor: onnx.TensorProto, model: Path) -> str:
    return f"--model={model}, weights of {tensor.name}"


def _tensors_of(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    """Yield the tensors attributes of nodes hold, and all of their subgraphs."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
        for graph in subgraphs(node):
            yield from graph.initializer
            yield from _tensors_of(graph.node)
