"""The `--input_shape` option: `"name:1,3,224,224;other:1,16"`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import onnx

from aoe.errors import ModelImportError, OptionError

if TYPE_CHECKING:
    from aoe.ort.inputs import InputSet

OPEN = -1
"""An extent that is open. Source: AOE and ATC, `--input_shape` of dynamic models."""
MOST = 2**63 - 1
"""Largest extent ONNX's format holds."""
_EXAMPLE = 'for example --input_shape="input:1,3,224,224"; separate several inputs with ;'


def parse_input_shape(
    text: str | None, *, open_extents: bool = False
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of an `--input_shape` value by input name.

    Args:
        text: The value.
        open_extents: Whether an extent may be `OPEN`.

    Raises:
        OptionError: an entry is not `name:extents` or an extent is no integer from 0 to 2**63 - 1.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    least = OPEN if open_extents else 0
    for item in filter(None, (part.strip() for part in (text or "").split(";"))):
        before, colon, extents = item.rpartition(":")  # names may hold colons ("x:0")
        name = before.strip()
        try:
            shape = tuple(int(extent) for extent in extents.split(",")) if extents else ()
        except ValueError:
            shape = (OPEN - 1,)
        if not colon or not name or not all(least <= extent <= MOST for extent in shape):
            raise OptionError(
                "--input_shape", "not a name with extents", got=repr(item), hint=_EXAMPLE
            )
        if name in shapes:
            raise OptionError("--input_shape", "input given twice", got=name, hint=_EXAMPLE)
        shapes[name] = shape
    return shapes


def fix_input_shapes(
    proto: onnx.ModelProto,
    shapes: Mapping[str, tuple[int, ...]],
    given: InputSet | None = None,
) -> None:
    """Write `shapes` into the graph inputs of `proto` and check that all are static then.

    An input with an initializer has the shape of that default; one that stays open has that of
    the array it is given.

    Args:
        proto: Changed in place.
        shapes: By input name.
        given: Arrays the model will be run on.

    Raises:
        ModelImportError: an unknown name, another rank, a contradiction of a fixed extent, or
            an input whose shape is still open.
        RunError: an array cannot be read.
    """
    inputs = {value.name: value for value in proto.graph.input}
    for tensor in proto.graph.initializer:
        if tensor.name in inputs and not _is_static(inputs[tensor.name]):
            _fix(inputs[tensor.name], tuple(tensor.dims))
    extents: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in inputs:
            raise ModelImportError(
                "--input_shape", "the model has no such input", got=name, expected=_listed(inputs)
            )
        names = [dim.dim_param for dim in inputs[name].type.tensor_type.shape.dim]
        _fix(inputs[name], shape)
        extents |= {one: extent for one, extent in zip(names, shape, strict=False) if one}
    for name, array in (given.files_of(list(inputs)) if given is not None else {}).items():
        if name in inputs and not _is_static(inputs[name]):
            _fix(inputs[name], array.load().shape, option=f"input {name}: {array}")
    for value in inputs.values():
        _check_tensor(value)
    still_open = [value for value in inputs.values() if not _is_static(value)]
    if still_open:
        given_entries = (f"{name}:{','.join(map(str, shape))}" for name, shape in shapes.items())
        suggested = (f"{value.name}:{_suggestion(value, extents)}" for value in still_open)
        raise ModelImportError(
            f"input {still_open[0].name}",
            "its shape is not static, and tuning needs one",
            got=_written(still_open[0]),
            hint=f'--input_shape="{";".join((*given_entries, *suggested))}"',
        )


def _fix(value: onnx.ValueInfoProto, shape: tuple[int, ...], option: str = "--input_shape") -> None:
    _check_tensor(value)
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        tensor.shape.SetInParent()  # a scalar has a shape without any dim
        for _ in shape:
            tensor.shape.dim.add()
    dims = tensor.shape.dim
    if len(dims) != len(shape):
        raise ModelImportError(
            option,
            f"input {value.name} has another rank",
            got=f"{len(shape)} extents",
            expected=f"{len(dims)}: {_written(value)}",
        )
    for dim, extent in zip(dims, shape, strict=True):
        if dim.dim_value > 0 and dim.dim_value != extent:  # some write 0 for "open"
            raise ModelImportError(
                option,
                f"input {value.name} has a fixed extent in the model",
                got=",".join(map(str, shape)),
                expected=_written(value),
            )
    for dim, extent in zip(dims, shape, strict=True):
        dim.dim_value = extent


def _check_tensor(value: onnx.ValueInfoProto) -> None:
    if not value.type.HasField("tensor_type"):
        raise ModelImportError(
            f"input {value.name}",
            "only tensor inputs can be tuned",
            got=str(value.type.WhichOneof("value")).removesuffix("_type"),
        )


def _is_static(value: onnx.ValueInfoProto) -> bool:
    tensor = value.type.tensor_type
    return tensor.HasField("shape") and all(
        dim.HasField("dim_value") and dim.dim_value >= 0 for dim in tensor.shape.dim
    )


def _written(value: onnx.ValueInfoProto) -> str:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return "no shape"
    return ",".join(
        str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?"
        for dim in tensor.shape.dim
    )


def _suggestion(value: onnx.ValueInfoProto, extents: Mapping[str, int]) -> str:
    """Return a shape the input could be given, in the form of `--input_shape`.

    Args:
        value: The input.
        extents: Of open extents by the name they have in the model; others are 1.
    """
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return "1,3,224,224"
    return ",".join(
        str(dim.dim_value if dim.dim_value > 0 else extents.get(dim.dim_param, 1))
        for dim in tensor.shape.dim
    )


def _listed(inputs: Mapping[str, onnx.ValueInfoProto]) -> str:
    return "one of " + "; ".join(f"{name}:{_written(value)}" for name, value in inputs.items())
