"""`fused=True` for the optimizers of a script, where a few steps on copies agree.

PyTorch's fused optimizers update all parameters of a group in one pass over memory; the plain form
calls a dozen operators for each parameter. The fused form is off by default, on the CPU too.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from aoe.errors import first_line
from aoebank import plural, say

FUSIBLE = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad)
"""Optimizers with a fused form on the CPU. Source: torch 2.9, torch/optim."""
_COPIES = 4
"""Parameters of a group whose steps are compared: the smallest, the largest, two between."""
_MOST_ELEMENTS = 1 << 22
"""Larger parameters are not copied: the comparison takes memory and time of the first step."""
_STEPS = 3
_ROUNDINGS = 32
"""Roundings of a tensor's largest element two forms may differ by after these steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedOptimizer:
    """What became of an optimizer."""

    name: str  # Class of the optimizer
    groups: int  # Its groups of parameters
    fused: int  # Of these, groups that are updated by the fused form
    copies: int  # Parameters on whose copies both forms were compared
    reason: str  # Why the first of the others is not; empty if there is none

    def __str__(self) -> str:
        name = f"optimizer {self.name}"
        if not self.fused:
            return f"{name}: as it is ({self.reason})"
        part = "" if self.fused == self.groups else f" for {self.fused} of {self.groups} groups"
        left = f"; as they are: {self.reason}" if self.reason else ""
        return (
            f"{name}: fused=True{part}, {_STEPS} steps agree on copies of "
            f"{plural(self.copies, 'parameter')}{left}"
        )


class FusedOptimizers:
    """Sets `fused=True` for the steps of each optimizer of this process, and only while they run.

    Copies of an optimizer, and what is saved of it, have the form its script has chosen.

    Attributes:
        found: What became of the optimizers, in the order of their first steps.

    Args:
        is_told: True if each optimizer is said in one line.
    """

    def __init__(self, *, is_told: bool = True) -> None:
        self.found: list[FusedOptimizer] = []
        self._is_told = is_told
        # Verdicts on the groups of an optimizer. Groups that are added later get theirs later.
        self._reasons: WeakKeyDictionary[torch.optim.Optimizer, list[str]] = WeakKeyDictionary()
        self._fuses = True
        # Groups that are fused for the step under way.
        self._set: WeakKeyDictionary[torch.optim.Optimizer, list[dict[str, Any]]] = (
            WeakKeyDictionary()
        )
        self._handles: tuple[Any, ...] = ()

    @property
    def has_fused(self) -> bool:
        """True if a group is updated by the fused form, unknown to the script."""
        return any(one.fused for one in self.found)

    def start(self) -> None:
        """Look at every optimizer that steps from here on."""
        if not self._handles:
            self._handles = (
                register_optimizer_step_pre_hook(self._begin_step),
                register_optimizer_step_post_hook(lambda optimizer, *step: self._reset(optimizer)),
            )

    def close(self) -> None:
        """Look at no further step: each one is as the script has it."""
        for handle in self._handles:
            handle.remove()
        self._handles = ()

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Set the groups of an optimizer whose gradients are there."""
        if torch.compiler.is_compiling() or type(optimizer) not in FUSIBLE:
            return
        self._reset(optimizer)  # where the step before has raised
        reasons = self._reasons.get(optimizer)
        groups = optimizer.param_groups
        if reasons is None or len(reasons) < len(groups):
            reasons = self._looked_at(optimizer, reasons or [])
        for group, reason in zip(groups, reasons, strict=False):
            is_open = not reason and group["fused"] is None and group["foreach"] is None
            if is_open and self._fuses and _fits_this_step(optimizer, group):
                group["fused"] = True
                self._set.setdefault(optimizer, []).append(group)

    def use(self, *, is_fused: bool) -> None:
        """Update by the fused form from here on, or as the script has it."""
        self._fuses = is_fused

    def give_back(self, reason: str) -> None:
        """Leave all optimizers as the script has them, from here on."""
        for handle in self._handles[:1]:  # no hook behind a step: PyTorch may be going through them
            handle.remove()
        self.use(is_fused=False)
        self.found = [
            replace(one, fused=0, reason=reason) if one.fused else one for one in self.found
        ]

    def _begin_step(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Set the groups; behind the closure where there is one, which computes the gradients."""
        own, *given = args
        if torch.compiler.is_compiling() or type(optimizer) not in FUSIBLE:
            return None
        if not any(one is not None for one in (*given, *kwargs.values())):
            self.before_step(optimizer)
            return None

        def behind(closure: Any) -> Any:
            def closed() -> Any:
                loss = closure()
                self.before_step(optimizer)
                return loss

            return closed if callable(closure) else closure

        return (own, *map(behind, given)), {name: behind(one) for name, one in kwargs.items()}

    def _reset(self, optimizer: torch.optim.Optimizer) -> None:
        """Give the groups of an optimizer back, as the script has them."""
        for group in self._set.pop(optimizer, ()):
            group["fused"] = None

    def _looked_at(self, optimizer: torch.optim.Optimizer, known: Sequence[str]) -> list[str]:
        new = optimizer.param_groups[len(known) :]
        if all(_has_no_gradient(group) for group in new):
            return [*known]  # such a step does nothing
        reasons, copies = list(known), 0
        for group in new:
            reason = reason_against_fused(group, optimizer.state)
            if not reason:
                chosen = _sample(group)
                reason = _disagreement(optimizer, group, chosen)
                copies += 0 if reason else len(chosen)
            reasons.append(reason)
        if optimizer not in self._reasons:
            # a checkpoint behind a step that was interrupted
            optimizer.register_state_dict_pre_hook(self._reset)
        self._reasons[optimizer] = reasons
        one = FusedOptimizer(
            name=type(optimizer).__name__,
            groups=len(new),
            fused=sum(not reason for reason in reasons[len(known) :]),
            copies=copies,
            reason=next((reason for reason in reasons[len(known) :] if reason), ""),
        )
        self.found.append(one)
        if self._is_told and (one.fused or one.reason != _CHOSEN):
            say(f"aoe: {one}")
        return reasons


