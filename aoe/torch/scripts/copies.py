"""Tunes the training of modules on copies: for `set_aoe(tune=True)`, whose script may be over."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils import _pytree as pytree

from aoe.errors import FallbackWarning, first_line
from aoe.torch.scripts.compiling import ScriptTraining
from aoe.torch.scripts.remembering import RememberedCall

_STEPS = 3
"""The first tunes both passes, the second compares them, the third computes with kernels."""


def tune_copies(
    training: ScriptTraining, calls: Sequence[RememberedCall], warn: Callable[[str], object]
) -> None:
    """Tune the forward and backward passes of calls in which gradients were wanted.

    Modules, their gradients and PyTorch's generator stay as they are.

    Args:
        training: Compiles; it need not watch.
        calls: Of the script.
        warn: Is told what cannot be tuned.
    """
    for call in calls:
        module = call.module()
        if module is None or not call.wants_gradients:
            continue
        if isinstance(module, DistributedDataParallel):
            module = module.module
        name = type(module).__name__
        try:
            with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
                warnings.simplefilter("ignore", FallbackWarning)  # its lines say that
                _step(training, copy.deepcopy(module), call)
        except Exception as error:  # of any module: the script goes on
            warn(f"the training of {name} is not tuned: {first_line(error)}")


def _step(training: ScriptTraining, module: torch.nn.Module, call: RememberedCall) -> None:
    compiled = training.compile(module)
    has_parameters = any(one.requires_grad for one in module.parameters())
    with torch.enable_grad():
        for _ in range(_STEPS):
            args, kwargs = call.arguments()
            given = args if has_parameters else _with_history(args)
            results = pytree.tree_leaves(compiled(*given, **kwargs))
            sums = [one.float().mean() for one in results if _has_history(one)]
            if sums:
                torch.stack(sums).sum().backward()


def _with_history(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments as another module would hand them on, for a loss without parameters."""
    return tuple(
        one.requires_grad_().clone()
        if isinstance(one, torch.Tensor) and one.is_floating_point()
        else one
        for one in args
    )


def _has_history(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad
