"""`fused=True` is set where a few steps agree, and only there."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from aoe.torch.fused_optimizers import FusedOptimizers, advise_once  # noqa: E402

_STEPS = 12


@pytest.fixture
def fusing() -> Iterator[FusedOptimizers]:
    """Return what fuses the optimizers of this process, until the test is over."""
    found = FusedOptimizers()
    yield found
    found.close()


def _net() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(31, 65), torch.nn.Tanh(), torch.nn.Linear(65, 3))


def _forms(optimizer: Any) -> list[Any]:
    """Return a list that gets the form of each group in each step from here on."""
    seen: list[Any] = []
    optimizer.register_step_post_hook(
        lambda one, *step: seen.append([group["fused"] for group in one.param_groups])
    )
    return seen


def _train(net: Any, optimizer: Any, steps: int = _STEPS) -> None:
    torch.manual_seed(1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.randn(7, 31)).square().mean().backward()
        optimizer.step()
        scheduler.step()


_FUSED = [
    ("Adam", {}),
    ("Adam", {"maximize": True, "weight_decay": 0.1}),
    ("AdamW", {"amsgrad": True}),
    ("AdamW", {"lr": 1e-2, "betas": (0.8, 0.9)}),
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("Adagrad", {"lr_decay": 0.1}),
]


@pytest.mark.parametrize(("name", "options"), _FUSED)
def test_fused_optimizer_trains_as_the_plain_one(
    fusing: FusedOptimizers, name: str, options: dict[str, Any]
) -> None:
    plain, fused = _net(), _net()
    kind = getattr(torch.optim, name)
    _train(plain, kind(plain.parameters(), **options))
    fusing.start()
    optimizer = kind(fused.parameters(), **options)
    forms = _forms(optimizer)
    _train(fused, optimizer)
    assert forms == [[True]] * _STEPS
    for one, other in zip(plain.parameters(), fused.parameters(), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-7)
    (found,) = fusing.found
    assert (found.groups, found.fused, found.copies, found.reason) == (1, 1, 4, "")


def test_state_dicts_are_taken_over_in_both_directions(fusing: FusedOptimizers) -> None:
    net = _net()
    plain = torch.optim.AdamW(net.parameters())
    _train(net, plain, 3)
    saved = copy.deepcopy(plain.state_dict())
    fusing.start()
    fused = torch.optim.AdamW(net.parameters())
    forms = _forms(fused)
    _train(net, fused, 2)
    fused.load_state_dict(saved)  # in the middle of a training, as for an earlier checkpoint
    _train(net, fused, 2)
    assert forms == [[True]] * 4
    assert fused.state_dict()["param_groups"][0]["fused"] is None  # as the script has it
    fusing.close()
    other = _net()
    loaded = torch.optim.AdamW(other.parameters())
    loaded.load_state_dict(fused.state_dict())
    _train(other, loaded, 2)
    assert loaded.state_dict()["state"].keys() == saved["state"].keys()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"foreach": True}, "has chosen"),
        ({"fused": False}, "has chosen"),
        ({"capturable": True}, "it is capturable"),
        ({"differentiable": True}, "it is differentiable"),
    ],
)
def test_choice_of_the_script_counts(
    fusing: FusedOptimizers, options: dict[str, Any], reason: str
) -> None:
    net = _net()
    optimizer = torch.optim.AdamW(net.parameters(), **options)
    net(torch.ones(2, 31)).sum().backward()
    fusing.before_step(optimizer)
    assert not optimizer.param_groups[0]["fused"]
    assert reason in fusing.found[0].reason


def test_other_parameters_and_gradients_are_left(fusing: FusedOptimizers) -> None:
    double = torch.nn.Linear(3, 3).double()
    table = torch.nn.Embedding(5, 3, sparse=True)
    given = [(double, torch.ones(1, 3).double()), (table, torch.tensor([1]))]
    for module, argument in given:
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        module(argument).sum().backward()
        fusing.before_step(optimizer)
        assert optimizer.param_groups[0]["fused"] is None
    reasons = [one.reason for one in fusing.found]
    assert reasons == ["a parameter is torch.float64 on cpu", "a parameter or a gradient is sparse"]


def test_group_that_is_added_later_is_looked_at_then(fusing: FusedOptimizers) -> None:
    one, other = _net(), _net()
    optimizer = torch.optim.AdamW(one.parameters())
    fusing.before_step(optimizer)  # there are no gradients yet
    assert optimizer.param_groups[0]["fused"] is None and not fusing.found
    fusing.start()
    _train(one, optimizer, 2)
    optimizer.add_param_group({"params": list(other.parameters()), "fused": None})
    forms = _forms(optimizer)
    _train(other, optimizer, 2)
    assert forms == [[True, True]] * 2
    assert len(fusing.found) == 2


def test_advice_is_one_line_at_the_first_step(capsys: pytest.CaptureFixture[str]) -> None:
    advise_once.__wrapped__()  # whatever other tests of this process have compiled
    net = _net()
    _train(net, torch.optim.AdamW(net.parameters()), 3)
    _train(net, torch.optim.SGD(net.parameters(), lr=0.1), 1)
    said = capsys.readouterr().err.splitlines()
    assert said == ["aoe: AdamW(..., fused=True) updates these parameters in fewer passes"]


def _stepped(fusing: FusedOptimizers | None, name: str, steps: list[Any], **options: Any) -> Any:
    """Return parameters behind steps, each given as the gradients of all parameters."""
    torch.manual_seed(2)
    rows = torch.nn.Parameter(torch.randn(8, 8))
    image = torch.nn.Parameter(torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last))
    gaps = torch.nn.Parameter(torch.randn(8, 16)[:, ::2])
    optimizer = getattr(torch.optim, name)([rows, image, gaps], lr=0.1, **options)
    for gradients in steps:
        for parameter, gradient in zip((rows, image, gaps), gradients, strict=True):
            parameter.grad = gradient
        if fusing is not None:
            fusing.before_step(optimizer)
        optimizer.step()
    return optimizer.param_groups[0], [rows.detach(), image.detach(), gaps.detach()]


_ROWS, _IMAGE = torch.linspace(-1, 1, 64).view(8, 8), torch.linspace(-1, 1, 300).view(4, 3, 5, 5)
_LAST = _IMAGE.to(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([(_ROWS, _LAST, None), (_ROWS.t(), _LAST, None)], id="transposed-later"),
        pytest.param([(_ROWS, _LAST, None), (_ROWS[:1].expand(8, 8), _LAST, None)], id="expanded"),
        pytest.param([(_ROWS, _IMAGE, None)], id="channels-first"),
        pytest.param([(_ROWS, _LAST, _ROWS)], id="gaps"),
        pytest.param([(_ROWS, _LAST, None), (_ROWS, _LAST, _ROWS)], id="gaps-later"),
    ],
)
def test_memory_in_another_order_is_updated_by_the_plain_form(
    fusing: FusedOptimizers, name: str, steps: list[Any]
) -> None:
    _, plain = _stepped(None, name, steps)
    group, found = _stepped(fusing, name, steps)
    assert group["fused"] is None
    for one, other in zip(plain, found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-6)


def test_state_of_another_order_is_updated_by_the_plain_form(fusing: FusedOptimizers) -> None:
    """A checkpoint of a model whose channels were outermost goes on with innermost ones."""
    made = {}
    for is_fused in (False, True):
        image = torch.nn.Parameter(_IMAGE.clone())
        optimizer = torch.optim.AdamW([image], lr=0.1)
        image.grad = _IMAGE.square()
        optimizer.step()
        image.data = image.data.to(memory_format=torch.channels_last)
        image.grad = _LAST.clone()
        if is_fused:
            fusing.before_step(optimizer)
        optimizer.step()
        made[is_fused] = image.detach()
    torch.testing.assert_close(made[True], made[False])


def test_first_gradient_of_a_later_step_is_no_error(fusing: FusedOptimizers) -> None:
    steps = [(_ROWS, None, None), (_ROWS, _LAST, None), (_ROWS, _LAST, None)]
    _, plain = _stepped(None, "SGD", steps, momentum=0.9)
    group, found = _stepped(fusing, "SGD", steps, momentum=0.9)
    assert group["fused"] is True  # again, once all have a momentum
    for one, other in zip(plain, found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-6)


def test_first_sparse_gradient_of_a_later_step_is_no_error(fusing: FusedOptimizers) -> None:
    steps = [(None, _LAST, None), (_ROWS.to_sparse(), _LAST, None)]
    _, plain = _stepped(None, "SGD", steps)
    group, found = _stepped(fusing, "SGD", steps)
    assert group["fused"] is None
    for one, other in zip(plain, found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-6)


def test_copies_and_interrupted_steps_have_the_form_of_the_script(fusing: FusedOptimizers) -> None:
    """A copy that is fused for good would be updated so whatever its gradients look like."""
    net = _net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    fusing.start()
    _train(net, optimizer, 2)
    assert fusing.found[0].fused == 1
    for one in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert one.param_groups[0]["fused"] is None

    def fails(*step: Any) -> None:
        assert optimizer.param_groups[0]["fused"] is True
        raise KeyboardInterrupt

    optimizer.register_step_post_hook(fails)
    with pytest.raises(KeyboardInterrupt):
        optimizer.step()
    assert optimizer.state_dict()["param_groups"][0]["fused"] is None


def _of_a_closure(optimizer: Any, closure: Callable[[], Any]) -> None:
    optimizer.step(closure)


def _of_a_named_closure(optimizer: Any, closure: Callable[[], Any]) -> None:
    optimizer.step(closure=closure)


@pytest.mark.parametrize("step", [_of_a_closure, _of_a_named_closure])
def test_gradients_of_a_closure_are_looked_at(fusing: FusedOptimizers, step: Any) -> None:
    """Lightning gives each step a closure, and gradients that are there before are of the past."""
    found = {}
    for is_fused in (False, True):
        rows = torch.nn.Parameter(_ROWS.clone())
        optimizer = torch.optim.Adam([rows], lr=0.1)
        if is_fused:
            fusing.start()
        forms = _forms(optimizer)
        for gradient in (_ROWS, _ROWS.t(), _ROWS):

            def closure(rows: Any = rows, gradient: Any = gradient) -> Any:
                rows.grad = gradient
                return rows.detach().square().sum()

            step(optimizer, closure)
        found[is_fused] = rows.detach()
    assert forms == [[True], [None], [True]]
    torch.testing.assert_close(found[True], found[False], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["SGD", "Adam", "Adagrad"])
def test_state_of_another_shape_is_the_error_of_pytorch(fusing: FusedOptimizers, kind: str) -> None:
    """A checkpoint of another model: the fused form reads and writes behind its memory."""
    options = {"momentum": 0.9} if kind == "SGD" else {}
    saved = []
    for extents in ((3, 5), (300, 500)):
        rows = torch.nn.Parameter(torch.ones(extents))
        optimizer = getattr(torch.optim, kind)([rows], lr=0.1, **options)
        rows.grad = torch.ones_like(rows)
        optimizer.step()
        saved.append(optimizer.state_dict())
    fusing.start()
    optimizer.step()
    assert fusing.found[0].fused == 1
    optimizer.load_state_dict(saved[0])
    with pytest.raises(RuntimeError, match="size"):
        optimizer.step()
