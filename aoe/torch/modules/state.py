"""Notices that a module is no longer the one that was exported."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import torch
from torch.utils import _pytree as pytree

_SAMPLES = 16
"""Elements compared of each tensor: writes through `.data` or NumPy raise no version counter."""
_TABLES = ("_parameters", "_buffers", "_modules")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_SIMPLE = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
_LARGEST_CONTAINER = 64
_TWO = ("_is_full_backward_hook", "_is_full_backward_hook")
"""A key every module has, twice: an itemgetter of two keys and more returns a tuple."""
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class ModuleState:
    """What an exported model was made of.

    Python cannot tell who writes to a tensor, so every tensor is compared by identity, address,
    PyTorch's version counter and a sample of its elements; every other attribute by value or
    identity. A comparison takes about two microseconds for each tensor and each module.

    Args:
        module: The module as it is exported.
        modes: Training flags it was exported with, default are those it has.
        change: What has changed already.
    """

    def __init__(
        self, module: torch.nn.Module, *, modes: tuple[bool, ...] = (), change: str = ""
    ) -> None:
        self._modules = [
            _ModuleWatch(name, submodule) for name, submodule in module.named_modules()
        ]
        self._members = [submodule for _, submodule in module.named_modules()]
        self._tensors = TensorWatch(
            {**dict(module.named_parameters()), **dict(module.named_buffers())}
        )
        self.modes = modes or tuple(member.training for member in self._members)
        self._change = change

    def change(self) -> str:
        """Return what has changed since, in words; the empty string if nothing has."""
        if self._change:
            return self._change
        for watch in self._modules:
            if change := watch.change():
                return change
        return self._tensors.change()

    def value_change(self) -> str:
        """Return which attribute that is a plain value has changed, if one has."""
        return next(filter(None, (watch.value_change() for watch in self._modules)), "")

    def trains(self) -> bool:
        """Return True if a part of the module is in another mode than when it was exported."""
        return any(
            member.training is not mode
            for member, mode in zip(self._members, self.modes, strict=True)
        )


class TensorWatch:
    """Notices writes to tensors.

    Args:
        tensors: By name; dense CPU tensors.
    """

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self._change = ""
        self._marked = tuple((name, tensor, _mark(tensor)) for name, tensor in tensors.items())
        views: dict[torch.dtype, list[torch.Tensor]] = {}
        for view in map(_sample, tensors.values()):
            views.setdefault(view.dtype, []).append(view)
        self._sampled = tuple((group, torch.cat(group)) for group in views.values())

    def change(self) -> str:
        """Return which tensor was written to or moved, the empty string if none was.

        Once changed, always changed: the tensors are let go then.
        """
        if not self._change:
            self._change = self._find_change()
            if self._change:
                self._marked, self._sampled = (), ()
        return self._change

    def _find_change(self) -> str:
        for name, tensor, mark in self._marked:
            if _mark(tensor) != mark:
                return f"{name} was changed"
        if not all(torch.equal(torch.cat(views), before) for views, before in self._sampled):
            return "weights were changed"
        return ""


class _ModuleWatch:
    """One module without its children."""

    def __init__(self, name: str, module: torch.nn.Module) -> None:
        self._name = name
        self._attributes = module.__dict__
        self._plain = {
            key: (value, TensorWatch({key: value}))
            for key, value in module.__dict__.items()
            if isinstance(value, torch.Tensor)
        }
        simple = {key: _copied(value) for key, value in _own(module) if _is_simple(value)}
        others = {key: value for key, value in _own(module) if not _is_simple(value)}
        if isinstance(module, torch.fx.GraphModule):
            others = {}  # notes of compilers, which change; its code is a string
        self._keys = tuple(simple)
        self._get_simple = itemgetter(*_TWO, *simple)
        self._simple = self._get_simple({**module.__dict__, **simple})
        self._others = others
        self._contents = {
            key: _contents(value) for key, value in others.items() if _is_container(value)
        }
        self._members = {key: _members(others[key]) for key in self._contents}
        self._kept = [dict(module.__dict__[table]) for table in _TABLES]  # so that ids stay theirs
        self._tables = [(table, _members(module.__dict__[table])) for table in _TABLES]
        self._hooks = [(hooks, tuple(module.__dict__[hooks])) for hooks in _HOOKS]
        self._patched = "forward" in module.__dict__

    def change(self) -> str:
        attributes = self._attributes
        if change := self.value_change():
            return change
        try:
            for key, value in self._others.items():
                if attributes[key] is not value and not self._same_contents(key):
                    return self._changed(key)
            for key, ids in self._members.items():
                if _members(attributes[key]) != ids and not self._same_contents(key):
                    return self._changed(key)
            for key in self._plain:
                if self._tensor_changed(key):
                    return self._changed(key)
        except KeyError as error:
            return self._changed(str(error.args[0]))
        for table, known in self._tables:
            if ((now := attributes[table]) or known) and _members(now) != known:
                return self._changed(table.lstrip("_"))
        for hooks, keys in self._hooks:
            if ((now := attributes[hooks]) or keys) and tuple(now) != keys:
                return self._changed(hooks.lstrip("_"))
        return self._changed("forward") if ("forward" in attributes) != self._patched else ""

    def value_change(self) -> str:
        try:
            if self._get_simple(self._attributes) != self._simple:
                return self._changed(self._changed_attribute())
        except KeyError as error:
            return self._changed(str(error.args[0]))
        return ""

    def _tensor_changed(self, key: str) -> bool:
        """Return True if an attribute holds other values; equal ones may take their place.

        Weight and spectral normalisation make their weight anew in each forward.
        """
        known, watch = self._plain[key]
        now = self._attributes[key]
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
        return key in self._contents and _contents(self._attributes[key]) == self._contents[key]

    def _changed_attribute(self) -> str:
        before = dict(zip((*_TWO, *self._keys), self._simple, strict=True))
        return next(key for key, value in before.items() if self._attributes[key] != value)

    def _changed(self, attribute: str) -> str:
        return f"{self._name}.{attribute} was changed".lstrip(".")


def _own(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield the attributes a module's class or user has set, none of the framework's tables."""
    for key, value in module.__dict__.items():
        if key not in _NOT_WATCHED and not isinstance(value, torch.Tensor):
            yield key, value


_DERIVED = frozenset({"_flat_weights", "_flat_weight_refs"})
"""What recurrent layers of torch 2.9 make anew of their parameters when they are traced."""
_NOT_WATCHED = frozenset(torch.nn.Module().__dict__) | _DERIVED


def tensors_of(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield parameters, buffers and tensors that are plain attributes, by qualified name."""
    for name, submodule in module.named_modules():
        tables = (submodule._parameters, submodule._buffers, submodule.__dict__)
        for table in tables:
            for key, value in table.items():
                if isinstance(value, torch.Tensor):
                    yield f"{name}.{key}".lstrip("."), value


def _mark(tensor: torch.Tensor) -> tuple[int, int]:
    version = 0 if tensor.is_inference() else tensor._version
    return version, tensor.data_ptr()


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view of some elements as integers, so that NaN equals itself."""
    with torch.no_grad():
        plain = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        dense = torch.ops.aten.is_non_overlapping_and_dense(plain)
        flat = plain.detach().as_strided((plain.numel() if dense else 1,), (1,))
        step = max(1, flat.numel() // _SAMPLES)
        return flat[::step][:_SAMPLES].view(_BITS[flat.element_size()])


def _copied(value: Any) -> Any:
    return type(value)(value) if _is_container(value) else value


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
