"""Modules of a training script are compiled in place, and trained as eager trains them."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from torch import nn  # noqa: E402

from aoe.errors import FallbackWarning, OptionError  # noqa: E402
from aoe.torch.scripts.compiling import ScriptTraining, compiled_form  # noqa: E402
from aoe.torch.scripts.regions import TunedGraph  # noqa: E402
from aoe.torch.scripts.results import lines_of  # noqa: E402


class Chosen(TunedGraph):
    """Uses every kernel that is right, or none, without a clock."""

    answer = True

    def region(self, module: Any, call: Any, arguments: Sequence[Any]) -> bool:
        super().region(module, call, arguments)
        return self.answer

    def graph(self, eager: Callable[[], object], compiled: Callable[[], object]) -> bool:
        return self.answer


class Refused(Chosen):
    """Uses nothing."""

    answer = False


class Net(nn.Module):  # type: ignore[misc]
    """Has regions in both directions, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(24, 160), nn.GELU(), nn.Dropout(0.2))
        self.last = nn.Linear(160, 24)

    def forward(self, x: Any) -> Any:
        return x + self.last(self.inner(x)).sigmoid() * 2


@pytest.fixture(autouse=True)
def _afresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # no verdict of another test is known
    monkeypatch.setenv("TUNE_BANK_PATH", str(tmp_path))  # and no record
    threads = torch.get_num_threads()
    dynamo = import_module("torch._dynamo.config")
    torch.set_num_threads(1)
    torch.compiler.reset()
    with warnings.catch_warnings(), dynamo.patch(suppress_errors=False):  # a training sets it
        warnings.simplefilter("ignore", FallbackWarning)
        warnings.filterwarnings("ignore", "The .grad attribute")
        yield
    torch.compiler.reset()
    torch.set_num_threads(threads)


@pytest.fixture
def training() -> Iterator[ScriptTraining]:
    """Return what watches this process, until the test is over."""
    found = ScriptTraining({}, make_graph=Chosen, fuses=False)
    found.start()
    yield found
    found.close()


