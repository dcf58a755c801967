"""Modules that are tuned for a range of shapes: `optimize(..., dynamic_shapes=...)`."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from support.engine.untuned import UntunedEngine  # noqa: E402
from support.optimized_modules import computed_by_torch, optimize  # noqa: E402
from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402

import aoe.torch  # noqa: E402
from aoe.errors import ModelImportError, OptionError  # noqa: E402

_WIDTH = 64


class Feed(nn.Module):
    """Rows of any number, beside others of the same batch."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(_WIDTH, 96), nn.Linear(96, _WIDTH)
        self.norm = nn.LayerNorm(_WIDTH)

    def forward(self, x: Any, scale: Any = None) -> Any:
        hidden = self.norm(x + self.down(torch.relu(self.up(x))))
        return hidden if scale is None else (hidden * scale[:, None, None], x.transpose(0, 1))


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.no_grad():
        yield


def _dims() -> dict[int, Any]:
    return {0: Dim("batch", min=1, max=4), 1: Dim("length", min=1, max=32)}


def _agree(one: Any, other: Any) -> bool:
    return bool(torch.allclose(one, other, rtol=1e-4, atol=1e-5)) and one.stride() == other.stride()


@pytest.fixture
def tuned() -> Any:
    module = Feed().eval()
    return optimize(module, (torch.randn(2, 5, _WIDTH),), dynamic_shapes={"x": _dims()})


@pytest.mark.parametrize("shape", [(1, 1), (2, 5), (4, 32), (3, 17), (1, 31)])
def test_calls_of_every_shape_of_the_range_are_served(tuned: Any, shape: tuple[int, int]) -> None:
    x = torch.randn(*shape, _WIDTH)
    expected = tuned.original(x)
    with computed_by_torch(tuned) as calls:
        assert _agree(tuned(x), expected)
    assert not calls


def test_calls_outside_of_the_range_are_pytorchs(tuned: Any) -> None:
    with pytest.warns(aoe.FallbackWarning, match="other inputs"):
        tuned(torch.randn(5, 3, _WIDTH))
    assert aoe.torch.fallbacks(tuned)


def test_dimensions_of_one_name_have_to_agree() -> None:
    batch = Dim("batch", min=1, max=4)
    module = Feed().eval()
    call = (torch.randn(2, 5, _WIDTH), torch.randn(2))
    found = optimize(module, call, dynamic_shapes=({0: batch}, (batch,)))
    x, scale = torch.randn(3, 5, _WIDTH), torch.randn(3)
    hidden, turned = found(x, scale)
    expected, moved = module(x, scale)
    assert _agree(hidden, expected) and _agree(turned, moved)
    with pytest.warns(aoe.FallbackWarning, match="other inputs"):
        found(x, torch.randn(1))


class Doubled(nn.Module):
    """Twice its rows, beside as many and one more."""

    def forward(self, x: Any, twice: Any, more: Any) -> Any:
        rows = torch.cat([x, x]) * twice
        return torch.softmax(rows, -1), torch.softmax(torch.cat([x, x[:1]]) * more, -1)


def test_dimensions_that_follow_from_others_do_so_in_every_call() -> None:
    length, engine, module = Dim("length", min=1, max=32), UntunedEngine(), Doubled().eval()

    def call(*rows: int) -> tuple[Any, ...]:
        return tuple(torch.randn(extent, _WIDTH) for extent in rows)

    dims = ({0: length}, {0: 2 * length}, {0: length + 1})
    found = optimize(module, call(5, 10, 6), dynamic_shapes=dims, engine=engine)
    assert [one.shape_range for one in engine.asked] == [
        "in_x:1~32,64;in_twice:2~64,64;in_more:2~33,64"
    ]
    with computed_by_torch(found) as calls:
        for rows in ((1, 2, 2), (7, 14, 8), (32, 64, 33)):
            given = call(*rows)
            expected = module(*given)
            assert all(map(_agree, found(*given), expected))
    assert len(calls) == 3  # those of the module itself
    given = call(3, 1, 4)  # is broadcast
    with pytest.warns(aoe.FallbackWarning, match="other inputs"):
        assert all(map(_agree, found(*given), module(*given)))
    with pytest.raises(OptionError, match=r"does not fit.*2 to 64, 2\*length"):
        optimize(nn.ReLU().eval(), (torch.randn(7, _WIDTH),), dynamic_shapes=({0: 2 * length},))


def test_a_range_that_does_not_hold_is_told_with_the_reason() -> None:
    class Shifted(nn.Module):
        def forward(self, x: Any) -> Any:
            return x[1:] + x[:-1]

    dims = ({0: Dim("length", min=2, max=32)},)
    with pytest.raises(ModelImportError, match="Not all values of length"):
        optimize(Shifted().eval(), (torch.randn(9, _WIDTH),), dynamic_shapes=dims)


def test_dimension_without_an_end_is_tuned_up_to_a_bound_and_served_beyond() -> None:
    engine, module = UntunedEngine(), Feed().eval()
    dims = ((2, Dim("length", min=1), Dim.STATIC),)
    given = {"dynamic_shapes": dims, "engine": engine}
    found = optimize(module, (torch.randn(2, 5, _WIDTH),), **given)
    assert [one.shape_range for one in engine.asked] == ["in_x:2,1~20,64"]
    x = torch.randn(2, 47, _WIDTH)
    expected = module(x)
    with computed_by_torch(found) as calls:
        assert _agree(found(x), expected)
    assert not calls


def test_a_copy_and_a_pickled_one_serve_the_range(tuned: Any) -> None:
    x = torch.randn(3, 9, _WIDTH)
    expected = tuned.original(x)
    for other in (copy.deepcopy(tuned), pickle.loads(pickle.dumps(tuned))):
        assert _agree(other(x), expected)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"y": {0: Dim("batch", min=1, max=4)}}, "no tensor of the call"),
        ({"x": {0: Dim("batch", min=3, max=4)}}, "the example does not fit"),
        ({"x": {7: Dim("batch", min=1, max=9)}}, "x has no axis 7"),
        ({"x": (Dim("batch", min=1, max=4), None, None, None)}, "x has no axis 3"),
        (({0: Dim("batch", min=1, max=4)}, None, None), "more entries than arguments"),
        ({"x": {"batch": Dim("batch", min=1, max=4)}}, "x has no axis batch"),
        ({"x": Dim("batch", min=1, max=4)}, "no axes of x"),
        (Dim("batch", min=1, max=4), "no arguments by name or in order"),
        ({"x": {0: 3}}, "no range"),
        ({"x": {0: Dim.AUTO}}, "no range"),
        ({"x": {0: "batch"}}, "no range"),
        ({"x": None}, "no dimension is open"),
    ],
)
def test_what_does_not_fit_the_example_is_refused(given: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=told):
        optimize(Feed().eval(), (torch.randn(2, 5, _WIDTH),), dynamic_shapes=given)
