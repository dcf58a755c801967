"""The ONNX entry (`--framework=5`)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from aoe.entry.imported_model import ImportedModel
from aoe.entry.input_shapes import fix_input_shapes
from aoe.entry.protocol import Entry
from aoe.errors import ModelImportError, ModelNotFoundError

_MIN_IR_VERSION = 4  # from here on an initializer need not be a graph input, so it is a constant
_MAX_BYTES = 2**31 - 1  # protobuf's limit for one message


def load_onnx(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> ImportedModel:
    """Read and check an ONNX file and fix its input shapes.

    Raises:
        ModelNotFoundError: no such file.
        ModelImportError: unreadable, not ONNX, invalid, too large, or shapes stay open.
    """
    proto = _read(path)
    make_initializers_constant(proto)
    fix_input_shapes(proto, shapes)
    return ImportedModel(
        name=path.stem,
        path=path,
        sha256=hashlib.sha256(proto.SerializeToString(deterministic=True)).hexdigest(),
        proto=proto,
    )


def make_initializers_constant(proto: onnx.ModelProto) -> None:
    """Take initializers out of the graph inputs, in place.

    Before IR version 4 every initializer had to be listed as an input; ONNX Runtime then takes
    it for a value that may be overridden and leaves many optimisations out.
    """
    weights = {tensor.name for tensor in proto.graph.initializer}
    inputs = [value for value in proto.graph.input if value.name not in weights]
    if len(inputs) != len(proto.graph.input):
        del proto.graph.input[:]
        proto.graph.input.extend(inputs)
    proto.ir_version = max(proto.ir_version, _MIN_IR_VERSION)


def _read(path: Path) -> onnx.ModelProto:
    if not path.exists():
        raise ModelNotFoundError(f"--model={path}", "no such file")
    if path.is_dir():
        raise ModelImportError(f"--model={path}", "is a directory", expected="an .onnx file")
    try:
        proto = onnx.load(str(path), format="protobuf")
        size = proto.ByteSize()
    except DecodeError as error:
        raise ModelImportError(
            f"--model={path}", "not an ONNX model, or a truncated one", hint=str(error)
        ) from error
    except (OSError, onnx.checker.ValidationError) as error:
        raise ModelImportError(f"--model={path}", f"cannot be read: {error}") from error
    if size > _MAX_BYTES:
        raise ModelImportError(
            f"--model={path}",
            "the model with its weights is too large",
            got=f"{size} bytes",
            expected=f"at most {_MAX_BYTES} bytes",
        )
    _check(path, proto)
    return proto


def _check(path: Path, proto: onnx.ModelProto) -> None:
    if not proto.graph.node:
        raise ModelImportError(f"--model={path}", "not an ONNX model, or one without any operator")
    values = (*proto.graph.input, *proto.graph.output)
    tensors = [value.type.tensor_type for value in values if value.type.HasField("tensor_type")]
    shapeless = [tensor for tensor in tensors if not tensor.HasField("shape")]
    for tensor in shapeless:  # the checker wants one, ONNX Runtime does not
        tensor.shape.SetInParent()
    try:
        onnx.checker.check_model(proto)
    except onnx.checker.ValidationError as error:
        # Operators of other domains are ONNX Runtime's business: it says so when it loads them.
        if "No Op registered" not in str(error) and "No opset import" not in str(error):
            first = (str(error).strip().splitlines() or ["the checker does not say why"])[0]
            raise ModelImportError(f"--model={path}", f"not a valid model: {first}") from error
    except UnicodeDecodeError as error:
        raise ModelImportError(f"--model={path}", f"not a valid model: {error}") from error
    finally:
        for tensor in shapeless:
            tensor.ClearField("shape")


ONNX = Entry(framework="ONNX", load=lambda source: load_onnx(source.path, source.shapes))
