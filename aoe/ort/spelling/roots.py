"""Root mean square normalisation in the parts ONNX Runtime joins to one operator.

It knows Pow, ReduceMean, Add, Sqrt, Div and a product with the scale. Exporters of PyTorch write a
product with the Reciprocal of the root instead, and a square as a product: no part is joined then,
and the tensor is walked for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from aoe.graph.protos import copied
from aoe.ort.spelling.reading import PartsReading


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """A normalisation in other parts.

    Attributes:
        source: Name of what is normalised.
        square: Index of the node that squares it.
        root: Of the Sqrt.
        inverse: Of the Reciprocal, None where there is a Div.
        quotient: Of the product with it, or the Div.
    """

    source: str
    square: int
    root: int
    inverse: int | None
    quotient: int


def spell_roots(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose float32 normalisations have the parts that are joined.

    The model itself, if all have.
    """
    roots = [at for at, node in enumerate(proto.graph.node) if node.op_type == "Sqrt"]
    if not roots:
        return proto
    reading = _Reading(proto)
    found = [parts for at in roots if (parts := reading.parts_around(at)) is not None]
    if not found:
        return proto
    spelled = copied(proto)
    two = _unused(proto, "two")
    spelled.graph.initializer.append(numpy_helper.from_array(np.array(2, np.float32), two))
    nodes = spelled.graph.node
    for parts in found:
        square, quotient = nodes[parts.square], nodes[parts.quotient]
        square.CopyFrom(
            helper.make_node("Pow", [parts.source, two], list(square.output), square.name)
        )
        divided = [parts.source, nodes[parts.root].output[0]]
        quotient.CopyFrom(helper.make_node("Div", divided, list(quotient.output), quotient.name))
    for at in sorted((one.inverse for one in found if one.inverse is not None), reverse=True):
        del nodes[at]
    return spelled


def _unused(proto: onnx.ModelProto, name: str) -> str:
    taken = {used for node in proto.graph.node for used in (*node.input, *node.output)}
    taken |= {value.name for value in (*proto.graph.initializer, *proto.graph.input)}
    while name in taken:
        name += "_"
    return name


class _Reading(PartsReading):
    """A model while normalisations are looked for."""

    def parts_around(self, root: int) -> _Parts | None:
        """Return the normalisation a Sqrt is part of, None if there is none to spell anew."""
        summed = self.maker(self.nodes[root].input[0], "Add")
        if summed is None:
            return None
        mean, epsilon = self.with_constant(summed)
        averaged = self.mean_over(-1, mean)
        if epsilon is None or epsilon.dtype != np.float32 or epsilon.size != 1 or averaged is None:
            return None
        square = self.maker(self.nodes[averaged].input[0], "Pow", "Mul")
        if square is None or not self.is_square(square):
            return None
        source = self.nodes[square].input[0]
        for inverse, quotient in self._quotients(root, source):
            members = [square, averaged, summed, root, inverse, quotient]
            parts = tuple(at for at in members if at is not None)
            is_known = inverse is None and self.nodes[square].op_type == "Pow"
            if not is_known and self.is_closed(parts) and self._is_scaled(quotient):
                return _Parts(
                    source=source, square=square, root=root, inverse=inverse, quotient=quotient
                )
        return None

    def _quotients(self, root: int, source: str) -> Iterator[tuple[int | None, int]]:
        """Yield the node that divides by a root, and the Reciprocal it does it with."""
        made = self.nodes[root].output[0]
        divided = self.reader(root, "Div")
        if divided is not None and list(self.nodes[divided].input) == [source, made]:
            yield None, divided
        inverse = self.reader(root, "Reciprocal")
        product = None if inverse is None else self.reader(inverse, "Mul")
        if inverse is not None and product is not None:
            factors = {source, self.nodes[inverse].output[0]}
            if set(self.nodes[product].input) == factors:
                yield inverse, product

    def _is_scaled(self, quotient: int) -> bool:
        """Return True if a product with a constant row follows, without which nothing is joined."""
        scaled = self.reader(quotient, "Mul")
        scale = None if scaled is None else self.with_constant(scaled)[1]
        return scale is not None and scale.dtype == np.float32 and scale.ndim == 1
