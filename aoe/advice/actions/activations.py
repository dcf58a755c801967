"""Smooth activations as such of half the cost: a piecewise one, or none of arithmetic at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from aoe.advice.actions.protocol import AdviceAction, Proposal
from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.activations import find_smooth
from aoe.graph.rewrites.editing import Rewriting, apply_edits, choose_apart
from aoe.graph.rewrites.matching import is_op, maker, nodes_of
from aoe.graph.rewrites.protocol import RewriteMatch
from aoe.target import Target

_WHOLE = frozenset({"Gelu", "Mish", "Swish", "QuickGelu", "FastGelu", "BiasGelu"})

Write = Callable[[Rewriting, str, str], object]
"""Adds what makes the result (third) of the argument (second)."""


def propose_activations(
    graph: ModelGraph, target: Target, *, name: str, becomes: str, write: Write
) -> Iterator[Proposal]:
    """Yield the model with all its SiLU, Mish and GELU replaced."""
    found = []
    for x, output, removed in _activations(graph):
        rewriting = Rewriting(graph, name, removed)
        write(rewriting, x, output)
        match = rewriting.finish()
        if isinstance(match, RewriteMatch):
            found.append(match)
    chosen = choose_apart(graph, found)
    if chosen:
        yield Proposal(
            action=name,
            what=f"SiLU, Mish and GELU become {becomes}",
            op_names=tuple(node for match in chosen for node in match.nodes),
            edited=apply_edits(graph.proto, [match.edit for match in chosen]),
            needs_retraining=True,
        )


def _activations(graph: ModelGraph) -> Iterator[tuple[str, str, Iterable[int]]]:
    """Yield argument, result and nodes of each smooth activation, whole or spelled out."""
    for index, node in enumerate(graph.nodes):
        if node.op_type in _WHOLE and len(node.input) == 1:
            yield node.input[0], node.output[0], (index,)
    for index, node in nodes_of(graph, "Mul"):
        for x, gate in (tuple(node.input), tuple(node.input)[::-1]):
            made = maker(graph, gate)
            if made is not None and is_op(made, "Sigmoid") and made.input[0] == x:
                yield x, node.output[0], (graph.producer[gate], index)
                break
    yield from find_smooth(graph)


def _write_hard_swish(rewriting: Rewriting, x: str, output: str) -> None:
    gate = rewriting.add("HardSigmoid", [x], alpha=1 / 6, beta=0.5)
    rewriting.add("Mul", [x, gate], output)


def _write_relu(rewriting: Rewriting, x: str, output: str) -> None:
    rewriting.add("Relu", [x], output)


def _action(name: str, becomes: str, write: Write) -> AdviceAction:
    return AdviceAction(
        name=name, propose=partial(propose_activations, name=name, becomes=becomes, write=write)
    )


HARD_SWISH = _action("activation-hard-swish", "HardSwish", _write_hard_swish)
RELU = _action("activation-relu", "Relu", _write_relu)
