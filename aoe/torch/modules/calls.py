"""Calls of a module: forms of the arguments that are tensors, and values of the others."""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from aoe.errors import ModelImportError
from aoe.graph.protos import free_name
from aoe.torch.modules.open_shapes import OpenDims, open_dims_of

_PLAIN = (bool, int, float, complex, str, bytes, type(None), enum.Enum, torch.dtype, torch.device)
"""Types of arguments whose value never changes behind our back."""
EXCHANGED = frozenset(
    {
        torch.float16,
        torch.float32,
        torch.float64,
        torch.bool,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint8,
        torch.uint16,
        torch.uint32,
        torch.uint64,
    }
)
"""Element types that NumPy, ONNX and PyTorch have in common, so tensors can change hands."""
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_VAR_POSITIONAL = inspect.Parameter.VAR_POSITIONAL
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorForm:
    """Properties that two tensors share where they are the same kind of input."""

    shape: tuple[int, ...]  # Extents; those of open dimensions say nothing
    dtype: torch.dtype  # Element type
    open_dims: OpenDims = ()  # Dimensions that are open

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}"

    def takes(self, shape: Sequence[int], extents: dict[str, int]) -> bool:
        """True for a shape that differs in open dimensions at most, within their ranges.

        Args:
            shape: Of a tensor of a call.
            extents: Values of the names of open dimensions, of the tensors of the call before
                this one; a name has one value, and those of this one are added.
        """
        if not self.open_dims:
            return shape == self.shape
        dims = {dim.axis: dim for dim in self.open_dims}
        return len(shape) == len(self.shape) and all(
            (one == own)
            if (dim := dims.get(axis)) is None
            else (value := dim.value_of(one)) is not None
            and extents.setdefault(dim.name, value) == value
            for axis, (one, own) in enumerate(zip(shape, self.shape, strict=True))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """An argument that is not a tensor: its value is part of the exported model."""

    value: Any

    def matches(self, other: Any) -> bool:
        """Return True for the same value of the same type; NaN is itself, -0.0 is not 0.0."""
        if type(other) is not type(self.value):
            return False
        if isinstance(other, float | complex):
            return repr(other) == repr(self.value)
        return bool(other == self.value)

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatCall:
    """The arguments of one call in a row, and how they were nested."""

    leaves: list[Any]
    spec: Any

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The arguments that are tensors, in order."""
        return [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    def rebuild(self, tensors: Sequence[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return positional and keyword arguments with other tensors in place of the call's own."""
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return args, kwargs


class CallConvention:
    """Brings every way of writing the same call into one form.

    Args:
        function: What is called; its signature says which names positions have.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        try:
            self._signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):
            self._signature = None
        self._is_wrapped = hasattr(function, "__wrapped__") or hasattr(function, "__signature__")

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> FlatCall:
        """Return a call with defaults filled in and keywords in the order of the signature.

        A decorator may put in arguments that are missing, and other ones than the defaults it
        shows: behind one, nothing is filled in, and what can be left out is given by name.

        Raises:
            TypeError: the function cannot be called like this.
        """
        if self._signature is not None:
            bound = self._signature.bind(*args, **kwargs)
            if self._is_wrapped:
                args, kwargs = _by_name(bound)
            else:
                bound.apply_defaults()
                args, kwargs = bound.args, bound.kwargs
        leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
        return FlatCall(leaves=leaves, spec=spec)

    def open_dims(
        self, given: Any, call: FlatCall, dynamic_max: int | None
    ) -> tuple[OpenDims, ...]:
        """Return the open dimensions of each tensor of a call; see `open_dims_of`.

        Raises:
            OptionError: what is given does not fit the call.
        """
        parameters = list(self._signature.parameters) if self._signature is not None else []
        tensors = dict(zip(self.names(call), call.tensors, strict=True))
        return open_dims_of(given, parameters, tensors, dynamic_max)

    def names(self, call: FlatCall) -> list[str]:
        """Return a name for each tensor of a call, distinct and free of odd characters."""
        parameters = list(self._signature.parameters) if self._signature is not None else []
        paths = [
            path
            for path, leaf in pytree.tree_flatten_with_path(
                pytree.tree_unflatten(call.leaves, call.spec)
            )[0]
            if isinstance(leaf, torch.Tensor)
        ]
        found: list[str] = []
        for path in paths:
            parts = [str(_plain_key(key)) for key in path[1:]]
            first = parts[0] if parts else ""
            if _plain_key(path[0]) == 0 and first.isdigit() and int(first) < len(parameters):
                parts[0] = parameters[int(first)]
            name = re.sub(r"\W+", "_", "_".join(parts)) or "x"
            found.append(name if name not in found else free_name(f"{name}_{len(found)}", found))
        return found


def _by_name(bound: inspect.BoundArguments) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a call in which only parameters that need a position have one."""
    positions, names = list(bound.args), dict(bound.kwargs)
    parameters = bound.signature.parameters
    if not any(parameters[name].kind is _VAR_POSITIONAL for name in bound.arguments):
        given = [name for name in bound.arguments if parameters[name].kind in _POSITIONAL]
        while positions and _can_be_left_out(parameters[name := given[len(positions) - 1]]):
            names[name] = positions.pop()
    order = {name: place for place, name in enumerate(parameters)}
    return tuple(positions), dict(sorted(names.items(), key=lambda n: order.get(n[0], len(order))))


def _can_be_left_out(parameter: inspect.Parameter) -> bool:
    return parameter.kind is not _POSITIONAL[0] and parameter.default is not parameter.empty


@dataclass(frozen=True, slots=True, kw_only=True)
class CallForm:
    """Types, values and shapes that one exported model may be called with."""

    spec: Any
    leaves: tuple[TensorForm | Constant, ...]

    @property
    def is_open(self) -> bool:
        """True if calls of several shapes are accepted."""
        return any(isinstance(leaf, TensorForm) and leaf.open_dims for leaf in self.leaves)

    def accepts(self, call: FlatCall) -> bool:
        """Return True if the exported model computes this very call."""
        extents: dict[str, int] = {}
        return call.spec == self.spec and all(
            _fits(leaf, form, extents) for leaf, form in zip(call.leaves, self.leaves, strict=True)
        )


def form_of(call: FlatCall, where: str, open_dims: Sequence[OpenDims] = ()) -> CallForm:
    """Return the form of a call.

    Args:
        call: The call.
        where: The module, for errors.
        open_dims: Open dimensions of each tensor; nothing for none.

    Raises:
        ModelImportError: an argument is neither a dense CPU tensor nor a plain value.
    """
    leaves = [_leaf_form(leaf, where) for leaf in call.leaves]
    given = iter(open_dims)
    opened = (
        replace(leaf, open_dims=next(given, ())) if isinstance(leaf, TensorForm) else leaf
        for leaf in leaves
    )
    return CallForm(spec=call.spec, leaves=tuple(opened))


def describe(call: FlatCall) -> str:
    """Return a call in words: equal for calls which one exported model could serve."""
    return ", ".join(
        f"{_described(leaf)}" if isinstance(leaf, torch.Tensor) else f"{leaf!r:.60}"
        for leaf in call.leaves
    )


def is_plain(value: Any) -> bool:
    """Return True for a value that can be kept in a model as it is."""
    return isinstance(value, _PLAIN)


def _leaf_form(leaf: Any, where: str) -> TensorForm | Constant:
    if isinstance(leaf, torch.Tensor):
        if leaf.device.type != "cpu" or leaf.layout is not torch.strided:
            raise ModelImportError(
                where, "an argument is not a dense CPU tensor", got=_described(leaf)
            )
        if not leaf.numel():
            raise ModelImportError(where, "an argument is an empty tensor", got=_described(leaf))
        if leaf.dtype not in EXCHANGED:
            raise ModelImportError(
                where, "an argument has an element type NumPy does not have", got=leaf.dtype
            )
        return TensorForm(shape=tuple(leaf.shape), dtype=leaf.dtype)
    if not is_plain(leaf):
        raise ModelImportError(
            where,
            "an argument is neither a tensor nor a plain value",
            got=type(leaf).__name__,
            expected="tensors, numbers, strings and None, nested in tuples, lists and dicts",
        )
    return Constant(value=leaf)


def _fits(leaf: Any, form: TensorForm | Constant, extents: dict[str, int]) -> bool:
    if isinstance(form, Constant):
        return form.matches(leaf)
    return (
        type(leaf) in _TENSORS
        and leaf.dtype is form.dtype
        and form.takes(leaf.shape, extents)
        and leaf.layout is torch.strided
        and leaf.device.type == "cpu"
    )


def _described(tensor: torch.Tensor) -> str:
    text = str(TensorForm(shape=tuple(tensor.shape), dtype=tensor.dtype))
    if tensor.device.type != "cpu":
        text += f" on {tensor.device}"
    if tensor.layout is not torch.strided:
        text += f" {str(tensor.layout).removeprefix('torch.')}"
    return text if type(tensor) in _TENSORS else f"{text} {type(tensor).__name__}"


def _plain_key(key: Any) -> Any:
    """Return the step of a pytree path: an index, a dict key or an attribute."""
    for name in ("idx", "key", "name"):
        if hasattr(key, name):
            return getattr(key, name)
    return key
