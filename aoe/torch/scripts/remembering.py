"""The calls of a script's first step, remembered without their data.

AOE's tutorial calls `set_aoe` behind ten steps. So that it finds something there, a script that
imports `aoe.torch` has its first step remembered: which modules it called, with which shapes.
Behind that step nothing is watched any more.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any
from weakref import ref

if TYPE_CHECKING:
    import torch

_MOST_CALLS = 32
"""Outermost calls that are looked at where no optimizer steps: those of inference."""
_PLAIN = (bool, int, float, str, type(None))


@dataclass(frozen=True, slots=True)
class TensorShape:
    """A tensor of a call, without its data."""

    shape: tuple[int, ...]
    dtype: Any

    def example(self) -> torch.Tensor:
        """Return a tensor like it: drawn numbers, or zeros, which are valid as indices."""
        import torch

        if self.dtype.is_floating_point:
            return torch.randn(self.shape).to(self.dtype)
        return torch.zeros(self.shape, dtype=self.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedCall:
    """A call of a module; equal calls are one."""

    module: ref[torch.nn.Module]
    leaves: tuple[Any, ...]  # Of its arguments, tensors replaced by their shapes
    spec: Any  # Puts the leaves together
    wants_gradients: bool  # True for a call of training

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return arguments like those of the call."""
        from torch.utils import _pytree as pytree

        made = [one.example() if isinstance(one, TensorShape) else one for one in self.leaves]
        args, kwargs = pytree.tree_unflatten(made, self.spec)
        return args, kwargs


def remembered_call(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> RememberedCall | None:
    """Return a call as it is remembered, None for one with objects that are no tensors."""
    import torch
    from torch.utils import _pytree as pytree

    from aoe.torch.scripts.outermost import wants_gradients

    leaves, spec = pytree.tree_flatten((args, dict(kwargs)))
    found: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            if leaf.layout != torch.strided or leaf.is_quantized or leaf.is_complex():
                return None
            found.append(TensorShape(tuple(leaf.shape), leaf.dtype))
        elif isinstance(leaf, _PLAIN):
            found.append(leaf)
        else:
            return None
    return RememberedCall(
        module=ref(module),
        leaves=tuple(found),
        spec=spec,
        wants_gradients=wants_gradients(module, args, kwargs),
    )


class FirstStep:
    """Remembers the outermost calls of the first step of this process."""

    def __init__(self) -> None:
        self._calls: dict[object, RememberedCall] = {}
        self._seen = 0
        self._is_over = False

    @property
    def calls(self) -> Sequence[RememberedCall]:
        """The calls whose modules are still there."""
        return [one for one in self._calls.values() if one.module() is not None]

    def start(self) -> None:
        """Begin to watch; ends behind an optimizer step, or after some calls."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        from aoe.torch.scripts.outermost import OutermostCalls

        self._watch = OutermostCalls(self._see)
        self._watch.start()
        # PyTorch takes no hook out while it goes through them, so this one stays
        register_optimizer_step_post_hook(lambda *step: self.close())

    def close(self) -> None:
        """Stop watching; a second call does nothing."""
        if not self._is_over:
            self._is_over = True
            self._watch.close()

    def _see(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        self._seen += 1
        if self._seen >= _MOST_CALLS:
            self.close()
        found = remembered_call(module, args, kwargs)
        if found is not None:
            # a look without gradients is no call of training, and True is no 1
            told = (str(found.leaves), str(found.spec), found.wants_gradients)
            self._calls.setdefault((found.module, *told), found)


FIRST_STEP = FirstStep()
"""Of this process."""


def remember_for_script() -> None:
    """Remember the first step of the script that imports `aoe.torch` itself, else nothing."""
    if _importer() != "__main__":
        return
    if "torch" in sys.modules:
        FIRST_STEP.start()
    else:
        sys.meta_path.insert(0, _AfterTorch())


def _importer() -> str:
    """Return the name of the module whose import has led here."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if not name.startswith(("importlib", "_frozen_importlib", "aoe.torch")):
            return name
        frame = frame.f_back
    return ""


class _AfterTorch:
    """Begins to watch as soon as the script has imported PyTorch."""

    def find_spec(
        self, name: str, path: Any = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Let the usual finders find PyTorch, and do something behind its import."""
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def executed(module: ModuleType) -> None:
            execute(module)
            FIRST_STEP.start()

        spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec
