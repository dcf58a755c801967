"""Notices that a module is no longer the one that was exported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from ctypes import c_char
from itertools import chain
from operator import attrgetter, is_, itemgetter
from typing import Any, Literal, cast

import torch
from torch.utils import _pytree as pytree

_TABLES = ("_parameters", "_buffers", "_modules")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_MUTABLE = (list, dict, set)
_SIMPLE = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
_LARGEST_CONTAINER = 64
_training = attrgetter("training")


class ModuleState:
    """State of the module an exported model was made of.

    Tensors are compared by `TensorWatch`, members of modules by identity, every other attribute by
    value or identity: `True` is not 1, 0.0 is not -0.0, and NaN equals itself. As long as nothing
    changes this takes a fixed number of calls from Python, and about a quarter of a microsecond for
    each tensor and each module.

    Args:
        module: The module as it is exported.
        modes: Training flags it was exported with, default are those it has.
        change: What has changed already.
        address_of: Tells where a parameter or buffer lies.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        modes: tuple[bool, ...] = (),
        change: str = "",
        address_of: AddressOf = torch.Tensor.data_ptr,
    ) -> None:
        self._watches = [
            _ModuleWatch(name, submodule) for name, submodule in module.named_modules()
        ]
        self._members = list(module.modules())
        self._tensors = TensorWatch(
            {**dict(module.named_parameters()), **dict(module.named_buffers())},
            address_of=address_of,
        )
        self.parameters = tuple(module.parameters())
        self.modes = modes or tuple(map(_training, self._members))
        self._modes = list(self.modes)
        self._change = change
        self._flatten()

    def _flatten(self) -> None:
        """Put what is compared at every call into lists, all modules together."""
        self._attributes = [watch.attributes for watch in self._watches]
        self._lengths = list(map(len, self._attributes))
        self._values = [(watch.get_values, watch.attributes) for watch in self._watches]
        self._values_before = self._values_now()
        self._hooks = [(watch.get_hooks, watch.attributes) for watch in self._watches]
        self._hooks_before = [watch.hooks for watch in self._watches]
        self._containers = [
            (watch.attributes, key, watch.exact[key])
            for watch in self._watches
            for key in watch.containers
        ]
        tables = [attributes[name] for attributes in self._attributes for name in _TABLES]
        self._tables = [table for table in tables if table]
        self._empty_tables = [table for table in tables if not table]
        self._members_before = self._table_members()
        self._odd = [watch for watch in self._watches if watch.has_objects]

    def change(self) -> str:
        """Return the change of state since, in words; the empty string if there is none."""
        if self._change:
            return self._change
        lengths = list(map(len, self._attributes))
        if lengths == self._lengths and self._is_same():
            return ""
        found = next(filter(None, (watch.change() for watch in self._watches)), "")
        found = found or self._tensors.change()
        if not found:
            self._lengths = lengths  # something was added that was not there, which is no change
        return found

    def _is_same(self) -> bool:
        try:
            return (
                self._tensors.is_same()
                and self._has_same_values()
                and [get(attributes) for get, attributes in self._hooks] == self._hooks_before
                and self._table_members() == self._members_before
                and not any(self._empty_tables)
                and not any(watch.object_change() for watch in self._odd)
            )
        except KeyError:
            return False

    def _values_now(self) -> list[Any]:
        return list(chain.from_iterable([get(attributes) for get, attributes in self._values]))

    def _has_same_values(self) -> bool:
        """Return True if attributes are the same objects, or as good as these."""
        now = self._values_now()
        if not all(map(is_, now, self._values_before)):
            pairs = zip(now, self._values_before, strict=True)
            if any(_exact(one) != _exact(other) for one, other in pairs if one is not other):
                return False
            self._values_before = now  # some modules set numbers anew in each forward
        if not self._containers:
            return True
        return all(_exact(attributes[key]) == exact for attributes, key, exact in self._containers)

    def _table_members(self) -> list[int]:
        return list(map(id, chain.from_iterable(map(dict.values, self._tables))))

    def value_change(self) -> str:
        """Return which attribute that is a plain value has changed, if one has."""
        return next(filter(None, (watch.value_change() for watch in self._watches)), "")

    def trains(self) -> bool:
        """Return True if a part of the module is in another mode than when it was exported."""
        return list(map(_training, self._members)) != self._modes


