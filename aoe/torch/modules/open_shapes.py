"""Open dimensions of a module's arguments: what `torch.export` calls `dynamic_shapes`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from aoe.entry.shape_range import Extents
from aoe.errors import OptionError

OPTION = "dynamic_shapes"
_EXPECTED = 'torch.export.Dim("length", min=1, max=512)'
_FORM = '{"x": {0: torch.export.Dim("length")}}'
NO_END = 1 << 31
"""Largest extent of a dimension without an end; what PyTorch has for it is not smaller."""
_GROWTH = 4
"""Times the extent of the example: tuned for that much where a dimension has no end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDim:
    """A dimension of extent `times * name + plus`, where `name` may be anything of a range."""

    axis: int  # Of the tensor
    name: str  # Has one value in a call, whatever dimensions follow from it
    extents: Extents  # The range of the name
    tuned: Extents  # The part of the range the model is tuned for; all of it unless that has no end
    times: int = 1  # Factor, 1 where the extent is that of the name
    plus: int = 0  # What is added

    @property
    def most(self) -> int | None:
        """The largest extent, None for no end."""
        return self.extents.high if self.extents.high < NO_END else None

    @property
    def tuned_range(self) -> Extents:
        """Extents of the dimension itself the model is tuned for."""
        low, high = (self.times * one + self.plus for one in (self.tuned.low, self.tuned.high))
        return Extents(max(1, low), high)

    def value_of(self, extent: int) -> int | None:
        """Return the value of the name where the dimension has an extent, None for no such one."""
        value, rest = divmod(extent - self.plus, self.times)
        return value if not rest and value in self.extents else None


OpenDims = tuple[OpenDim, ...]
"""The open dimensions of a tensor."""


def make_open_dim(
    axis: int, name: str, low: int, high: int | None, extent: int, dynamic_max: int | None
) -> OpenDim:
    """Return an open dimension.

    Args:
        axis: Of the tensor.
        name: Of the dimension.
        low: Least extent.
        high: Largest extent, None for no end.
        extent: In the example.
        dynamic_max: Extent up to which the model is tuned if there is no end; None for four times
            that of the example.
    """
    bound = high or max(dynamic_max or _GROWTH * extent, extent, low + 1)
    return OpenDim(
        axis=axis,
        name=name,
        extents=Extents(low, high or NO_END),
        tuned=Extents(low, bound),
    )


def open_dims_of(
    given: Any,
    parameters: Sequence[str],
    tensors: Mapping[str, torch.Tensor],
    dynamic_max: int | None = None,
) -> tuple[OpenDims, ...]:
    """Return the open dimensions of each tensor of a call.

    Args:
        given: As `torch.export.export` takes it: for arguments by name, or in their order. Of a
            tensor it is a mapping of axes, or a sequence; a fixed dimension is None, its extent or
            `Dim.STATIC`.
        parameters: Names of the arguments in their order.
        tensors: Of the example by name.
        dynamic_max: See `make_open_dim`.

    Raises:
        OptionError: it does not fit the call, or a dimension is no `torch.export.Dim`.
    """
    if not isinstance(given, Mapping | list | tuple):
        raise OptionError(OPTION, "no arguments by name or in order", got=given, expected=_FORM)
    if not isinstance(given, Mapping) and len(given) > len(parameters):
        raise OptionError(
            OPTION, "more entries than arguments", got=len(given), expected=", ".join(parameters)
        )
    by_name = given if isinstance(given, Mapping) else dict(zip(parameters, given, strict=False))
    for name, dims in by_name.items():
        if dims is not None and name not in tensors:
            raise OptionError(
                OPTION, "no tensor of the call", got=name, expected=", ".join(tensors)
            )
    found = tuple(
        _of_tensor(by_name.get(name), name, one, dynamic_max) for name, one in tensors.items()
    )
    if not any(found):
        raise OptionError(OPTION, "no dimension is open", got=given)
    _check_names([dim for dims in found for dim in dims])
    return found


def _of_tensor(given: Any, name: str, tensor: torch.Tensor, dynamic_max: int | None) -> OpenDims:
    if given is None:
        return ()
    if not isinstance(given, Mapping | list | tuple):
        raise OptionError(OPTION, f"no axes of {name}", got=given, expected=_FORM)
    axes = given if isinstance(given, Mapping) else dict(enumerate(given))
    rank = tensor.dim()
    for axis in axes:
        if not isinstance(axis, int) or not -rank <= axis < rank:
            raise OptionError(OPTION, f"{name} has no axis {axis}", got=list(tensor.shape))
    return tuple(
        _open_dim(axis % rank, dim, name, tensor, dynamic_max)
        for axis, dim in axes.items()
        if not _is_fixed(dim, tensor.shape[axis])
    )


def _is_fixed(dim: Any, extent: int) -> bool:
    """True for what `torch.export` takes for a dimension that is not open."""
    kind = getattr(getattr(dim, "type", None), "name", "")
    return dim is None or kind == "STATIC" or (isinstance(dim, int) and dim == extent)


def _open_dim(
    axis: int, dim: Any, name: str, tensor: torch.Tensor, dynamic_max: int | None
) -> OpenDim:
    where = f"{OPTION}: dimension {axis} of {name}"
    root = getattr(dim, "root", dim)  # of `2*length` that is `length`
    low, end = getattr(root, "min", None), getattr(root, "max", None)
    label = getattr(root, "__name__", "")
    if not isinstance(low, int) or end is None or not label:
        raise OptionError(where, "no range", got=dim, expected=_EXPECTED)
    low, high = max(1, low), end if isinstance(end, int) and end < NO_END else None
    plus = 0 if root is dim else dim.fn(0)
    times = 1 if root is dim else dim.fn(1) - plus
    value = (tensor.shape[axis] - plus) // times
    found = make_open_dim(axis, label, low, high, value, dynamic_max)
    found = replace(found, times=times, plus=plus)
    is_range = low < (high or NO_END)
    if not is_range or found.value_of(tensor.shape[axis]) is None:
        least, most = (None if one is None else times * one + plus for one in (low, high))
        raise OptionError(
            where,
            "the example does not fit",
            got=list(tensor.shape),
            expected=(f"{least} to {most}" if high else f"{least} and more")
            + (f", {dim.__name__}" if times > 1 else ""),
        )
    return found


def _check_names(dims: Sequence[OpenDim]) -> None:
    known: dict[str, Extents] = {}
    for dim in dims:
        if known.setdefault(dim.name, dim.extents) != dim.extents:
            raise OptionError(OPTION, "one name for two ranges", got=dim.name)
