"""`torch.compile(module, backend="aoe")`: graphs of inference are served, all others run."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from support.engine.untuned import UntunedEngine  # noqa: E402
from support.optimized_modules import tensors_in, untuned  # noqa: E402
from torch import nn  # noqa: E402

from aoe import FallbackWarning  # noqa: E402
from aoe.errors import ModelImportError, OptionError  # noqa: E402
from aoe.torch.modules import backend  # noqa: E402
from aoe.torch.options import make_options  # noqa: E402
from aoe.tuner.mode import TuneSettings  # noqa: E402


class Net(nn.Module):
    """A graph of convolution, normalisation and activation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3)
        self.norm = nn.BatchNorm2d(5)

    def forward(self, x: Any) -> Any:
        hidden = F.mish(self.norm(self.conv(x)))
        return {"hidden": hidden, "size": hidden.shape[0], "mean": hidden.mean()}


class Marking(UntunedEngine):
    """Tunes nothing; what its models compute is a little more than what PyTorch computes."""

    def __call__(self, settings: TuneSettings, env: Mapping[str, str], progress: Any) -> Path:
        proto = onnx.load(str(settings.model))
        floats = [o.name for o in proto.graph.output if o.type.tensor_type.elem_type == 1]
        for node in proto.graph.node:
            node.output[:] = [f"{n}_exact" if n in floats else n for n in node.output]
            node.input[:] = [f"{n}_exact" if n in floats else n for n in node.input]
        more = onnx.numpy_helper.from_array(np.array(1 + 2e-5, np.float32), "a_little_more")
        proto.graph.initializer.append(more)
        for name in floats:
            node = onnx.helper.make_node("Mul", [f"{name}_exact", "a_little_more"], [name])
            proto.graph.node.append(node)
        onnx.save(proto, str(settings.model))
        return super().__call__(settings, env, progress)


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    """Let Dynamo forget what other tests compiled."""
    torch.compiler.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield
    torch.compiler.reset()


@pytest.fixture
def engine() -> Marking:
    """Return the engine that the backend uses."""
    return Marking()


def _compiled(module: Any, engine: Marking | None = None, **options: Any) -> Any:
    backend = partial(untuned, engine=engine or Marking())
    return torch.compile(module, backend=backend, options=options or None)


def _assert_served(found: Any, expected: Any) -> None:
    """Fail if PyTorch computed it, or if it is wrong."""
    _same(found, expected)
    assert not _is_torchs(found, expected), "PyTorch computed it"


def _assert_left_to_torch(found: Any, expected: Any) -> None:
    _same(found, expected)
    assert _is_torchs(found, expected), "a tuned model computed it"


def _is_torchs(found: Any, expected: Any) -> bool:
    pairs = zip(*map(tensors_in, (found, expected)), strict=True)
    return all(torch.equal(one, other) for one, other in pairs)


def _same(left: Any, right: Any) -> None:
    torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)


def test_inference_is_served_at_every_call(engine: Marking) -> None:
    net = Net().eval()
    compiled = _compiled(net, engine)
    for _ in range(3):
        x = torch.randn(2, 3, 8, 8)
        _assert_served(compiled(x), net(x))
    assert len(engine.asked) == 1


def test_options_reach_the_engine_and_the_time_is_bounded(engine: Marking, tmp_path: Path) -> None:
    x = torch.randn(4, 4)
    _compiled(nn.Softplus(), engine)(x)
    _compiled(nn.Softplus(), engine, trials=2, tuning_time_limit=3, bank=tmp_path)(x)
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
    named = torch.compile(nn.Softplus(), backend="aoe", options={"trails": 2})
    with pytest.raises(RuntimeError, match=r"OptionError.*got trails"):  # Dynamo's own, inside
        named(torch.randn(4, 4))


@pytest.mark.slow
def test_each_graph_around_a_break_is_served(engine: Marking) -> None:
    seen: list[Any] = []

    @torch.compiler.disable
    def broken_here(x: Any) -> Any:
        seen.append(x.clone())
        return x

    class Broken(nn.Module):
        def forward(self, x: Any) -> Any:
            return broken_here(F.softplus(x)).sum(1) * 2

    module, x = Broken().eval(), torch.randn(3, 4)
    compiled = _compiled(module, engine)
    expected = module(x)
    for _ in range(2):
        seen.clear()
        _assert_served(compiled(x), expected)
        _assert_served(seen[0], F.softplus(x))
        _assert_served(compiled(x), seen[0].sum(1) * 2)
    assert len(engine.asked) == 2


def test_training_asks_for_no_tuned_model(engine: Marking) -> None:
    net = Net().train()
    compiled = _compiled(net, engine)
    with torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        compiled(torch.randn(2, 3, 8, 8))["mean"].backward()
    assert net.conv.weight.grad is not None
    assert not engine.asked