class _ModuleWatch:
    """One module without its children."""

    def __init__(self, name: str, module: torch.nn.Module) -> None:
        self._name = name
        self.attributes = module.__dict__
        self._plain = {
            key: (value, TensorWatch({key: value}))
            for key, value in module.__dict__.items()
            if isinstance(value, torch.Tensor)
        }
        simple = {key: value for key, value in _own(module) if _is_simple(value)}
        others = {key: value for key, value in _own(module) if not _is_simple(value)}
        if isinstance(module, torch.fx.GraphModule):
            others = {}  # notes of compilers, which change; its code is a string
        self.exact = {key: _exact(value) for key, value in simple.items()}
        self.containers = [key for key, value in simple.items() if type(value) in _MUTABLE]
        # two keys at least, so that they return tuples
        self.get_hooks = itemgetter(*_HOOKS)
        self.get_values = itemgetter(*_HOOKS, *simple)
        self.hooks = tuple(dict(module.__dict__[key]) for key in _HOOKS)
        self._others = others
        self._contents = {
            key: _contents(value) for key, value in others.items() if _is_container(value)
        }
        self._members = {key: _members(others[key]) for key in self._contents}
        self._kept = [dict(module.__dict__[table]) for table in _TABLES]  # so that ids stay theirs
        self._tables = [(table, _members(module.__dict__[table])) for table in _TABLES]
        self._patched = "forward" in module.__dict__

    @property
    def has_objects(self) -> bool:
        """True if attributes have to be compared by more than their value."""
        return bool(self._others or self._plain)

    def change(self) -> str:
        """Return the change of state, the empty string if there is none."""
        try:
            pairs = zip(_HOOKS, self.get_hooks(self.attributes), self.hooks, strict=True)
            for key, now, before in pairs:
                if now != before:
                    return self._changed(key)
            if change := self.value_change() or self.object_change():
                return change
        except KeyError as error:
            return self._changed(str(error.args[0]))
        for table, known in self._tables:
            if ((now := self.attributes[table]) or known) and _members(now) != known:
                return self._changed(table)
        return self._changed("forward") if ("forward" in self.attributes) != self._patched else ""

    def object_change(self) -> str:
        """Return which attribute that is no plain value has changed, if one has.

        Raises:
            KeyError: it is gone.
        """
        attributes = self.attributes
        for key, value in self._others.items():
            if attributes[key] is not value and not self._same_contents(key):
                return self._changed(key)
        for key, ids in self._members.items():
            if _members(attributes[key]) != ids and not self._same_contents(key):
                return self._changed(key)
        return next(
            (self._changed(key) for key in list(self._plain) if self._tensor_changed(key)), ""
        )

    def value_change(self) -> str:
        """Return which attribute that is a plain value has changed, if one has; no hooks."""
        for key, exact in self.exact.items():
            if key not in self.attributes or _exact(self.attributes[key]) != exact:
                return self._changed(key)
        return ""

    def _tensor_changed(self, key: str) -> bool:
        """Return True if an attribute holds other values; equal ones may take their place.

        Weight and spectral normalisation make their weight anew in each forward.
        """
        known, watch = self._plain[key]
        now = self.attributes[key]
        if watch.change():
            return True
        if now is known:
            return False
        same = isinstance(now, torch.Tensor) and now.dtype == known.dtype
        if not same or not torch.equal(now, known):
            return True
        self._plain[key] = (now, TensorWatch({key: now}))
        return False

    def _same_contents(self, key: str) -> bool:
        """Return True for another container of the same objects: torch.export makes such ones."""
        return key in self._contents and _contents(self.attributes[key]) == self._contents[key]

    def _changed(self, attribute: str) -> str:
        named = attribute.lstrip("_") if attribute in (*_TABLES, *_HOOKS) else attribute
        return f"{self._name}.{named} was changed".lstrip(".")


