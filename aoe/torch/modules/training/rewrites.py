"""Equal ways to write a training graph, which PyTorch computes in fewer passes over memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

_ATEN = torch.ops.aten


def rewrite(graph_module: torch.fx.GraphModule) -> int:
    """Rewrite a graph of ATen operators in place; return how many places were.

    Autograd makes the gradient of `q, k, v = x` as three tensors of zeros with a part filled in,
    and adds them up. They are stacked instead: the same numbers, written once. A transposed copy
    of the stack is stacked in that order to begin with.

    Dropout multiplies twice; apart from its mask it becomes part of the region around it.
    """
    graph = graph_module.graph
    found = 0
    for node in list(graph.nodes):
        if node.target is _ATEN.native_dropout.default and node.args[2] is True:
            _mask_apart(graph, node)
            found += 1
            continue
        stacked = _stack_of(node) if node.op == "call_function" else None
        if stacked is None:
            continue
        parts, axis = stacked
        with graph.inserting_before(node):
            made = graph.call_function(_ATEN.stack.default, (list(parts), axis))
        made.meta = dict(node.meta)
        node.replace_all_uses_with(made)
        _permuted_stack(graph, made, parts, axis)
        found += 1
    if found:
        graph.eliminate_dead_code()
        graph_module.recompile()
    return found


def dropout_mask(x: torch.Tensor, kept: float) -> torch.Tensor:
    """Return which elements dropout keeps, as PyTorch draws them."""
    return torch.empty_like(x, dtype=torch.bool).bernoulli_(kept)


def _mask_apart(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    """Replace dropout by its mask and the two products PyTorch computes of it."""
    x, kept = node.args[0], 1.0 - node.args[1]
    result, mask = node.meta["val"]
    with graph.inserting_before(node):
        drawn = graph.call_function(dropout_mask, (x, kept))
        masked = graph.call_function(_ATEN.mul.Tensor, (x, drawn))
        scale = 1.0 / kept if kept else 0.0
        scaled = graph.call_function(_ATEN.mul.Tensor, (masked, scale))
    drawn.meta["val"], masked.meta["val"], scaled.meta["val"] = mask, result, result
    for part in tuple(node.users):
        part.replace_all_uses_with((scaled, drawn)[part.args[1]])
        graph.erase_node(part)
    graph.erase_node(node)


def _stack_of(node: torch.fx.Node) -> tuple[Sequence[torch.fx.Node], int] | None:
    """Return the parts whose stack along an axis a sum is; None if it is no such sum."""
    if node.target is not _ATEN.add.Tensor or node.kwargs or _is_part_of_a_sum(node):
        return None  # with `alpha` it is another sum
    leaves = list(_summands(node))
    if not all(
        isinstance(leaf, torch.fx.Node) and leaf.target is _ATEN.select_backward.default
        for leaf in leaves
    ):
        return None
    if any(len(leaf.users) != 1 or leaf.kwargs for leaf in leaves):
        return None
    facts = {(tuple(leaf.args[1]), leaf.args[2]) for leaf in leaves}
    if len(facts) != 1:
        return None
    sizes, axis = next(iter(facts))
    if not all(isinstance(size, int) for size in sizes):
        return None
    axis %= len(sizes)
    by_place = {leaf.args[3] % sizes[axis]: leaf.args[0] for leaf in leaves}
    if len(by_place) != len(leaves) or len(leaves) != sizes[axis]:
        return None
    return [by_place[place] for place in range(sizes[axis])], axis


def _is_part_of_a_sum(node: torch.fx.Node) -> bool:
    return len(node.users) == 1 and next(iter(node.users)).target is _ATEN.add.Tensor


def _summands(node: torch.fx.Node) -> Iterator[Any]:
    """Yield what a sum adds up, numbers too; sums that are used nowhere else are taken apart."""
    for read in node.args:
        is_sum = isinstance(read, torch.fx.Node) and read.target is _ATEN.add.Tensor
        if is_sum and len(read.users) == 1 and not read.kwargs:
            yield from _summands(read)
        else:
            yield read


def _permuted_stack(
    graph: torch.fx.Graph, made: torch.fx.Node, parts: Sequence[torch.fx.Node], axis: int
) -> None:
    """Stack transposed parts where the stack is only used as a transposed copy."""
    if len(made.users) != 1:
        return
    permute = next(iter(made.users))
    if permute.target is not _ATEN.permute.default or len(permute.users) != 1:
        return
    copy = next(iter(permute.users))
    is_dense = copy.kwargs.get("memory_format") in (torch.contiguous_format, None)
    if (
        copy.target is not _ATEN.clone.default
        or not is_dense
        or not copy.meta["val"].is_contiguous()
    ):
        return
    order = [one % len(permute.args[1]) for one in permute.args[1]]
    inner = [one - (one > axis) for one in order if one != axis]
    with graph.inserting_before(copy):
        turned = [graph.call_function(_ATEN.permute.default, (part, inner)) for part in parts]
        for new, part in zip(turned, parts, strict=True):
            new.meta["val"] = part.meta["val"].permute(inner)
        whole = graph.call_function(_ATEN.stack.default, (turned, order.index(axis)))
    whole.meta = dict(copy.meta)
    copy.replace_all_uses_with(whole)