def _losses(net: Any, steps: int = 6) -> list[float]:
    torch.manual_seed(3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = net(torch.randn(96, 24)).square().mean()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            net(torch.randn(3, 24))  # evaluation between steps is not compiled
        found.append(loss.item())
    return found


def test_script_trains_as_eager_with_kernels() -> None:
    torch.manual_seed(0)
    net = Net()
    plain = copy.deepcopy(net)
    expected = _losses(plain)
    call = nn.Module.__call__
    training = ScriptTraining({}, make_graph=Chosen, fuses=False)
    training.start()
    names = list(net.state_dict())
    assert _losses(net) == pytest.approx(expected, rel=1e-5)
    training.close()
    assert nn.Module.__call__ is call and list(net.state_dict()) == names
    (graph,) = training.graphs
    assert graph.name == "Net" and graph.is_used
    assert {region.direction for region in graph.regions} == {"forward", "backward"}
    assert all(region.operators and region.estimate for region in graph.regions if region.is_used)
    assert [one.op_types for one in graph.regions if one.is_used] == [("loop",)] * 3
    assert compiled_form(net) is not None
    # copies and saved modules are plain ones
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert compiled_form(other) is None


@pytest.mark.parametrize(
    ("options", "variables", "word"),
    [
        ({"trial": 3}, {}, "did you mean trials"),
        ({"cache_mode": "often"}, {}, "cache_mode: no mode"),
        ({}, {"REPEAT_TUNE": "perhaps"}, "REPEAT_TUNE"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_the_script(
    options: dict[str, Any],
    variables: dict[str, str],
    word: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(OptionError) as refused:
        ScriptTraining(options)
    assert word in f"{refused.value} {refused.value.hint}"


class Unasked(Chosen):
    """Fails if a region or a graph is measured."""

    def region(self, module: Any, call: Any, arguments: Sequence[Any]) -> bool:
        raise AssertionError("a region is known")

    def graph(self, eager: Callable[[], object], compiled: Callable[[], object]) -> bool:
        raise AssertionError("the graph is known")


def test_module_an_earlier_run_has_compared_stays_compiled() -> None:
    torch.manual_seed(0)
    net = Net()
    expected = _losses(copy.deepcopy(net))
    for kind in (Chosen, Unasked):
        torch.compiler.reset()
        training = ScriptTraining({}, make_graph=kind, fuses=False)
        training.start()
        trained = copy.deepcopy(net)
        assert _losses(trained) == pytest.approx(expected, rel=1e-5)
        training.close()
        assert [graph.is_used for graph in training.graphs] == [True]
        assert compiled_form(trained) is not None
    (first, *_) = lines_of(training.graphs, (), training.left)
    assert first.endswith("both passes were compared by an earlier run")


def test_module_without_gain_becomes_what_it_was() -> None:
    training = ScriptTraining({}, make_graph=Refused, fuses=False)
    training.start()
    net = Net()
    expected = _losses(copy.deepcopy(net))
    assert _losses(net) == expected
    training.close()
    assert all(not graph.is_used for graph in training.graphs) and training.graphs
    assert compiled_form(net) is None


def test_gradients_of_gradients_leave_all_modules(training: ScriptTraining) -> None:
    net = Net()
    for _ in range(3):
        x = torch.randn(4, 24, requires_grad=True)
        (slope,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        (net(x.detach()).mean() + slope.square().mean()).backward()
    assert compiled_form(net) is None
    assert "create_graph=True" in training.left["all modules"]


def test_call_that_is_differentiated_by_its_input_is_the_modules_own(
    training: ScriptTraining,
) -> None:
    net = Net().eval()
    for _ in range(4):
        net(torch.randn(4, 24)).sum().backward()
    graphs = len(training.graphs)
    x = torch.randn(4, 24, requires_grad=True)
    (slope,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    slope.square().sum().backward()
    assert x.grad is not None and len(training.graphs) == graphs == 1


def test_errors_of_the_module_are_its_own(training: ScriptTraining) -> None:
    net = Net()
    _losses(net, 3)
    (graph,) = training.graphs
    for _ in range(2):
        calls = graph.calls
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            net(torch.randn(8, 25))
        assert len(_losses(net, 2)) == 2
        assert graph.calls == calls + 2 and len(training.graphs) == 1  # compiled as before


class Recurrent(nn.Module):  # type: ignore[misc]
    """Is all that PyTorch's compiler makes no graph of."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(24, 24)

    def forward(self, x: Any) -> Any:
        return self.recurrent(x)[0]


def test_module_without_a_graph_is_told_in_one_line(training: ScriptTraining) -> None:
    net = Recurrent()
    expected = _losses(copy.deepcopy(net), 3)
    assert _losses(net, 3) == expected and not training.graphs
    assert compiled_form(net) is None
    (line,) = lines_of(training.graphs, (), training.left)
    assert line.startswith("Recurrent: as it is, ") and "nn.LSTM" in line


def test_parts_beside_a_recurrent_module_train_as_eager(training: ScriptTraining) -> None:
    net = nn.Sequential(nn.Linear(24, 160), nn.GELU(), nn.Linear(160, 24), Recurrent(), Net())
    expected = _losses(copy.deepcopy(net), 6)
    assert _losses(net, 6) == pytest.approx(expected, rel=1e-5)
    # PyTorch 2.15 makes a graph of either side, earlier releases none of the whole module
    used = [graph.is_used for graph in training.graphs]
    assert used == [True, True] or (not used and "Sequential" in training.left)


def test_arguments_may_have_any_name(training: ScriptTraining) -> None:
    class Scaled(Net):
        def forward(self, x: Any, *, module: float) -> Any:
            return super().forward(x) * module

    net, x = Scaled(), torch.randn(96, 24)
    for _ in range(3):
        net(x, module=2.0).square().mean().backward()
    assert compiled_form(net) is not None


def test_modules_without_number_are_compiled(training: ScriptTraining) -> None:
    nets = [nn.Linear(24, 24) for _ in range(9)]  # Dynamo compiles equal code eight times
    for _ in range(3):
        for net in nets:
            net(torch.randn(4, 24)).sum().backward()
    assert len(training.graphs) == len(nets)


def test_module_the_script_compiles_is_left(training: ScriptTraining) -> None:
    net = torch.compile(Net(), backend="eager")
    _losses(net, 3)
    assert not training.graphs and "compiles it itself" in str(training.left)
