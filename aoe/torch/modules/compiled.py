"""A drop-in module: ONNX Runtime computes what it was tuned for, PyTorch everything else."""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch
from torch.autograd import forward_ad

from aoe.errors import FallbackWarning, RunError
from aoe.torch.modules.calls import CallConvention, FlatCall, describe
from aoe.torch.modules.served import ServedModel
from aoe.torch.modules.state import tensors_of


class Fallback(StrEnum):
    """Reason for which PyTorch computes a call of an optimized module."""

    GRADIENTS = "gradients are wanted"
    TANGENTS = "a forward-mode derivative is wanted"
    TRANSFORM = "a transform of torch.func is at work"
    DISPATCH_MODE = "a mode watches every operator"
    AUTOCAST = "autocast is on"
    FORK = "this is a forked process"
    INPUTS = "other inputs"
    LAYOUTS = "too many layouts"
    STATE = "the module has changed"
    FAILURE = "the tuned model failed"


class FallbackCounts:
    """Calls of one module that PyTorch computed, by reason; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[Fallback] = Counter()

    def add(self, reason: Fallback) -> bool:
        """Count a call; return True for the first of all."""
        with self._lock:
            self._counts[reason] += 1
            return self._counts.total() == 1

    def by_reason(self) -> Counter[str]:
        """Return the number of calls for each reason, in words."""
        with self._lock:
            return Counter({reason.value: count for reason, count in self._counts.items()})


_OWN = ("_original", "_served", "_convention", "_fallbacks")
_SHARED = (
    "_parameters",
    "_buffers",
    "_modules",
    "_non_persistent_buffers_set",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
"""Tables of the original that are the wrapper's too, so that changes to either reach both."""


