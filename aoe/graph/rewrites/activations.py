"""Activations exporters spell out: one operator each, with a kernel of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.editing import Rewriting, refuse
from aoe.graph.rewrites.matching import (
    AnyTensor,
    OneOf,
    Pattern,
    find_pattern,
    nodes_of,
    op,
    shape_of,
)
from aoe.graph.rewrites.protocol import Finding, RewriteRule

_X = AnyTensor("x")
_ROOT_2 = math.sqrt(2)
_RESULTS = ("Mul", "Div", "Add")
"""Operators that come last in one of the patterns."""

Write = Callable[[Rewriting, str, str], None]
"""Adds what makes the result (third) of the argument (second)."""


def _either(*patterns: Pattern) -> OneOf:
    return OneOf(patterns)


def _times(a: Pattern, b: Pattern, c: float) -> OneOf:
    """Return a product of three in any order and grouping."""
    pairs = ((a, b, c), (a, c, b), (b, c, a))
    return OneOf(tuple(op("Mul", op("Mul", one, two), three) for one, two, three in pairs))


_INNER = _either(op("Div", _X, _ROOT_2), op("Mul", _X, 1 / _ROOT_2))
_ERF = op("Add", op("Erf", _INNER), 1)
_HALF_ERF = _either(op("Mul", _ERF, 0.5), op("Div", _ERF, 2))
_GELU = _either(
    _times(_X, _ERF, 0.5),
    op("Mul", _X, _HALF_ERF),
    op("Mul", op("Div", _X, 2), _ERF),
    op("Div", op("Mul", _X, _ERF), 2),
)
_CUBE = _either(
    op("Pow", _X, 3),
    op("Mul", op("Mul", _X, _X), _X),
    op("Mul", op("Pow", _X, 2), _X),
)
_ROOT = math.sqrt(2 / math.pi)
_POLYNOMIAL = _either(
    op("Mul", op("Add", _X, op("Mul", _CUBE, 0.044715)), _ROOT),
    op("Mul", op("Mul", _X, _ROOT), op("Add", op("Mul", op("Mul", _X, _X), 0.044715), 1)),
    op("Mul", _X, op("Add", op("Mul", op("Mul", _X, _X), 0.044715 * _ROOT), _ROOT)),
)
_TANH = op("Add", op("Tanh", _POLYNOMIAL), 1)
_TANH_GELU = _either(
    _times(_X, _TANH, 0.5),
    op("Mul", _X, _either(op("Mul", _TANH, 0.5), op("Div", _TANH, 2))),
)
_SILU = _either(
    op("Div", _X, op("Add", op("Exp", op("Neg", _X)), 1)),
    op("Mul", _X, op("Reciprocal", op("Add", op("Exp", op("Neg", _X)), 1))),
)
_SOFTPLUS = _either(
    op("Softplus", _X),
    op("Log", op("Add", op("Exp", _X), 1)),
)
_MISH = op("Mul", _X, op("Tanh", _SOFTPLUS))
_CLIPPED = op("Clip", op("Add", _X, 3), 0, 6)
_SIXTH = _either(op("Div", _CLIPPED, 6), op("Mul", _CLIPPED, 1 / 6))
_SPELLED_SIGMOID = op("HardSigmoid", _X, alpha=1 / 6, beta=0.5)
_HARD_SWISH = _either(
    op("Mul", _X, _SIXTH),
    op("Mul", _X, _SPELLED_SIGMOID),
    op("Div", op("Mul", _X, _CLIPPED), 6),
    op("Mul", op("Mul", _X, _CLIPPED), 1 / 6),
    op("Mul", op("Div", _X, 6), _CLIPPED),
)


def find_activations(
    graph: ModelGraph, *, rule: str, pattern: Pattern, write: Write, since: int
) -> Iterator[Finding]:
    """Yield every place where a pattern makes a float32 tensor.

    Args:
        graph: The model.
        rule: Name of the rule.
        pattern: Of the argument `x`.
        write: Adds what stands there then.
        since: Opset that has the operators written.
    """
    for index, node in nodes_of(graph, *_RESULTS):
        found = find_pattern(graph, node.output[0], pattern)
        if found is None:
            continue
        if graph.opset("") < since:
            why = f"the model imports opset {graph.opset('')}, the operator is of {since}"
            yield refuse(graph, rule, found.nodes, why)
        elif shape_of(graph, found.names["x"]) != shape_of(graph, node.output[0]):
            yield refuse(graph, rule, found.nodes, "a constant broadcasts, or the shape is open")
        else:
            rewriting = Rewriting(graph, rule, found.nodes)
            write(rewriting, found.names["x"], graph.nodes[index].output[0])
            yield rewriting.finish()


def find_smooth(graph: ModelGraph) -> Iterator[tuple[str, str, Iterable[int]]]:
    """Yield argument, result and nodes of each GELU, SiLU and Mish that is spelled out."""
    for index, node in nodes_of(graph, *_RESULTS):
        for pattern in (_GELU, _TANH_GELU, _SILU, _MISH):
            found = find_pattern(graph, node.output[0], pattern)
            if found is not None:
                yield found.names["x"], graph.nodes[index].output[0], found.nodes
                break


def _one(op_type: str, domain: str = "", **attributes: Any) -> Write:
    def write(rewriting: Rewriting, x: str, output: str) -> None:
        rewriting.add(op_type, [x], output, domain=domain, **attributes)

    return write


def _write_silu(rewriting: Rewriting, x: str, output: str) -> None:
    rewriting.add("Mul", [x, rewriting.add("Sigmoid", [x])], output)


def _rule(
    name: str, pattern: Pattern, write: Write, *, what: str, needs: str, since: int = 7
) -> RewriteRule:
    return RewriteRule(
        name=name,
        what=what,
        needs=needs,
        tolerance=1e-5 if name != "gelu-tanh" else 1e-4,
        find=partial(find_activations, rule=name, pattern=pattern, write=write, since=since),
    )


_ONCE = "nobody else reads what lies between"
GELU_RULE = _rule(
    "gelu",
    _GELU,
    _one("Gelu", "com.microsoft"),
    what="x/2 (1 + Erf(x / sqrt 2)), in any order, becomes Gelu",
    needs=_ONCE,
)
TANH_GELU_RULE = _rule(
    "gelu-tanh",
    _TANH_GELU,
    _one("FastGelu", "com.microsoft"),
    what="Gelu by a hyperbolic tangent, in any order, becomes FastGelu",
    needs=_ONCE,
)
SILU_RULE = _rule(
    "silu",
    _SILU,
    _write_silu,
    what="x / (1 + exp(-x)) becomes x Sigmoid(x)",
    needs=f"{_ONCE}; minus infinity, which the longer form makes NaN or zero of, may change",
)
MISH_RULE = _rule(
    "mish",
    _MISH,
    _one("Mish"),
    what="x Tanh(Softplus(x)), Softplus spelled out or not, becomes Mish",
    needs=f"{_ONCE}; opset 18; spelled-out Softplus overflows above 88, which Mish does not",
    since=18,
)
HARD_SWISH_RULE = _rule(
    "hard-swish",
    _HARD_SWISH,
    _one("HardSwish"),
    what="x Clip(x + 3, 0, 6) / 6, or x HardSigmoid(x), becomes HardSwish",
    needs=f"{_ONCE}; opset 14",
    since=14,
)
HARD_SIGMOID_RULE = _rule(
    "hard-sigmoid",
    _SIXTH,
    _one("HardSigmoid", alpha=1 / 6, beta=0.5),
    what="Clip(x + 3, 0, 6) / 6 becomes HardSigmoid",
    needs=_ONCE,
)
