"""The symbolic extents and the numbers of a graph Dynamo traced with `dynamic=True`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from aoe.torch.modules.open_shapes import OpenDim, OpenDims, make_open_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class SymbolicExtent:
    """An extent of a tensor that PyTorch treats as a symbol.

    Attributes:
        axis: Of the tensor.
        name: Of the symbol; equal names are equal extents.
        low: Least extent.
        high: Largest extent, None for no end.
    """

    axis: int
    name: str
    low: int
    high: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphShapes:
    """What of the shapes of a graph's arguments is symbolic.

    Attributes:
        symbols: Symbolic extents of a tensor, by its place among the arguments.
        sizes: Arguments that are such extents themselves, by their place: place of a tensor that
            has it, and axis.
        numbers: Places of tensors that hold a number the graph reads, an epsilon or a factor.
    """

    symbols: Mapping[int, tuple[SymbolicExtent, ...]]
    sizes: Mapping[int, tuple[int, int]]
    numbers: frozenset[int]

    def open_dims(
        self, values: Mapping[int, torch.Tensor], dynamic_max: int | None
    ) -> tuple[OpenDims, ...]:
        """Return the open dimensions of each tensor of a call; see `make_open_dim`."""

        def opened(one: SymbolicExtent, extent: int) -> OpenDim:
            return make_open_dim(one.axis, one.name, one.low, one.high, extent, dynamic_max)

        return tuple(
            tuple(opened(one, value.shape[one.axis]) for one in self.symbols.get(at, ()))
            for at, value in values.items()
        )


def graph_shapes(graph_module: torch.fx.GraphModule) -> GraphShapes | str:
    """Return the symbolic extents of a graph's arguments, or why they are no ranges."""
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    examples = [node.meta.get("example_value") for node in placeholders]
    symbols: dict[int, tuple[SymbolicExtent, ...]] = {}
    homes: dict[str, tuple[int, int]] = {}
    for place, example in enumerate(examples):
        if isinstance(example, torch.Tensor):
            found = tuple(_symbolic(example))
            if any(not one.name for one in found):
                return "an extent of an argument is computed of others, not a range of its own"
            symbols[place] = found
            for one in found:
                homes.setdefault(one.name, (place, one.axis))
    sizes: dict[int, tuple[int, int]] = {}
    for place, example in enumerate(examples):
        if isinstance(example, torch.SymInt | torch.SymFloat | torch.SymBool):
            name = _name_of(example)
            if name not in homes:
                return f"the number {example} among its arguments is dynamic, and no extent"
            sizes[place] = homes[name]
    numbers = frozenset(place for place, node in enumerate(placeholders) if _is_number(node))
    return GraphShapes(symbols=symbols, sizes=sizes, numbers=numbers)


def _is_number(node: torch.fx.Node) -> bool:
    return bool(node.users) and all(
        user.op == "call_method" and user.target == "item" for user in node.users
    )


def with_numbers(
    graph_module: torch.fx.GraphModule, numbers: Mapping[int, float]
) -> torch.fx.GraphModule:
    """Return a graph that has these numbers as constants; those of `GraphShapes.numbers`.

    A float is a symbol to PyTorch where extents are, and no exporter takes a symbolic epsilon.
    """
    if not numbers:
        return graph_module
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(graph_module.graph, {}))
    for place, node in enumerate(graph.find_nodes(op="placeholder")):
        if place in numbers:
            for user in tuple(node.users):
                user.replace_all_uses_with(numbers[place])
                graph.erase_node(user)
    return torch.fx.GraphModule(graph_module, graph)


def _symbolic(example: torch.Tensor) -> Iterator[SymbolicExtent]:
    for axis, extent in enumerate(example.shape):
        if isinstance(extent, torch.SymInt) and not extent.node.expr.is_number:
            bounds = extent.node.shape_env.bound_sympy(extent.node.expr)
            low, high = (
                int(one) if one.is_Integer else None for one in (bounds.lower, bounds.upper)
            )
            yield SymbolicExtent(axis=axis, name=_name_of(extent), low=max(1, low or 1), high=high)


def _name_of(number: Any) -> str:
    """Return the name of a symbol, the empty string for what is computed of symbols."""
    expression = number.node.expr
    return str(expression) if expression.is_Symbol else ""
