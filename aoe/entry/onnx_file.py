"""The ONNX entry (`--framework=5`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]
from onnx import TensorProto, helper
from onnx.external_data_helper import uses_external_data

from aoe.device.registry import default_device
from aoe.entry.converted_versions import check_converted
from aoe.entry.external_weights import (
    external_tensors,
    keep_outside,
    load_external,
    stored_bytes,
)
from aoe.entry.input_shapes import fix_input_shapes
from aoe.entry.outputs import cut_at_outputs
from aoe.entry.protocol import MAX_BYTES, Entry, ImportedModel, digest_of, model_name
from aoe.entry.quantised_parameters import check_quantised_parameters
from aoe.errors import ModelImportError, ModelNotFoundError, RunError
from aoe.graph.model_graph import names_read
from aoe.graph.protos import copied, refill
from aoe.graph.weights import (
    SMALL_BYTES,
    bytes_of,
    is_settled,
    place_of,
    stay_outside,
    without_initializers,
)
from aoe.ort.branches import free_branches, has_branches
from aoe.ort.newer_opsets import ReadableModel, in_readable_opset
from aoe.ort.offline_optimization import is_fully_optimized
from aoe.ort.sessions import (
    NO_PACKING,
    lacking_operator,
    newest_ir_version,
    session_options,
    session_source,
)

if TYPE_CHECKING:
    from aoe.ort.inputs import InputSet

_WHOLE_BYTES = (
    *(TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16),
    *(TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64),
    *(TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64),
)
_ELEMENT_BYTES = {kind: helper.tensor_dtype_to_np_dtype(kind).itemsize for kind in _WHOLE_BYTES}
CheckModel = Callable[[onnx.ModelProto], object]
_OTHER_FRAMEWORKS = {
    ".prototxt": "--framework=0 --weight=FILE.caffemodel",
    **dict.fromkeys((".pb", ".keras", ".h5", ".hdf5"), "--framework=3"),
}
"""Options that read a file with this ending which is no ONNX model."""
_FOR_ONNX_RUNTIME = ("No Op registered", "No opset import", "is deprecated in domain_version")
"""The checker's words on operators of other domains and on those ONNX has given up.

Which of these it computes, ONNX Runtime says when it loads the model: GroupNormalization of opset
18 is one.
"""
_MIN_IR_VERSION = 4  # from here on an initializer need not be a graph input, so it is a constant

_SEEN_IR_VERSION = 10
"""ONNX Runtime 1.28 and all newer ones read it. Source: the enum Version in onnx.proto."""


def load_onnx(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    given: InputSet | None = None,
    output_nodes: Sequence[str] = (),
) -> ImportedModel:
    """Read and check an ONNX file, cut it and fix its input shapes.

    See `cut_at_outputs` and `fix_input_shapes`.

    Raises:
        ModelNotFoundError: no such file.
        ModelImportError: unreadable, not ONNX, invalid, too large, or shapes stay open.
    """
    readable = _readable(path, output_nodes)
    proto, caveat = readable.proto, readable.caveat
    if not has_branches(proto):
        fix_input_shapes(proto, shapes, given)
        return _imported(path, proto, caveat)
    written = copied(proto)
    fix_input_shapes(proto, shapes, given)
    opens = partial(is_fully_optimized, open_session=default_device().open_session)
    freed = free_branches(proto, written, opens)
    return _imported(path, freed.proto, caveat, freed.caveat)


def load_open_onnx(path: Path, output_nodes: Sequence[str] = ()) -> ImportedModel:
    """Read and check an ONNX file whose input shapes may stay open.

    Raises:
        ModelNotFoundError: no such file.
        ModelImportError: unreadable, not ONNX, invalid, or too large.
    """
    readable = _readable(path, output_nodes)
    return _imported(path, readable.proto, readable.caveat)


def _readable(path: Path, output_nodes: Sequence[str]) -> ReadableModel:
    """Return a checked ONNX file, cut at its outputs, in an opset ONNX Runtime computes."""
    proto = read_onnx(path)
    make_initializers_constant(proto)
    cut_at_outputs(proto, output_nodes)
    return as_host_reads(proto, f"--model={path}")


def as_host_reads(proto: onnx.ModelProto, where: str) -> ReadableModel:
    """Return a model in versions of IR and opset that ONNX Runtime computes.

    Args:
        proto: A checked model; its IR version is lowered in place.
        where: What the user calls it.

    Raises:
        ModelImportError: an operator has no older version that means the same.
    """
    _lower_ir_version(proto)
    readable = in_readable_opset(proto, _refused)
    if readable.problem:
        raise ModelImportError(
            where,
            f"ONNX Runtime does not compute {readable.problem}",
            hint="export the model with simpler operators in its place",
        )
    return readable


def _refused(proto: onnx.ModelProto) -> str | None:
    """Return the operator or opset ONNX Runtime refuses: see `aoe.ort.newer_opsets.Refused`."""
    options = session_options(threads=1, optimize=False)
    options.add_session_config_entry(NO_PACKING, "1")
    try:
        default_device().open_session(session_source(proto, options), options)
    except RunError as error:
        return lacking_operator(error)
    return None


def _imported(path: Path, proto: onnx.ModelProto, *caveats: str) -> ImportedModel:
    where = f"--model={path}"
    return ImportedModel(
        name=model_name(path.stem),
        path=path,
        sha256=digest_of(proto, where),
        proto=proto,
        caveat="; ".join(
            filter(
                None,
                (
                    _caveat(proto),
                    *caveats,
                    check_converted(proto, where),
                    check_quantised_parameters(proto, where),
                ),
            )
        ),
    )


def make_initializers_constant(proto: onnx.ModelProto) -> None:
    """Take initializers out of the graph inputs of an old model, in place.

    Before IR version 4 every initializer had to be listed as an input and was a constant all the
    same. From then on one that is listed is a default, which a caller may override: it stays an
    input.
    """
    if proto.ir_version >= _MIN_IR_VERSION:
        return
    weights = {tensor.name for tensor in proto.graph.initializer}
    inputs = [value for value in proto.graph.input if value.name not in weights]
    refill(proto.graph.input, inputs)
    proto.ir_version = _MIN_IR_VERSION


def _caveat(proto: onnx.ModelProto) -> str:
    weights = {tensor.name for tensor in proto.graph.initializer}
    names = [value.name for value in proto.graph.input if value.name in weights]
    if not names:
        return ""
    one = len(names) == 1
    found = (
        f"weight {names[0]} is an input too"
        if one
        else f"{len(names)} weights are inputs too, {names[0]} for one"
    )
    them = "it" if one else "them"
    return (
        f"{found}: callers may override {them}, so ONNX Runtime and the kernels cannot take {them} "
        f"for {'a constant' if one else 'constants'}; if nobody does, export the model without "
        f"{them} in its inputs"
    )


def read_onnx(path: Path, *, check: CheckModel = onnx.checker.check_model) -> onnx.ModelProto:
    """Return a checked ONNX file as it is: input shapes may be open.

    Args:
        path: The file.
        check: Raises `onnx.checker.ValidationError` for a model that is not valid.

    Raises:
        ModelNotFoundError: no such file.
        ModelImportError: unreadable, not ONNX, invalid, or too large.
    """
    if not path.exists():
        raise ModelNotFoundError(f"--model={path}", "no such file")
    if path.is_dir():
        is_saved = (path / "saved_model.pb").is_file()
        raise ModelImportError(
            f"--model={path}",
            "is a directory",
            expected="an .onnx file",
            hint="--framework=3" if is_saved else f"--model_path={path} tunes the models in it",
        )
    _check_size(path.stat().st_size, path)  # before minutes go into reading it
    try:
        proto = onnx.load(str(path), format="protobuf", load_external_data=False)
    except DecodeError as error:
        raise ModelImportError(
            f"--model={path}",
            "not an ONNX model, or a truncated one",
            hint=_OTHER_FRAMEWORKS.get(path.suffix.lower()),
        ) from error
    except OSError as error:
        raise ModelImportError(f"--model={path}", f"cannot be read: {error}") from error
    _take_weights(path, proto)
    _lower_ir_version(proto)  # the checker has a newest version, too
    _order_nodes(proto.graph)
    _check(path, proto, check)
    return proto


def _order_nodes(graph: onnx.GraphProto) -> None:
    """Put every node behind those it reads, in place, as ONNX Runtime does when it loads a model.

    The checker refuses another order, which converters to float16 write. A circle stays for it.
    """
    made = {name: at for at, node in enumerate(graph.node) for name in node.output if name}
    needs = {
        at: [made[name] for name in names_read(node) if name in made]
        for at, node in enumerate(graph.node)
    }
    if all(need < at for at, read in needs.items() for need in read):
        return
    sorter, order = TopologicalSorter(needs), list[int]()
    try:
        sorter.prepare()
    except CycleError:
        return
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        order.extend(ready)
        sorter.done(*ready)
    refill(graph.node, [graph.node[at] for at in order])


def _lower_ir_version(proto: onnx.ModelProto) -> None:
    """Write the newest IR version ONNX Runtime reads into a model of a newer one, in place.

    Nothing is lost: since version 10 each has only added element types, which ONNX Runtime refuses
    by themselves.
    """
    newest = newest_ir_version() if proto.ir_version > _SEEN_IR_VERSION else None
    if newest is not None:
        proto.ir_version = min(proto.ir_version, newest)


def _take_weights(path: Path, proto: onnx.ModelProto) -> None:
    """Read what lies in other files, but for the weights of a model that is too large for that."""
    outside = external_tensors(proto)
    if stay_outside(sum(stored_bytes(tensor, path) for tensor in outside)):
        for tensor in filter(uses_external_data, proto.graph.initializer):
            if stored_bytes(tensor, path) > SMALL_BYTES:
                keep_outside(tensor, path)
        outside = [tensor for tensor in outside if not is_settled(tensor)]
    _check_size(path.stat().st_size + sum(stored_bytes(t, path) for t in outside), path)
    for tensor in outside:
        load_external(tensor, path)


def _check_size(size: int, path: Path) -> None:
    if size > MAX_BYTES:
        raise ModelImportError(
            f"--model={path}",
            "a model without weights in files of their own is too large",
            got=f"{size} bytes",
            expected=f"at most {MAX_BYTES} bytes",
            hint="onnx.save(..., save_as_external_data=True) keeps them in a file of their own",
        )


def _check(path: Path, proto: onnx.ModelProto, check: CheckModel) -> None:
    if not proto.graph.node:
        raise ModelImportError(
            f"--model={path}",
            "not an ONNX model, or one without any operator",
            hint=_OTHER_FRAMEWORKS.get(path.suffix.lower()),
        )
    undecoded = _undecoded_text(proto)
    if undecoded:
        raise ModelImportError(
            f"--model={path}", "not a valid model: a text in it is not UTF-8", got=undecoded
        )
    values = (*proto.graph.input, *proto.graph.output)
    tensors = [value.type.tensor_type for value in values if value.type.HasField("tensor_type")]
    shapeless = [tensor for tensor in tensors if not tensor.HasField("shape")]
    for tensor in shapeless:  # the checker wants one, ONNX Runtime does not
        tensor.shape.SetInParent()
    try:
        check(_without_contents(proto))
    except onnx.checker.ValidationError as error:
        if not any(words in str(error) for words in _FOR_ONNX_RUNTIME):
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            why = "; ".join(lines[:1] + [line for line in lines[1:] if "==> Context" in line])
            raise ModelImportError(
                f"--model={path}", f"not a valid model: {why or 'the checker does not say why'}"
            ) from error
    except UnicodeDecodeError as error:
        raise ModelImportError(f"--model={path}", f"not a valid model: {error}") from error
    finally:
        for tensor in shapeless:
            tensor.ClearField("shape")


def _without_contents(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a light copy for the checker, its large weights left out once their size is checked.

    Raises:
        ValidationError: a weight has not the size its shape says.
    """
    light = without_initializers(proto)
    light.training_info.extend(proto.training_info)
    for tensor in proto.graph.initializer:
        # what is there, not what its shape says
        length = len(tensor.raw_data) if place_of(tensor) is None else bytes_of(tensor)
        known = tensor.data_type in _ELEMENT_BYTES
        if not is_settled(tensor) and (length <= SMALL_BYTES or not known):
            light.graph.initializer.append(tensor)
            continue
        wanted = math.prod(tensor.dims) * _ELEMENT_BYTES[tensor.data_type] if known else length
        if length != wanted:
            raise onnx.checker.ValidationError(
                f"initializer {tensor.name!r} of shape {list(tensor.dims)} holds {length} bytes, "
                f"expected {wanted}"
            )
        light.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=[0])
    return light


def _undecoded_text(message: Message) -> str:
    """Return the first text that is not UTF-8, or the empty string.

    Protobuf gives such a text as bytes, or fails to; ONNX Runtime would take it.
    """
    try:
        for field, value in message.ListFields():
            if field.type not in (field.TYPE_MESSAGE, field.TYPE_STRING):
                continue
            for item in [value] if isinstance(value, str | bytes | Message) else value:
                found = _undecoded_text(item) if isinstance(item, Message) else ""
                if found or isinstance(item, bytes):
                    return found or repr(item)
    except UnicodeDecodeError as error:
        return repr(error.object)
    return ""


ONNX = Entry(
    framework="ONNX",
    load=lambda source: load_onnx(source.path, source.shapes, source.given, source.output_nodes),
    load_open=lambda source: load_open_onnx(source.path, source.output_nodes),
    takes_output_nodes=True,
    suffixes=(".onnx",),
)
