"""`torch.compile(module, backend="aoe")`: graphs of inference are served, all others run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from support.engine.untuned import UntunedEngine  # noqa: E402
from torch import nn  # noqa: E402

from aoe.errors import OptionError  # noqa: E402
from aoe.om.loading import FallbackWarning  # noqa: E402
from aoe.torch.modules import backend, optimization  # noqa: E402
from aoe.torch.modules.served import ServedModel  # noqa: E402


class Net(nn.Module):
    """A graph of convolution, normalisation and activation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3)
        self.norm = nn.BatchNorm2d(5)

    def forward(self, x: Any) -> Any:
        hidden = F.mish(self.norm(self.conv(x)))
        return {"hidden": hidden, "size": hidden.shape[0], "mean": hidden.mean()}


@pytest.fixture(autouse=True)
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Return the calls that tuned models computed; Dynamo starts afresh, nothing is tuned."""
    calls: list[Any] = []
    compute = ServedModel.compute

    def counted(self: ServedModel, call: Any) -> Any:
        result = compute(self, call)
        calls.append(call)
        return result

    monkeypatch.setattr(ServedModel, "compute", counted)
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield calls
    torch._dynamo.reset()


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> UntunedEngine:
    """Return the engine that the backend uses."""
    fake = UntunedEngine()
    monkeypatch.setattr(optimization, "run_engine", fake)
    return fake


def _compiled(module: Any, **options: Any) -> Any:
    return torch.compile(module, backend="aoe", options=options or None)


def _same(left: Any, right: Any) -> None:
    torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)


def test_the_backend_has_a_name() -> None:
    assert "aoe" in torch._dynamo.list_backends()


def test_inference_is_served_at_every_call(served: list[Any], engine: UntunedEngine) -> None:
    net, x = Net().eval(), torch.randn(2, 3, 8, 8)
    compiled = _compiled(net)
    for _ in range(3):
        x = torch.randn(2, 3, 8, 8)
        _same(compiled(x), net(x))
    assert len(engine.asked) == 1
    # the first call also compares the tuned model with PyTorch
    assert len(served) == 4


def test_options_reach_the_engine_and_the_time_is_bounded(
    engine: UntunedEngine, tmp_path: Any
) -> None:
    x = torch.randn(4, 4)
    _compiled(nn.Softplus())(x)
    _compiled(nn.Softplus(), trials=2, tuning_time_limit=3, bank=tmp_path)(x)
    first, second = engine.asked
    # what the export took is over
    assert first.tuning_time_limit_s is not None and second.tuning_time_limit_s is not None
    assert 0 <= first.tuning_time_limit_s <= backend.DEFAULT_TIME_LIMIT_S
    assert second.tuning_time_limit_s <= 3
    assert second.trials == 2
    assert engine.environments[1]["TUNE_BANK_PATH"] == str(tmp_path)


def test_an_unknown_option_is_an_error() -> None:
    graph = torch.fx.symbolic_trace(nn.Softplus())
    with pytest.raises(OptionError, match=r"unknown option .got trails"):
        backend.aoe_backend(graph, [torch.randn(4, 4)], options={"trails": 2})
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=r"OptionError.*got trails"):
        _compiled(nn.Softplus(), trails=2)(torch.randn(4, 4))


def test_each_graph_around_a_break_is_served(served: list[Any], engine: UntunedEngine) -> None:
    class Broken(nn.Module):
        def forward(self, x: Any) -> Any:
            x = F.softplus(x)
            torch._dynamo.graph_break()
            return x.sum(1) * 2

    module, x = Broken().eval(), torch.randn(3, 4)
    compiled = _compiled(module)
    _same(compiled(x), module(x))
    assert len(engine.asked) == 2
    served.clear()
    _same(compiled(x), module(x))
    assert len(served) == 2


def test_training_runs_in_pytorch_with_a_warning(served: list[Any]) -> None:
    net = Net().train()
    compiled = _compiled(net)
    with torch.enable_grad(), pytest.warns(FallbackWarning, match="gradients are wanted") as caught:
        compiled(torch.randn(2, 3, 8, 8))["mean"].backward()
        compiled(torch.randn(2, 3, 8, 8))
    assert len(caught) == 1
    assert net.conv.weight.grad is not None
    assert not served


def test_training_mode_without_gradients_runs_in_pytorch(served: list[Any]) -> None:
    net, twin = Net().train(), Net().train()
    twin.load_state_dict(net.state_dict())
    x = torch.randn(2, 3, 8, 8)
    with pytest.warns(FallbackWarning, match="a graph runs in PyTorch"):
        _same(_compiled(net)(x), twin(x))
    _same(net.norm.running_mean, twin.norm.running_mean)
    assert not served


def test_dynamic_shapes_run_in_pytorch_with_one_warning(served: list[Any]) -> None:
    net = Net().eval()
    compiled = _compiled(net)
    compiled(torch.randn(2, 3, 8, 8))
    served.clear()
    with pytest.warns(FallbackWarning, match="dynamic=False") as caught:
        for extent in (9, 10, 11):
            x = torch.randn(2, 3, extent, 8)
            _same(compiled(x), net(x))
    assert len(caught) == 1
    assert not served


def test_static_shapes_get_a_graph_each(served: list[Any], engine: UntunedEngine) -> None:
    compiled = torch.compile(nn.Softplus(), backend="aoe", dynamic=False)
    for width in (3, 4):
        x = torch.randn(2, width)
        _same(compiled(x), F.softplus(x))
    assert len(engine.asked) == 2


def test_changed_weights_are_noticed(served: list[Any]) -> None:
    net, x = Net().eval(), torch.randn(2, 3, 8, 8)
    compiled = _compiled(net)
    compiled(x)
    served.clear()
    net.conv.weight.mul_(2)
    with pytest.warns(FallbackWarning, match=r"conv.*weight.* was changed.*compiler\.reset"):
        _same(compiled(x), net(x))
    assert not served


def test_modules_that_share_a_graph_keep_their_own_weights() -> None:
    layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)]).eval()

    @torch.compile(backend="aoe")
    def step(layer: Any, x: Any) -> Any:
        return F.softplus(layer(x))

    x = torch.randn(2, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        for _ in range(2):
            for layer in layers:
                _same(step(layer, x), F.softplus(layer(x)))


def test_a_graph_used_with_many_weights_stays_bounded(
    engine: UntunedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "_MOST_WEIGHT_SETS", 2)
    weights = [nn.Parameter(torch.randn(4, 4)) for _ in range(4)]
    graph = torch.fx.symbolic_trace(_Product())
    compiled = backend.aoe_backend(graph, [weights[0], torch.randn(4, 4)])
    x = torch.randn(4, 4)
    with pytest.warns(FallbackWarning, match="sets of weights") as caught:
        for weight in weights:
            _same(compiled(weight, x), (weight.detach() @ x))
    assert len(caught) == 1
    assert len(engine.asked) == 2


class _Product(nn.Module):
    def forward(self, weight: Any, x: Any) -> Any:
        return weight @ x


def test_an_operator_without_onnx_counterpart_names_its_module(served: list[Any]) -> None:
    class Bessel(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.special.bessel_j0(x)

    module = nn.Sequential(nn.ReLU(), nn.Sequential(Bessel()))
    x = torch.rand(3)
    compiled = _compiled(module)
    with pytest.warns(FallbackWarning, match=r"in .*1.*0.*bessel_j0 cannot be exported") as caught:
        _same(compiled(x), module(x))
        _same(compiled(x), module(x))
    assert len(caught) == 1
    assert not served


def test_random_numbers_and_writes_are_left_to_pytorch(served: list[Any]) -> None:
    def writes(x: Any) -> Any:
        x.add_(1)
        return x + torch.rand(())

    x = torch.zeros(3)
    with pytest.warns(FallbackWarning):
        found = _compiled(writes)(x)
    assert x.tolist() == [1, 1, 1]
    assert ((found >= 1) & (found < 2)).all()
    assert not served


def test_inference_mode_is_served(served: list[Any]) -> None:
    net, x = Net().eval(), torch.randn(2, 3, 8, 8)
    with torch.inference_mode():
        _same(_compiled(net)(x), net(x))
    assert served
