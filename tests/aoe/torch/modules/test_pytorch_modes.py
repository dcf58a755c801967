"""What PyTorch does to tensors besides computing: equal to PyTorch, or left to it with one warning.

Transforms of torch.func, dual numbers, autocast, inference mode, subclasses, dispatch modes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from support.optimized_modules import Scaled, optimize  # noqa: E402# noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import aoe.torch  # noqa: E402
from aoe import FallbackWarning  # noqa: E402
from aoe.torch.modules.compiled import OptimizedModule  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("inference"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated"),
]


class Sub(torch.Tensor):
    """A subclass without behaviour of its own."""


class Doubling(TorchDispatchMode):  # type: ignore[misc]
    """Changes what operators compute, as only a mode can."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.ops.aten.exp.default else result


def _with_autocast(module: Any, x: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return module(x)


def _with_mode(module: Any, x: Any) -> Any:
    with Doubling():
        return module(x)


def _with_gradients(module: Any, x: Any) -> Any:
    with torch.enable_grad():
        leaf = x.clone().requires_grad_()
        module(leaf).sum().backward()
        return leaf.grad


def _scalar(module: Any) -> Callable[[Any], Any]:
    return lambda x: module(x).sum()


func = torch.func
LEFT_TO_PYTORCH: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "vmap": (lambda m, x: func.vmap(m)(x[None].repeat(4, 1, 1)), "torch.func"),
    "vmap over weights": (
        lambda m, x: func.vmap(lambda w: func.functional_call(m, {"weight": w}, (x,)))(
            torch.arange(6.0).view(2, 3)
        ),
        "changed",
    ),
    "grad": (lambda m, x: func.grad(_scalar(m))(x), "gradients are wanted"),
    "jvp": (lambda m, x: func.jvp(m, (x,), (x + 1,)), "torch.func"),
    "vjp": (lambda m, x: func.vjp(m, x)[1](x + 1)[0], "gradients are wanted"),
    "jacrev": (lambda m, x: func.jacrev(m)(x), "gradients are wanted"),
    "jacfwd": (lambda m, x: func.jacfwd(m)(x), "torch.func"),
    "hessian": (lambda m, x: func.hessian(_scalar(m))(x), ""),
    "functionalize": (lambda m, x: func.functionalize(m)(x), "torch.func"),
    "gradients": (_with_gradients, "gradients are wanted"),
    "autocast": (_with_autocast, "autocast"),
    "subclass": (lambda m, x: m(x.as_subclass(Sub)), "Sub"),
    "dispatch mode": (_with_mode, "mode"),
}


@cache
def _optimized() -> OptimizedModule:
    return optimize(Scaled().eval().requires_grad_(False), torch.rand(2, 3))


def _tuned() -> tuple[Scaled, OptimizedModule, Any]:
    """Return a copy of a module that is exported once for all tests."""
    tuned = copy.deepcopy(_optimized())
    return tuned.original, tuned, torch.rand(2, 3)


@pytest.mark.parametrize("name", LEFT_TO_PYTORCH)
def test_pytorch_computes_with_one_warning(name: str) -> None:
    use, words = LEFT_TO_PYTORCH[name]
    module, tuned, x = _tuned()
    expected = use(module, x)
    with pytest.warns(FallbackWarning, match=words) as caught:
        for _ in range(2):
            found = use(tuned, x)
            torch.testing.assert_close(found, expected, rtol=0, atol=0)
            assert type(found) is type(expected)
    assert len(caught) == 1
    assert aoe.torch.fallbacks(tuned).total() >= 2
    before = aoe.torch.fallbacks(tuned)
    torch.testing.assert_close(tuned(x), module(x))
    assert aoe.torch.fallbacks(tuned) == before  # and afterwards the tuned model is back


@pytest.mark.filterwarnings("error")
def test_what_is_not_batched_is_served_inside_of_vmap() -> None:
    module, tuned, x = _tuned()
    found = torch.func.vmap(lambda scale: tuned(x) * scale)(torch.arange(3.0))
    expected = torch.func.vmap(lambda scale: module(x) * scale)(torch.arange(3.0))
    torch.testing.assert_close(found, expected)


@pytest.mark.filterwarnings("error")
def test_inference_mode_is_served_and_makes_inference_tensors() -> None:
    module, tuned, x = _tuned()
    with torch.inference_mode():
        found, expected = tuned(x), module(x)
        torch.testing.assert_close(tuned(x + 0), module(x + 0))
    assert found.is_inference() == expected.is_inference()
    assert not found.requires_grad
    torch.testing.assert_close(found, expected)


@pytest.mark.filterwarnings("error")
def test_autocast_of_another_device_is_served() -> None:
    module, tuned, x = _tuned()
    with torch.autocast("cpu", enabled=False):
        torch.testing.assert_close(tuned(x), module(x))
