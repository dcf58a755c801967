"""Open dimensions of a module's arguments: what `torch.export` calls `dynamic_shapes`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aoe.entry.shape_range import Extents
from aoe.errors import OptionError

OPTION = "dynamic_shapes"
_EXPECTED = 'torch.export.Dim("length", min=1, max=512)'
_LARGEST = 1 << 31
"""What PyTorch has for a dimension without an end is larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDim:
    """A dimension whose extent may be anything of a range.

    Attributes:
        axis: Of the tensor.
        name: Dimensions of one name have one extent in a call.
        extents: Its range.
    """

    axis: int
    name: str
    extents: Extents


OpenDims = tuple[OpenDim, ...]
"""The open dimensions of a tensor."""


def open_dims_of(
    given: Any, parameters: Sequence[str], tensors: Mapping[str, torch.Tensor]
) -> tuple[OpenDims, ...]:
    """Return the open dimensions of each tensor of a call.

    Args:
        given: As `torch.export.export` takes it: for arguments by name, or in their order. Of a
            tensor it is a mapping of axes, or a sequence with None for a fixed dimension.
        parameters: Names of the arguments in their order.
        tensors: Of the example by name.

    Raises:
        OptionError: it does not fit the call, or a dimension is no `torch.export.Dim` with an end.
    """
    by_name = given if isinstance(given, Mapping) else dict(zip(parameters, given, strict=False))
    for name, dims in by_name.items():
        if dims is not None and name not in tensors:
            raise OptionError(
                OPTION, "no tensor of the call", got=name, expected=", ".join(tensors)
            )
    found = tuple(_of_tensor(by_name.get(name), name, one) for name, one in tensors.items())
    if not any(found):
        raise OptionError(OPTION, "no dimension is open", got=given)
    _check_names([dim for dims in found for dim in dims])
    return found


def _of_tensor(given: Any, name: str, tensor: torch.Tensor) -> OpenDims:
    if given is None:
        return ()
    axes = given if isinstance(given, Mapping) else dict(enumerate(given))
    return tuple(
        _open_dim(axis % tensor.dim() if tensor.dim() else axis, dim, name, tensor)
        for axis, dim in axes.items()
        if dim is not None
    )


def _open_dim(axis: int, dim: Any, name: str, tensor: torch.Tensor) -> OpenDim:
    where = f"{OPTION}: dimension {axis} of {name}"
    low, high = getattr(dim, "min", None), getattr(dim, "max", None)
    label = getattr(dim, "__name__", "")
    if not isinstance(low, int) or not isinstance(high, int) or not label or high > _LARGEST:
        raise OptionError(where, "no range", got=dim, expected=_EXPECTED)
    low = max(1, low)
    if axis >= tensor.dim() or not low < high or not low <= tensor.shape[axis] <= high:
        raise OptionError(
            where, "the example does not fit", got=list(tensor.shape), expected=f"{low} to {high}"
        )
    return OpenDim(axis=axis, name=label, extents=Extents(low, high))


def _check_names(dims: Sequence[OpenDim]) -> None:
    known: dict[str, Extents] = {}
    for dim in dims:
        if known.setdefault(dim.name, dim.extents) != dim.extents:
            raise OptionError(OPTION, "one name for two ranges", got=dim.name)