@pytest.mark.slow
def test_training_mode_without_gradients_runs_in_pytorch() -> None:
    net, twin = Net().train(), Net().train()
    twin.load_state_dict(net.state_dict())
    x = torch.randn(2, 3, 8, 8)
    with pytest.warns(FallbackWarning, match="a graph runs in PyTorch"):
        _assert_left_to_torch(_compiled(net)(x), twin(x))
    _same(net.norm.running_mean, twin.norm.running_mean)


class Rows(nn.Module):
    """A graph that reads an extent of its argument as a number."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm = nn.Linear(8, 6), nn.LayerNorm(6)

    def forward(self, x: Any) -> Any:
        return self.norm(self.fc(x)).reshape(x.shape[0] * x.shape[1], 6)


def test_symbolic_extents_are_tuned_once_and_served_at_every_size(engine: Marking) -> None:
    rows = Rows().eval()
    compiled = torch.compile(rows, backend=partial(untuned, engine=engine), dynamic=True)
    for shape in ((2, 5, 8), (3, 7, 8), (2, 20, 8), (17, 301, 8)):
        x = torch.randn(shape)
        _assert_served(compiled(x), rows(x))
    assert [one.shape_range for one in engine.asked] == ["in_values:2~8,2~20,8"]


def test_symbolic_extents_may_be_returned(engine: Marking) -> None:
    def with_size(x: Any) -> Any:
        return {"y": torch.relu(x), "size": x.shape[1]}

    compiled = torch.compile(with_size, backend=partial(untuned, engine=engine), dynamic=True)
    for shape in ((2, 5), (3, 7)):
        x = torch.randn(shape)
        found = compiled(x)
        _assert_served(found, with_size(x))
        assert found["size"] == shape[1]
    assert len(engine.asked) == 1


def test_second_size_makes_a_graph_for_all_that_follow(engine: Marking) -> None:
    rows, options = Rows().eval(), {"dynamic_max": 40}
    compiled = torch.compile(rows, backend=partial(untuned, engine=engine), options=options)
    for length in (5, 6, 41, 3):
        x = torch.randn(2, length, 8)
        _assert_served(compiled(x), rows(x))
    assert [one.shape_range for one in engine.asked] == [None, "in_values:2,2~40,8"]


def test_range_a_dimension_is_marked_with_is_the_one_that_is_tuned(engine: Marking) -> None:
    rows, x = Rows().eval(), torch.randn(2, 5, 8)
    attrgetter("_dynamo.mark_dynamic")(torch)(x, 1, min=3, max=64)
    compiled = torch.compile(rows, backend=partial(untuned, engine=engine))
    _assert_served(compiled(x), rows(x))
    assert [one.shape_range for one in engine.asked] == ["in_values:2,3~64,8"]


def test_floats_are_constants_of_a_graph_with_symbolic_extents(engine: Marking) -> None:
    def scaled(x: Any, factor: float) -> Any:
        return torch.cosh(x) / factor

    compiled = torch.compile(scaled, backend=partial(untuned, engine=engine), dynamic=True)
    for rows, factor in ((4, 0.5), (5, 0.5), (6, 2.5), (7, 0.5)):
        x = torch.randn(rows, 3)
        _assert_served(compiled(x, factor), scaled(x, factor))
    assert len(engine.asked) == 2  # one for each number
    for factor in (0.0, -0.0):
        _same(compiled(x, factor), scaled(x, factor))


def test_dynamic_number_that_is_no_extent_is_left_to_pytorch_with_one_warning() -> None:
    def scaled(x: Any, factor: int) -> Any:
        return x * factor

    compiled = torch.compile(scaled, backend=untuned, dynamic=True)
    x = torch.randn(4, 4)
    with pytest.warns(FallbackWarning, match="is dynamic, and no extent") as caught:
        for factor in (3, 5, 7):
            _assert_left_to_torch(compiled(x, factor), x * factor)
    assert len(caught) == 1


@pytest.mark.slow
def test_static_shapes_get_a_graph_each(engine: Marking) -> None:
    compiled = torch.compile(nn.Softplus(), backend=partial(untuned, engine=engine), dynamic=False)
    for width in (3, 4):
        x = torch.randn(2, width)
        _assert_served(compiled(x), F.softplus(x))
    assert len(engine.asked) == 2


def test_changed_weights_are_noticed() -> None:
    net, x = Net().eval(), torch.randn(2, 3, 8, 8)
    compiled = _compiled(net)
    compiled(x)
    net.conv.weight.mul_(2)
    with pytest.warns(FallbackWarning, match=r"conv.*weight.* was changed.*compiler\.reset"):
        _assert_left_to_torch(compiled(x), net(x))


@pytest.mark.slow
def test_modules_that_share_a_graph_keep_their_own_weights() -> None:
    layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)]).eval()

    @torch.compile(backend=untuned)
    def step(layer: Any, x: Any) -> Any:
        return F.softplus(layer(x))

    x = torch.randn(2, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        for _ in range(2):
            for layer in layers:
                _same(step(layer, x), F.softplus(layer(x)))


@pytest.mark.slow
def test_a_graph_used_with_many_weights_stays_bounded(engine: Marking) -> None:
    weights = [nn.Parameter(torch.randn(4, 4)) for _ in range(4)]
    graph = torch.fx.symbolic_trace(_Product())
    inputs = [weights[0], torch.randn(4, 4)]
    compiled = backend.aoe_backend(graph, inputs, engine=engine, most_weight_sets=2)
    x = torch.randn(4, 4)
    with pytest.warns(FallbackWarning, match="sets of weights") as caught:
        for weight in weights:
            _same(compiled(weight, x), (weight.detach() @ x))
    assert len(caught) == 1
    assert len(engine.asked) == 2
    for weight in weights[:2]:
        _assert_served(compiled(weight, x), weight.detach() @ x)


def test_threads_try_a_graph_that_cannot_be_tuned_once() -> None:
    asked, is_called = [], threading.Event()

    def refuse(settings: TuneSettings, env: Mapping[str, str], progress: Any) -> Path:
        asked.append(settings)
        is_called.wait(10)
        raise ModelImportError("product", "is none")

    weight, x = nn.Parameter(torch.randn(4, 4)), torch.randn(4, 4)
    graph = torch.fx.symbolic_trace(_Product())
    compiled = backend.aoe_backend(graph, [weight, x], engine=refuse)

    def call() -> None:
        is_called.set()
        _same(compiled(weight, x), weight.detach() @ x)

    with pytest.warns(FallbackWarning, match="is none"), ThreadPoolExecutor(1) as pool:
        first = pool.submit(torch.no_grad()(compiled), weight, x)
        while not asked and not first.done():
            threading.Event().wait(0.01)
        call()
        first.result()
    assert len(asked) == 1


class _Product(nn.Module):
    def forward(self, weight: Any, x: Any) -> Any:
        return weight @ x


def test_an_operator_without_onnx_counterpart_names_its_module() -> None:
    class Bessel(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.special.bessel_j0(x)

    module = nn.Sequential(nn.ReLU(), nn.Sequential(Bessel()))
    x = torch.rand(3)
    compiled = _compiled(module)
    with pytest.warns(FallbackWarning, match=r"in .*1.*0.*bessel_j0 cannot be exported") as caught:
        _assert_left_to_torch(compiled(x), module(x))
        _assert_left_to_torch(compiled(x), module(x))
    assert len(caught) == 1


@pytest.mark.slow
def test_random_numbers_and_writes_are_left_to_pytorch(engine: Marking) -> None:
    def writes(x: Any) -> Any:
        x.add_(1)
        return x + torch.rand(())

    x = torch.zeros(3)
    with pytest.warns(FallbackWarning):
        found = _compiled(writes, engine)(x)
    assert x.tolist() == [1, 1, 1]
    assert ((found >= 1) & (found < 2)).all()
    assert not engine.asked


def test_the_name_of_the_backend_reaches_the_engine(tmp_path: Path) -> None:
    options = {"lookup_only": True, "core_num": 1, "bank": tmp_path / "bank"}
    compiled = torch.compile(nn.Softplus(), backend="aoe", options=options)
    x = torch.randn(64, 64)
    _same(compiled(x), F.softplus(x))
    assert (tmp_path / "bank").is_dir()


# ---- what Dynamo makes no graph of ----


class Recurrent(nn.Module):
    """Has a part that Dynamo makes no graph of."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent, self.last = nn.LSTM(4, 8), nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return self.last(self.recurrent(x)[0])


