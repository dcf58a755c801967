"""Rewritten training graphs compute what they have computed."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from aoe.torch.modules.training.rewrites import rewrite  # noqa: E402

_ATEN = torch.ops.aten


def _summed(addend: float | None, **how: Any) -> Any:
    """Return the sum of the gradients of two parts of a tensor, and a number if there is one."""
    graph = torch.fx.Graph()
    parts = [
        graph.call_function(_ATEN.select_backward.default, (graph.placeholder(name), [2, 3], 0, at))
        for at, name in enumerate(("a", "b"))
    ]
    made = graph.call_function(_ATEN.add.Tensor, tuple(parts), how)
    if addend is not None:
        made = graph.call_function(_ATEN.add.Tensor, (made, addend))
    graph.output(made)
    return torch.fx.GraphModule(torch.nn.Module(), graph)


@pytest.mark.parametrize(
    ("addend", "how", "places"),
    [(None, {}, 1), (1.0, {}, 0), (None, {"alpha": 2}, 0)],
    ids=["sum", "number", "factor"],
)
def test_gradients_of_parts_are_stacked_where_they_are_all_of_the_sum(
    addend: float | None, how: dict[str, Any], places: int
) -> None:
    module, given = _summed(addend, **how), (torch.ones(3), torch.full((3,), 2.0))
    before = module(*given)
    assert rewrite(module) == places
    assert torch.equal(before, module(*given))