def _own(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield the attributes a module's class or user has set, none of the framework's tables."""
    for key, value in module.__dict__.items():
        if key not in _NOT_WATCHED and not isinstance(value, torch.Tensor):
            yield key, value


_DERIVED = frozenset({"_flat_weights", "_flat_weight_refs"})
"""Attributes that recurrent layers of torch 2.9 make anew from their parameters when traced."""
_NOT_WATCHED = frozenset(torch.nn.Module().__dict__) | _DERIVED


def tensors_of(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield parameters, buffers and tensors that are plain attributes, by qualified name."""
    for name, submodule in module.named_modules():
        tables = (submodule._parameters, submodule._buffers, submodule.__dict__)
        for table in tables:
            for key, value in table.items():
                if isinstance(value, torch.Tensor):
                    yield f"{name}.{key}".lstrip("."), value


def _exact(value: Any) -> Any:
    """Return a value that equals another such one if the plain values are the same."""
    if isinstance(value, dict):
        return dict, frozenset((_exact(key), _exact(one)) for key, one in value.items())
    if type(value) is set:
        return set, frozenset(map(_exact, value))
    if type(value) in (list, tuple):
        return type(value), tuple(map(_exact, value))
    if isinstance(value, int | float | complex):
        return type(value), repr(value)
    return value if isinstance(value, _SIMPLE) else (type(value), id(value))


def _members(value: Any) -> list[int]:
    """Return which objects a container holds; its owner keeps them alive."""
    return list(map(id, value.values() if isinstance(value, dict) else value))


def _contents(value: Any) -> list[int]:
    """Return which objects a container and the containers in it hold."""
    return [id(leaf) for leaf in pytree.tree_leaves(value)]


def _is_container(value: Any) -> bool:
    return type(value) in (list, tuple, dict, set)


def _is_simple(value: Any) -> bool:
    if type(value) is dict:
        return _is_simple(list(value)) and _is_simple(list(value.values()))
    if type(value) in (list, tuple, set):
        return len(value) <= _LARGEST_CONTAINER and all(isinstance(v, _SIMPLE) for v in value)
    return isinstance(value, _SIMPLE)


_SAMPLES = 16
"""Elements compared of each tensor: writes through `.data` or NumPy raise no version counter."""
_Code = Literal["b", "h", "i", "q"]
_BITS: Mapping[int, tuple[torch.dtype, _Code]] = {
    1: (torch.int8, "b"),
    2: (torch.int16, "h"),
    4: (torch.int32, "i"),
    8: (torch.int64, "q"),
}
AddressOf = Callable[[torch.Tensor], int]
_versions = attrgetter("_version")


class TensorWatch:
    """Compares addresses, PyTorch's version counters and a sample of the elements.

    Python cannot tell who writes to a tensor. A comparison runs no operator of PyTorch and takes
    about a seventh of a microsecond for each tensor.

    Args:
        tensors: By name; dense CPU tensors.
        address_of: Tells where a tensor lies.
    """

    def __init__(
        self,
        tensors: Mapping[str, torch.Tensor],
        *,
        address_of: AddressOf = torch.Tensor.data_ptr,
    ) -> None:
        self._change = ""
        self._address_of = address_of
        self._names = tuple(tensors)
        self._tensors = tuple(tensors.values())
        self._counted = tuple(tensor for tensor in self._tensors if not tensor.is_inference())
        self._storages = tuple(tensor.untyped_storage() for tensor in self._tensors)  # kept alive
        self._versions = list(map(_versions, self._counted))
        self._addresses = list(map(self._address_of, self._tensors))
        self._elements = [_elements(tensor) for tensor in self._tensors]
        self._before = [memoryview(view.tobytes()).cast(_code(view)) for view in self._elements]

    def change(self) -> str:
        """Return which tensor was written to or moved, the empty string if none was.

        Once changed, always changed: the tensors are let go then.
        """
        if not self._change and not self.is_same():
            self._change = f"{self._changed()} was changed"
            self._tensors = self._counted = self._storages = ()
            self._elements, self._before = [], []
        return self._change

    def is_same(self) -> bool:
        """Return True if no tensor was written to or moved since; addresses before elements."""
        return (
            not self._change
            and list(map(self._address_of, self._tensors)) == self._addresses
            and list(map(_versions, self._counted)) == self._versions
            and self._elements == self._before
        )

    def _changed(self) -> str:
        versions = dict(zip(map(id, self._counted), self._versions, strict=True))
        rows = zip(
            self._names, self._tensors, self._addresses, self._elements, self._before, strict=True
        )
        return next(
            name
            for name, tensor, address, elements, before in rows
            if self._address_of(tensor) != address
            or (id(tensor) in versions and _versions(tensor) != versions[id(tensor)])
            or elements != before
        )


def _code(view: memoryview[int]) -> _Code:
    return cast("_Code", view.format)


def _elements(tensor: torch.Tensor) -> memoryview[int]:
    """Return some elements where they are, as integers, so that NaN equals itself.

    NumPy would do, but a tensor with an array on it can never be resized again.
    """
    with torch.no_grad():
        plain = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        dense = torch.ops.aten.is_non_overlapping_and_dense(plain)
        flat = plain.detach().as_strided((plain.numel() if dense else 1,), (1,))
    dtype, code = _BITS[flat.element_size()]
    flat = flat.view(dtype)
    if not flat.numel() or not flat.data_ptr():
        return memoryview(b"")
    memory = (c_char * flat.nbytes).from_address(flat.data_ptr())
    step = max(1, flat.numel() // _SAMPLES)
    return memoryview(memory).cast("B").cast(code)[::step][:_SAMPLES]
