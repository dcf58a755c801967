"""Powers with a small constant exponent, as products and roots."""

from __future__ import annotations

from collections.abc import Iterator

from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.building import Rewriting, refuse
from aoe.graph.rewrites.protocol import Finding, RewriteRule
from aoe.graph.rewrites.reading import is_op, maker, nodes_of, number_of, shape_of

_NAME = "power-as-product"
_NOT_NEGATIVE = ("Abs", "Exp", "Relu", "Sigmoid", "Softplus", "ReduceL2", "ReduceSumSquare")


def find_powers(graph: ModelGraph) -> Iterator[Finding]:
    """Yield powers with an exponent there is a cheaper way for."""
    for index, node in nodes_of(graph, "Pow"):
        exponent = number_of(graph, node.input[1])
        x, output = node.input[0], node.output[0]
        if exponent is None or shape_of(graph, x) is None:
            continue
        if shape_of(graph, x) != shape_of(graph, output):
            yield refuse(graph, _NAME, [index], "the exponent broadcasts")
            continue
        rewriting = Rewriting(graph, _NAME, [index])
        if exponent == 2:
            rewriting.add("Mul", [x, x], output)
        elif exponent == 3:
            rewriting.add("Mul", [rewriting.add("Mul", [x, x]), x], output)
        elif exponent == 4:
            square = rewriting.add("Mul", [x, x])
            rewriting.add("Mul", [square, square], output)
        elif exponent == -1:
            rewriting.add("Reciprocal", [x], output)
        elif abs(exponent) == 0.5:
            if not _is_not_negative(graph, x):
                why = f"{x} may be minus infinity or -0, whose root is another one"
                yield refuse(graph, _NAME, [index], why)
                continue
            if exponent > 0:
                rewriting.add("Sqrt", [x], output)
            else:
                rewriting.add("Reciprocal", [rewriting.add("Sqrt", [x])], output)
        else:
            yield refuse(graph, _NAME, [index], f"the exponent is {exponent:g}")
            continue
        yield rewriting.finish()


def _is_not_negative(graph: ModelGraph, name: str) -> bool:
    node = maker(graph, name)
    if node is None:
        return False
    if is_op(node, *_NOT_NEGATIVE):
        return True
    if is_op(node, "Mul"):
        return bool(node.input[0] == node.input[1])
    if is_op(node, "Pow"):
        return number_of(graph, node.input[1]) in (2, 4)
    if is_op(node, "ReduceMean", "ReduceSum", "ReduceMax"):
        return _is_not_negative(graph, node.input[0])
    if is_op(node, "Add"):
        numbers = [number_of(graph, read) for read in node.input]
        return all(
            number >= 0 if number is not None else _is_not_negative(graph, read)
            for number, read in zip(numbers, node.input, strict=True)
        )
    return False


POWER_RULE = RewriteRule(
    name=_NAME,
    what="Pow by 2, 3, 4, -1, 1/2 or -1/2 becomes Mul, Reciprocal or Sqrt",
    needs="float32; for roots what is never negative",
    tolerance=1e-6,
    find=find_powers,
)