def _compile_in_place(module: Any) -> None:
    module.compile(backend="aoe")


@pytest.mark.parametrize(
    "compile_it", [lambda module: torch.compile(module, backend="aoe"), _compile_in_place]
)
def test_recurrent_module_is_one_warning_with_the_way_out(compile_it: Any) -> None:
    with pytest.warns(FallbackWarning) as told:
        compile_it(Recurrent())
    (warning,) = told
    words = str(warning.message)
    assert words.startswith("aoe backend: Recurrent: nn.LSTM runs in PyTorch")
    assert words.endswith(
        "compile the modules beside it one by one, or tune its inference by aoe.torch.optimize"
    )


def test_recurrent_module_is_no_matter_of_other_backends_nor_where_it_is_traced() -> None:
    config = import_module("torch._dynamo.config")
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        torch.compile(Recurrent(), backend="eager")
        torch.compile(nn.Linear(4, 4), backend="aoe")
        with config.patch(allow_rnn=True):
            torch.compile(Recurrent(), backend="aoe")


def test_training_that_only_looks_up_believes_what_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REPEAT_TUNE", "True")
    for given in ({}, {"lookup_only": True}):
        settings = backend.region_settings(make_options(given), "Net", "forward")
        assert settings.tune.repeat_tune is not bool(given)