_CHOSEN = "the script has chosen its form"


def reason_against_fused(
    group: Mapping[str, Any], state: Mapping[torch.Tensor, Mapping[str, Any]] | None = None
) -> str:
    """Return why a group of parameters is not to be updated by the fused form; empty if it is.

    A group that sets `fused` or `foreach` is the script's own choice.

    Args:
        group: Of an optimizer, behind a backward pass.
        state: Of its optimizer, by parameter; None where there is none yet.
    """
    if group.get("fused") is not None or group.get("foreach") is not None:
        return _CHOSEN
    for name in ("differentiable", "capturable"):
        if group.get(name):
            return f"it is {name}"
    known = state or {}
    reasons = (_reason_against(one, known.get(one, {})) for one in group["params"])
    return next(filter(None, reasons), "")


def _reason_against(parameter: torch.Tensor, state: Mapping[str, Any]) -> str:
    """Return the reason for which the fused form updates a parameter otherwise; empty if none.

    The fused form goes through the memory of parameter, gradient and state side by side, whatever
    their extents and strides: PyTorch compares these on no CPU. Source: torch 2.13,
    aten/src/ATen/native/cpu/Fused*Kernel.cpp.
    """
    if type(parameter) not in (torch.Tensor, torch.nn.Parameter):
        return f"a parameter is a {type(parameter).__name__}"
    if not parameter.is_cpu or parameter.dtype is not torch.float32:
        return f"a parameter is {parameter.dtype} on {parameter.device.type}"
    gradient = parameter.grad
    if parameter.layout is not torch.strided or (
        gradient is not None and gradient.layout is not torch.strided
    ):
        return "a parameter or a gradient is sparse"
    if gradient is None:
        return ""
    if type(gradient) is not torch.Tensor or gradient.dtype is not parameter.dtype:
        return "a gradient is of another type than its parameter"
    shape = parameter.shape
    beside = [gradient]
    beside += [v for k, v in state.items() if k != "step" and isinstance(v, torch.Tensor)]
    for one in beside:
        if one.shape != shape:
            return "a gradient or its state has another shape than its parameter"
    if all(map(torch.Tensor.is_contiguous, (parameter, *beside))):
        return ""
    if not _has_no_gaps(parameter):
        return "a parameter has gaps in memory, or elements that share it"
    if not all(_lies_like(one, parameter) for one in beside):
        return "a gradient has another order in memory than its parameter"
    return ""


def _fits_this_step(optimizer: torch.optim.Optimizer, group: Mapping[str, Any]) -> bool:
    """True if the fused form computes this step of a group as the plain one does.

    Of momenta it takes all or none. Source: torch 2.13, torch/optim/sgd.py.
    """
    has_momentum: set[bool] = set()
    for parameter in group["params"]:
        state = optimizer.state.get(parameter, {})
        if _reason_against(parameter, state):
            return False
        if parameter.grad is not None:
            has_momentum.add(state.get("momentum_buffer") is not None)
    return not group.get("momentum") or len(has_momentum) < 2


def _lies_like(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True if elements of one place follow each other in both; a single one has any stride."""
    strides, others = one.stride(), other.stride()
    return strides == others or all(
        n == 1 or step == step_of_other
        for n, step, step_of_other in zip(other.shape, strides, others, strict=True)
    )


def _has_no_gaps(parameter: torch.Tensor) -> bool:
    """True if the elements are all of a block of memory, in whatever order."""
    if parameter.is_contiguous():
        return True
    step = 1
    for stride, extent in sorted(zip(parameter.stride(), parameter.shape, strict=True)):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


def _has_no_gradient(group: dict[str, Any]) -> bool:
    return all(parameter.grad is None for parameter in group["params"])


def _sample(group: dict[str, Any]) -> list[torch.Tensor]:
    """Return some parameters with gradients, of different sizes."""
    ready = [one for one in group["params"] if one.grad is not None]
    small = sorted((p for p in ready if 0 < p.numel() <= _MOST_ELEMENTS), key=torch.numel)
    count = min(_COPIES, len(small))
    return [small[round(at * (len(small) - 1) / max(count - 1, 1))] for at in range(count)]


def _disagreement(
    optimizer: torch.optim.Optimizer, group: dict[str, Any], sample: Sequence[torch.Tensor]
) -> str:
    """Return why some steps on copies differ by more than rounding; empty if they do not."""
    if not sample:
        return "no parameter could be compared"
    try:
        with torch.no_grad():
            plain, fused = (_stepped(optimizer, group, sample, fused=how) for how in (False, True))
    except (RuntimeError, TypeError, ValueError) as error:
        return f"its fused form cannot be tried: {first_line(error)}"
    for one, other in zip(plain, fused, strict=True):
        if not _agrees(one, other):
            return "the fused form computes something else"
    return ""


def _agrees(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    finite = torch.isfinite(one)
    if not torch.equal(finite, torch.isfinite(other)):
        return False
    scale = float(one[finite].abs().max()) if bool(finite.any()) else 0.0
    bound = _ROUNDINGS * torch.finfo(torch.float32).eps * scale + math.ulp(0.0)
    return not bool(((one - other)[finite].abs() > bound).any())


def _stepped(
    optimizer: torch.optim.Optimizer,
    group: dict[str, Any],
    sample: Sequence[torch.Tensor],
    *,
    fused: bool,
) -> list[torch.Tensor]:
    """Return copies of parameters and their states after some steps of one form."""
    kind = type(optimizer)
    known = inspect.signature(kind).parameters.keys() & group.keys() - {"params", "foreach"}
    given = {name: _copied(group[name]) for name in known}
    copies = [torch.nn.Parameter(one.detach().clone()) for one in sample]
    trial = kind(copies, **{**given, "fused": fused})
    gradients = [one.grad.detach() for one in sample if one.grad is not None]
    for copy, one in zip(copies, sample, strict=True):
        if optimizer.state.get(one):
            trial.state[copy] = {k: _copied(v) for k, v in optimizer.state[one].items()}
    # `step` itself, without the hooks of the process: no step of the script has ended
    step: Callable[[Any], object] = getattr(kind.step, "__wrapped__", kind.step)
    for number in range(_STEPS):
        for copy, gradient in zip(copies, gradients, strict=True):
            copy.grad = gradient * (1.0 - 0.75 * number)  # of either sign
        step(trial)
    states = (value for copy in copies for _, value in sorted(trial.state[copy].items()))
    return [*(one.detach() for one in copies), *(v for v in states if torch.is_tensor(v))]


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


@cache
def advise_once() -> None:
    """Say in one line, at the first step of an optimizer that could be fused, how to do that.

    Once in a process; a second call does nothing.
    """

    is_over = False  # PyTorch takes no hook out while it goes through them

    def look(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        nonlocal is_over
        if is_over or torch.compiler.is_compiling() or type(optimizer) not in FUSIBLE:
            return
        if all(_has_no_gradient(group) for group in optimizer.param_groups):
            return
        is_over = True
        if not any(reason_against_fused(group) for group in optimizer.param_groups):
            name = type(optimizer).__name__
            say(f"aoe: {name}(..., fused=True) updates these parameters in fewer passes")

    register_optimizer_step_pre_hook(look)
