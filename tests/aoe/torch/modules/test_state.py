"""How much is looked at before a call, and that nothing escapes it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from support.optimized_modules import optimize  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import aoe.torch  # noqa: E402
from aoe import FallbackWarning  # noqa: E402
from aoe.torch.modules.state import ModuleState, TensorWatch  # noqa: E402

pytestmark = pytest.mark.usefixtures("inference")


def _deep(layers: int) -> Any:
    blocks = [
        nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.SiLU()) for _ in range(layers)
    ]
    return nn.Sequential(*blocks).eval()


def _calls_of(work: Callable[[], Any]) -> int:
    """Return how many functions of Python were called, whatever C did inside of them."""
    calls = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


class Counting(TorchDispatchMode):  # type: ignore[misc]
    """Counts operators."""

    operators = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operators += 1
        return func(*args, **(kwargs or {}))


# ---- how much work ----


def test_every_tensor_is_looked_at_once_and_no_operator_runs() -> None:
    seen: Counter[int] = Counter()

    def address_of(tensor: Any) -> int:
        seen[id(tensor)] += 1
        return int(tensor.data_ptr())

    module = _deep(5)
    state = ModuleState(module, address_of=address_of)
    tensors = [*module.parameters(), *module.buffers()]
    seen.clear()
    state.change()
    assert seen == Counter(map(id, tensors))
    with Counting() as mode:
        assert not state.change() and not state.trains()
    assert mode.operators == 0


def test_python_does_not_walk_through_the_layers() -> None:
    counts = set()
    for layers in (2, 40):
        state = ModuleState(_deep(layers))
        counts.add(_calls_of(lambda state=state: state.change() or state.trains()))
    assert len(counts) == 1


@pytest.mark.slow
def test_a_frozen_module_is_not_looked_at() -> None:
    module, x = _deep(3), torch.randn(1, 4, 8, 8)
    tuned, watched = optimize(module, x, frozen=True), optimize(module, x)
    calls, calls_when_watched = (_calls_of(lambda one=one: one(x)) for one in (tuned, watched))
    assert calls < calls_when_watched
    before = tuned(x)
    module[0][0].weight.mul_(2)
    torch.testing.assert_close(tuned(x), before)  # as promised, nobody has looked
    with pytest.warns(FallbackWarning, match="was changed"):
        watched(x)
    with torch.enable_grad(), pytest.warns(FallbackWarning, match="gradients are wanted"):
        assert tuned(x).requires_grad
    tuned.train()
    assert aoe.torch.fallbacks(tuned).total() == 1
    tuned(x)  # silently, in training mode
    assert module[0][1].num_batches_tracked == 1


# ---- nothing escapes ----


def _swap(module: Any) -> None:
    module[1][0].weight.data = module[1][0].weight.data.clone()


CHANGES: dict[str, Callable[[Any], Any]] = {
    "in place": lambda m: m[1][0].bias.add_(1),
    "a swap of .data": _swap,
    "an element through .data": lambda m: m[1][0].bias.data.view(-1)[2].fill_(9),
    "through NumPy": lambda m: m[1][1].running_mean.numpy().fill(3),
    "load_state_dict": lambda m: m.load_state_dict(m.state_dict()),
    "load_state_dict by assignment": lambda m: m.load_state_dict(
        {k: v.clone() for k, v in m.state_dict().items()}, assign=True
    ),
    "to another type and back": lambda m: m.double().float(),
    "to shared memory": lambda m: m.share_memory(),
    "another layer": lambda m: m[1].__setitem__(0, nn.Conv2d(4, 4, 1)),
    "a layer more": lambda m: m.append(nn.ReLU()),
    "a layer less": lambda m: m.__delitem__(2),
    "another parameter": lambda m: setattr(m[0][0], "weight", nn.Parameter(m[0][0].weight.clone())),
    "no bias": lambda m: setattr(m[0][0], "bias", None),
    "a new buffer": lambda m: m[0].register_buffer("extra", torch.ones(1)),
    "a number": lambda m: setattr(m[0][1], "eps", 0.5),
    "a hook": lambda m: m[0][2].register_forward_hook(lambda *a: None),
    "a table of hooks": lambda m: setattr(m[0][2], "_forward_pre_hooks", {0: lambda *a: None}),
    "a patched forward": lambda m: setattr(m[0][2], "forward", lambda x: x),
    "a resized buffer": lambda m: m[1][1].running_var.resize_(2),
    "freed memory": lambda m: m[1][1].running_var.untyped_storage().resize_(0),
}


UNSEEN_IN_INFERENCE_MODE = {"load_state_dict", "a resized buffer"}
"""They leave every element as it was, and such tensors count no versions."""


@pytest.mark.parametrize(
    ("made_in", "name"),
    [("no_grad", name) for name in CHANGES]
    + [("inference_mode", name) for name in sorted(set(CHANGES) - UNSEEN_IN_INFERENCE_MODE)],
)
def test_every_change_is_noticed(name: str, made_in: str) -> None:
    with getattr(torch, made_in)():
        module = _deep(3)
        state = ModuleState(module)
        assert not state.change() and not state.change()
        CHANGES[name](module)
        assert state.change().endswith(" changed")


def test_what_was_not_there_before_is_no_change_and_costs_once() -> None:
    module = _deep(3)
    state = ModuleState(module)
    usual = _calls_of(state.change)
    module[1].note = "mine"
    assert _calls_of(state.change) > usual
    assert _calls_of(state.change) == usual
    assert not state.change()
    module[1][1].eps = 0.5
    assert state.change() == "1.1.eps was changed"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (True, 1),
        (2, 2.0),
        (0.0, -0.0),
        (0.0, 0j),
        ((1, 2), (1, 2.0)),
        ([0, 1], [0, True]),
        ({"a": 0.0}, {"a": -0.0}),
        ({1}, {True}),
        (1.0, torch.ones(())),
    ],
    ids=str,
)
def test_equal_number_of_another_kind_is_a_change(before: Any, after: Any) -> None:
    module = _deep(1)
    module.number = before
    state = ModuleState(module)
    assert not state.change()
    if isinstance(before, list):
        before[:] = after  # in place
    else:
        module.number = after
    assert state.change() == "number was changed" and state.value_change() == "number was changed"


def test_equal_value_that_is_set_anew_is_no_change() -> None:
    module = _deep(3)
    module.number, module.extents, module[0].bounds = float("nan"), [7, float("nan")], {"a": 5000}
    state = ModuleState(module)
    for _ in range(2):
        module.number, module.extents = float("nan"), [7, float("nan")]
        module[0].bounds = {"a": int("5000")}
        module[0]._forward_hooks = dict(module[0]._forward_hooks)
        assert not state.change() and not state.value_change()
    module[0].bounds["a"] = 5001
    assert state.change() == "0.bounds was changed"


def test_a_hook_that_is_removed_again_leaves_the_module_as_it_was() -> None:
    module = _deep(1)
    state = ModuleState(module)
    handle = module[0].register_forward_hook(lambda *a: None)
    assert state.change() == "0.forward_hooks was changed"
    handle.remove()
    assert not state.change()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "complex64", "int8", "bool"])
def test_tensors_of_every_type_are_watched(dtype: str) -> None:
    tensor = torch.ones(40, 3, dtype=getattr(torch, dtype)).t()
    empty, number = torch.ones(0, 3), torch.full((), float("nan"))
    watch = TensorWatch({"a": tensor, "b": empty, "c": number})
    assert not watch.change()
    tensor.data.zero_()
    assert watch.change() == "a was changed"


def test_watching_leaves_memory_resizable() -> None:
    tensor = torch.ones(4)
    watch = TensorWatch({"a": tensor})
    tensor.resize_(400)
    assert watch.change() == "a was changed"
