"""Calls of the modules a script calls itself, seen before they run."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils import _python_dispatch
from torch.utils import _pytree as pytree

See = Callable[[torch.nn.Module, tuple[Any, ...], Mapping[str, Any]], None]


class OutermostCalls:
    """Shows each outermost module call of one thread; calls of modules within it are not shown.

    While such a call runs, PyTorch has its own `Module.__call__`: inner calls cost nothing more,
    and Dynamo traces modules as it always does. Exchanging it takes 60 us, so a watch should end.

    Args:
        see: Gets the module and its arguments.
    """

    def __init__(self, see: See) -> None:
        self._see = see
        self._thread = threading.get_ident()
        self._is_active = self._is_inside = False

    def start(self) -> None:
        """Begin to watch."""
        self._plain = torch.nn.Module.__call__
        self._own = self._watched(self._plain)
        self._is_active = True
        torch.nn.Module.__call__ = self._own

    def close(self) -> None:
        """Stop watching; a watch that began later, and goes on, passes calls through this one."""
        self._is_active = False
        if torch.nn.Module.__call__ is self._own:
            torch.nn.Module.__call__ = self._plain

    def _watched(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def watched(module: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            # compiling comes first: a graph would be guarded by the rest, and be made anew
            if (
                torch.compiler.is_compiling()
                or not self._is_active
                or self._is_inside
                or threading.get_ident() != self._thread
            ):
                return plain(module, *args, **kwargs)
            self._is_inside = True
            is_own = torch.nn.Module.__call__ is self._own
            try:
                self._see(module, args, kwargs)
                if is_own:
                    torch.nn.Module.__call__ = plain
                return module(*args, **kwargs) if is_own else plain(module, *args, **kwargs)
            finally:
                self._is_inside = False
                if is_own and self._is_active and torch.nn.Module.__call__ is plain:
                    torch.nn.Module.__call__ = self._own

        return watched


def wants_gradients(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> bool:
    """True if a call is one of training: its results have a history."""
    if not torch.is_grad_enabled() or _python_dispatch._get_current_dispatch_mode() is not None:
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None:  # vmap, grad and their like
        return False
    return any(one.requires_grad for one in module.parameters()) or any(
        isinstance(leaf, torch.Tensor) and leaf.requires_grad
        for leaf in pytree.tree_leaves((args, dict(kwargs)))
    )