class OptimizedModule(torch.nn.Module):  # type: ignore[misc]
    """A module that runs through a tuned model where that computes the same.

    It is called like the original and holds its very parameters, buffers and children:
    `state_dict`, `parameters`, `train`, `eval`, `to` and attributes act on the original.

    PyTorch computes, as if nothing had been tuned, while the module is training or being traced,
    and, with one `FallbackWarning` and a count for each reason (see `fallbacks`), where gradients
    are wanted, under autocast, for calls of another form, and from the moment the module's state
    differs from the exported one.

    Args:
        original: The module that was exported.
        served: What computes instead.
    """

    def __init__(self, original: torch.nn.Module, served: ServedModel) -> None:
        super().__init__()
        own = self.__dict__
        for name in _SHARED:
            own[name] = original.__dict__[name]
        own["_original"] = original
        own["_served"] = served
        own["_convention"] = CallConvention(original.forward)
        own["_fallbacks"] = FallbackCounts()

    @property
    def _orig_mod(self) -> torch.nn.Module:  # what torch.compile's wrapper calls it
        return self.original

    @property
    def original(self) -> torch.nn.Module:
        """The module PyTorch computes."""
        module: torch.nn.Module = self.__dict__["_original"]
        return module

    @property
    def om_file(self) -> Path:
        """The tuned model behind it."""
        return self._served_model.om_file

    @property
    def _served_model(self) -> ServedModel:
        served: ServedModel = self.__dict__["_served"]
        return served

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute what the original computes."""
        original: torch.nn.Module = self.__dict__["_original"]
        if torch.compiler.is_compiling() or torch.jit.is_tracing() or original.training:
            return original(*args, **kwargs)
        try:
            call: FlatCall = self.__dict__["_convention"].flatten(args, kwargs)
        except TypeError:
            return original(*args, **kwargs)  # it says best what is wrong with the call
        served = self._served_model
        if served.trains():
            return original(*args, **kwargs)
        if reason := self._reason(served, call):
            self._warn(*reason)
            return original(*args, **kwargs)
        if not served.layouts.knows(call):
            if served.layouts.is_full:
                self._warn(Fallback.LAYOUTS, "arguments lie in memory in too many ways")
                return original(*args, **kwargs)
            served.learn(call, original(*args, **kwargs))
        try:
            return served.compute(call)
        except (RunError, RuntimeError) as error:
            self._warn(Fallback.FAILURE, f"the tuned model failed: {error}")
            return original(*args, **kwargs)

    def _reason(self, served: ServedModel, call: FlatCall) -> tuple[Fallback, str] | None:
        """Return the reason why PyTorch has to compute, and its text; None if there is none."""
        if torch.is_grad_enabled() and served.needs_gradient(call):
            return Fallback.GRADIENTS, "gradients are wanted; call it under torch.no_grad()"
        if mode := self._mode(call):
            return mode, mode.value
        if served.is_forked():
            return Fallback.FORK, "this is a forked process, where ONNX Runtime cannot compute"
        if not served.form.accepts(call):
            said = describe(call)
            return Fallback.INPUTS, f"the model was tuned for other inputs, these are {said}"
        if change := served.change():
            remedy = getattr(type(self.original), "STALE_REMEDY", "optimize the module again")
            return Fallback.STATE, f"{change} since; {remedy}"
        return None

    def _mode(self, call: FlatCall) -> Fallback | None:
        """Return the PyTorch mode that does more to operators than compute them."""
        if torch.is_autocast_enabled("cpu"):
            return Fallback.AUTOCAST
        functorch = torch._C._functorch
        if functorch.peek_interpreter_stack() is not None and any(
            map(functorch.is_functorch_wrapped_tensor, call.tensors)
        ):
            return Fallback.TRANSFORM
        if self._has_tangent(call):
            return Fallback.TANGENTS
        return Fallback.DISPATCH_MODE if torch._C._len_torch_dispatch_stack() else None

    def _has_tangent(self, call: FlatCall) -> bool:
        if forward_ad._current_level < 0:  # no dual level: tensors are plain
            return False
        tensors = [*call.tensors, *(tensor for _, tensor in tensors_of(self.original))]
        return any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)

    def _warn(self, kind: Fallback, reason: str) -> None:
        """Count a call that PyTorch computes, and say so the first time."""
        if not self.__dict__["_fallbacks"].add(kind):
            return
        name = type(self.original).__name__
        text = f"{name}: running in PyTorch: {reason} (said once; aoe.torch.fallbacks() counts)"
        warnings.warn(text, FallbackWarning, stacklevel=5)

    # ---- everything else is the original's business ----

    @property
    def training(self) -> bool:
        """True if the original is in training mode."""
        original = self.__dict__.get("_original")
        return original.training if original is not None else True

    @training.setter
    def training(self, mode: bool) -> None:
        original = self.__dict__.get("_original")
        if original is not None:
            original.training = mode

    def train(self, mode: bool = True) -> OptimizedModule:
        self.original.train(mode)
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.original.state_dict(*args, **kwargs)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        return self.original.load_state_dict(state_dict, strict=strict, assign=assign)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self.original._load_from_state_dict(*args, **kwargs)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> OptimizedModule:
        self.original._apply(fn, recurse)
        return self

    def extra_repr(self) -> str:
        return f"tuned: {self.om_file.name}"

    def __getattr__(self, name: str) -> Any:
        if name in _OWN or "_original" not in self.__dict__:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute {name!r}")
        return getattr(self.__dict__["_original"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if "_original" in self.__dict__ and name not in self.__dict__:
            setattr(self.__dict__["_original"], name, value)
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.original, name)

    def __reduce__(self) -> tuple[Any, ...]:
        served = self._served_model
        try:
            return _restore, (self.original, served.packed())
        except OSError as error:
            raise pickle.PicklingError(f"{served.om_file}: {error.strerror}") from error

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return self.__reduce__()

    def __deepcopy__(self, memo: dict[int, Any]) -> OptimizedModule:
        restore, (original, packed) = self.__reduce__()
        copied: OptimizedModule = restore(copy.deepcopy(original, memo), packed)
        memo[id(self)] = copied
        return copied


def _restore(original: torch.nn.Module, packed: Mapping[str, Any]) -> OptimizedModule:
    return OptimizedModule(original, ServedModel.unpacked(packed, original))


def fallbacks(module: torch.nn.Module) -> Counter[str]:
    """Return the number of calls that PyTorch computed instead of a tuned model, by reason.

    Each optimized module warns of the first of them only. Calls in training mode and under a tracer
    are not counted: nothing is expected of a tuned model there.

    Args:
        module: What `aoe.torch.optimize` returned, or a module that holds such ones.

    Returns:
        Calls by reason, all optimized modules in it together; empty where there were none.
    """
    counts: Counter[str] = Counter()
    for member in module.modules():
        if isinstance(member, OptimizedModule):
            counts += member.__dict__["_fallbacks"].by_reason()
    return counts
