"""Results lie in memory as PyTorch lays them: the same strides, for arguments of any strides."""

from __future__ import annotations

import copy
import pickle
from functools import cache
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from support.optimized_modules import computed_by_torch, optimize, tensors_in, untuned  # noqa: E402
from torch import nn  # noqa: E402

import aoe.torch  # noqa: E402
from aoe import FallbackWarning  # noqa: E402
from aoe.torch.modules.compiled import OptimizedModule  # noqa: E402
from aoe.torch.modules.served import MOST_LAYOUTS  # noqa: E402

pytestmark = [pytest.mark.usefixtures("inference"), pytest.mark.filterwarnings("error")]

VIEWS: dict[str, Any] = {
    "as it is": lambda x: x * 1,
    "transposed": lambda x: (x * 2).transpose(1, 3),
    "permuted": lambda x: x.exp().permute(0, 2, 3, 1),
    "channels last": lambda x: (x + 1).contiguous(memory_format=torch.channels_last),
    "expanded": lambda x: x.sum(1, keepdim=True).expand(2, 5, 4, 6),
    "sliced": lambda x: (x * 3)[:, :2, 1:3, ::2],
    "one channel": lambda x: (x - 1)[:, 1:2],
    "overlapping": lambda x: (x * 5).unfold(3, 3, 1),
    "diagonal": lambda x: (x * 4).diagonal(dim1=2, dim2=3),
    "flat": lambda x: x.tanh().flatten(1).t(),
    "sum": lambda x: x.sum((2, 3)),
    "a number": lambda x: x.mean(),
}
DTYPES = ["float32", "float16", "int64", "bool"]
ARGUMENTS: dict[str, Any] = {
    "contiguous": lambda x: x,
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "every second": lambda x: x.repeat(2, 1, 1, 1)[::2],
    "of one element": lambda x: x[:1].expand(2, 3, 4, 6),
}


class Views(nn.Module):
    """Returns results of every layout, of every element type."""

    def forward(self, x: Any) -> Any:
        found = {name: view(x) for name, view in VIEWS.items()}
        turned = found["transposed"]
        return found | {
            dtype: turned > 1 if dtype == "bool" else turned.to(getattr(torch, dtype))
            for dtype in DTYPES
        }


class Convolutions(nn.Module):
    """Keeps the memory format of its argument, as convolutions do."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: Any) -> Any:
        return self.pool(self.first(x).relu()), self.first(x).mean((2, 3))


def _assert_alike(found: Any, expected: Any) -> None:
    for one, other in zip(*map(tensors_in, (found, expected)), strict=True):
        assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", [Views, pytest.param(Convolutions, marks=pytest.mark.slow)])
def test_results_have_the_strides_pytorch_gives_them(kind: Any) -> None:
    module, x = kind().eval(), torch.rand(2, 3, 4, 6)
    tuned = optimize(module, x)
    for lay in ARGUMENTS.values():
        for _ in range(3):
            argument = lay(torch.rand(2, 3, 4, 6))
            _assert_alike(tuned(argument), module(argument))
    assert not aoe.torch.fallbacks(tuned)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Views, Convolutions])
def test_compiled_graphs_return_the_strides_pytorch_returns(kind: Any) -> None:
    torch.compiler.reset()
    module = kind().eval()
    compiled = torch.compile(module, backend=untuned, dynamic=False)
    for name in ("contiguous", "channels last"):
        x = ARGUMENTS[name](torch.rand(2, 3, 4, 6))
        for _ in range(2):
            _assert_alike(compiled(x), module(x))
    torch.compiler.reset()


@pytest.mark.slow
def test_weights_in_channels_last_decide_too() -> None:
    module, x = Convolutions().eval().to(memory_format=torch.channels_last), torch.rand(2, 3, 4, 6)
    tuned = optimize(module, x)
    _assert_alike(tuned(x), module(x))
    assert not tuned(x)[0].is_contiguous()


@cache
def _optimized() -> OptimizedModule:
    return optimize(Convolutions().eval(), torch.rand(2, 3, 4, 6))


def test_strides_are_learnt_once() -> None:
    tuned, x = copy.deepcopy(_optimized()), torch.rand(2, 3, 4, 6)
    other = ARGUMENTS["channels last"](x)
    with computed_by_torch(tuned) as computed:
        for argument in (x, other, x, other, other):
            tuned(argument)
    assert len(computed) == 1


def test_a_copy_knows_the_strides() -> None:
    module, x = Convolutions().eval(), ARGUMENTS["channels last"](torch.rand(2, 3, 4, 6))
    tuned = pickle.loads(pickle.dumps(optimize(module, x)))
    with computed_by_torch(tuned) as computed:
        found = tuned(x)
    assert not computed
    _assert_alike(found, module(x))


@pytest.mark.slow
@pytest.mark.filterwarnings("default::UserWarning")
def test_too_many_layouts_are_left_to_pytorch() -> None:
    tuned = copy.deepcopy(_optimized())
    module = tuned.original
    with pytest.warns(FallbackWarning, match="too many ways") as caught:
        for width in range(7, 7 + MOST_LAYOUTS + 2):  # rows that lie ever further apart
            argument = torch.rand(2, 3, 4, width)[..., :6]
            _assert_alike(tuned(argument), module(argument))
    assert len(caught) == 1
    assert aoe.torch.fallbacks(tuned) == {"too many layouts": 3}  # the example's is known too
