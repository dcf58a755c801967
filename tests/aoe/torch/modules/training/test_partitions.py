"""Partitions of joint graphs are remembered, and only used where they are right."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import networkx  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from support.trainings_compiled import Always  # noqa: E402
from torch import nn  # noqa: E402
from torch._functorch import config, partitioners  # noqa: E402
from torch._functorch.aot_autograd import aot_module_simplified, make_boxed_func  # noqa: E402
from torch._functorch.partitioners import min_cut_rematerialization_partition  # noqa: E402

from aoe.torch.modules.backend import aoe_backend  # noqa: E402
from aoe.torch.modules.training.graphs import TrainingGraph  # noqa: E402
from aoe.torch.modules.training.loops import LoopCompiler  # noqa: E402
from aoe.torch.modules.training.partitions import partition  # noqa: E402
from aoe.torch.modules.training.region_settings import RegionSettings  # noqa: E402


class Kept:
    """Decisions in memory."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def digest(self, *texts: str) -> str:
        return "\0".join(texts)

    def verdict(self, digest: str) -> str | None:
        return self.texts.get(digest)

    def keep(self, digest: str, reason: str) -> None:
        self.texts[digest] = reason


class Net(nn.Module):  # type: ignore[misc]
    """Has dropout, a value that is cheap to compute again, and equal nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(24, 160), nn.LayerNorm(160)
        self.dropout, self.last = nn.Dropout(0.1), nn.Linear(160, 24)

    def forward(self, x: Any) -> Any:
        inner = self.dropout(F.gelu(self.norm(self.first(x))))
        return x.sin() * x.sin() + self.last(inner)


Partition = Callable[..., Any]


def _compiled(call: Any, function: Partition, codes: list[str]) -> Any:
    """Return a compiled call whose joint graphs a partition cuts, and gather their code."""

    def keep(graph_module: Any, given: Any) -> Any:
        codes.append(graph_module.code)
        return make_boxed_func(graph_module.forward)

    def backend(graph_module: Any, given: Any) -> Any:
        return aot_module_simplified(
            graph_module, given, keep, keep, partition_fn=function, decompositions={}
        )

    return torch.compile(call, backend=backend)


def _graphs(function: Partition) -> list[str]:
    """Return the code of forward and backward that a partition makes."""
    torch.manual_seed(0)
    codes: list[str] = []
    x = torch.randn(8, 24, requires_grad=True)
    _compiled(Net(), function, codes)(x).sum().backward()
    return codes


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.fixture(scope="module")
def solved() -> list[str]:
    """Code of both graphs as PyTorch makes them."""
    torch.compiler.reset()
    return _graphs(min_cut_rematerialization_partition)


@pytest.fixture(scope="module")
def kept(solved: list[str]) -> Kept:
    """The partition of the network."""
    torch.compiler.reset()
    decisions = Kept()
    assert _graphs(partial(partition, lambda: decisions)) == solved
    assert len(decisions.texts) == 1
    return decisions


@pytest.fixture
def forbid_solving(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes a minimum cut fail from now on."""

    def fail(*_: object) -> Any:
        raise AssertionError("solved again")

    def forbid() -> None:
        for module in (networkx, partitioners):  # PyTorch has a function of its own since 2.15
            if hasattr(module, "minimum_cut"):
                monkeypatch.setattr(module, "minimum_cut", fail)

    return forbid


def test_remembered_partition_is_that_of_pytorch(
    solved: list[str], kept: Kept, forbid_solving: Callable[[], None]
) -> None:
    (text,) = kept.texts.values()
    answer = json.loads(text)
    assert answer["equal"] and answer["saved"]
    forbid_solving()
    assert _graphs(partial(partition, lambda: kept)) == solved
    assert list(kept.texts.values()) == [text]


def _without_random(answer: dict[str, Any]) -> Any:
    return {**answer, "saved": [one for one in answer["saved"] if "dropout" not in one]}


def _with_unequal(answer: dict[str, Any]) -> Any:
    return {**answer, "equal": {**answer["equal"], "gelu": "sin"}}


FOREIGN: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no partition": lambda _: [],
    "names of another graph": lambda answer: {**answer, "saved": ["convolution_7"]},
    "nothing saved": lambda answer: {**answer, "saved": []},
    "a gradient saved": lambda answer: {**answer, "saved": [*answer["saved"], "tangents_1"]},
    "names twice": lambda answer: {**answer, "saved": answer["saved"] * 2},
    "masks drawn again": _without_random,
    "unequal nodes merged": _with_unequal,
    "numbers": lambda answer: {**answer, "saved": [1, 2]},
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_partition_is_ignored(name: str, solved: list[str], kept: Kept) -> None:
    foreign = Kept()
    ((digest, text),) = kept.texts.items()
    foreign.texts[digest] = json.dumps(FOREIGN[name](json.loads(text)))
    assert _graphs(partial(partition, lambda: foreign)) == solved


def test_partition_of_another_graph_is_not_asked_for(kept: Kept) -> None:
    before = dict(kept.texts)
    decisions = Kept()
    decisions.texts = dict(before)
    with config.patch(ban_recompute_reductions=False):
        _graphs(partial(partition, lambda: decisions))
    assert len(decisions.texts) == 2
    assert before.items() <= decisions.texts.items()


def _returning(x: Any, weight: Any) -> Any:
    copied = x.clone()
    found = (copied.clone() * weight).sin()
    return copied * 3, found


def _writing(x: Any, weight: Any) -> Any:
    found = (x.clone() * weight).sin()
    x.mul_(3)
    return found


def _writing_numbers(x: Any, weight: Any) -> Any:
    found = (x.clone() * weight).sin()
    with torch.no_grad():
        x.mul_(3)
    return found


def _slopes(call: Any) -> list[Any]:
    """Return gradients through a call that returns values, and may write to its input."""
    torch.manual_seed(0)
    leaves = [torch.randn(4, requires_grad=True) for _ in range(2)]
    x = leaves[0] * 1
    made = call(x, leaves[1])
    values = [*made] if isinstance(made, tuple) else [x, made]
    return list(torch.autograd.grad(sum(one.sum() for one in values), leaves))


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # asked for by Dynamo
def test_written_input_has_gradients_as_in_eager() -> None:
    decisions = Kept()
    find: Callable[[], Any]
    for find in (lambda: None, lambda: decisions, lambda: decisions):
        for call in (_returning, _writing, _writing_numbers):  # the first two have one graph
            torch.compiler.reset()
            found = _slopes(_compiled(call, partial(partition, find), []))
            assert all(map(torch.equal, found, _slopes(call)))
    assert decisions.texts


class _Remembering(LoopCompiler):
    """Keeps verdicts in memory."""

    def __init__(self, kept: Kept, settings: RegionSettings) -> None:
        super().__init__(settings)
        self._texts = kept.texts

    def verdict(self, digest: str) -> str | None:
        return self._texts.get(digest)

    def keep(self, digest: str, reason: str) -> None:
        self._texts[digest] = reason


def test_training_with_a_remembered_partition_has_the_same_gradients(
    forbid_solving: Callable[[], None],
) -> None:
    decisions, found = Kept(), []
    plain = Net()
    for _ in range(2):
        torch.compiler.reset()
        net = copy.deepcopy(plain)
        train = partial(TrainingGraph, choice=Always(), loops=partial(_Remembering, decisions))
        model = torch.compile(net, backend=partial(aoe_backend, train=train))
        torch.manual_seed(1)
        model(torch.randn(64, 24)).square().mean().backward()
        found.append([one.grad for one in net.parameters()])
        forbid_solving()
    assert all(map(torch.equal, *found))
